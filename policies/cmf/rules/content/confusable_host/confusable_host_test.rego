package cmf.rules.content.confusable_host_test

import data.cmf.rules.content.confusable_host

_denied(view) := {effect.code | some effect in denials} if denials := confusable_host.deny with input as view

_warned(view) := {effect.code | some effect in warnings} if warnings := confusable_host.warn with input as view

_said(text) := {"kind": "text", "role": "assistant", "content": text}

test_denied_confusable_hosts if {
	every url in [
		"https://\u0430pple.com/", "https://xpayp\u0430l.com", "http://ann@g\u03bfogle.com/",
		"https://\u0441\u0441\u0441.com",
		"https://\uff47oogle.com", "https://google.com\u2044search.example", "https://example\u3002com",
		"https://\ud835\udc1aple.example",
	] {
		_denied(_said(concat("", ["see ", url]))) == {"content.confusable-host"}
		_denied({"kind": "tool_call", "content": concat("", [`{"url":"`, url, `"}`])}) == {"content.confusable-host"}
	}
}

test_denied_hosts_that_only_clients_find if {
	view := {"kind": "tool_call", "content": "{}"}
	shown := {"addresses": [{"kind": "value", "scheme": "https", "shown": "\u0430pple.com", "host": "xn--pple-43d.com"}]}
	_denied(object.union(view, shown)) == {"content.confusable-host"}
	coded := {"addresses": [{"kind": "bare", "shown": "xn--pple-43d.com", "host": "xn--pple-43d.com"}]}
	_denied(object.union(view, coded)) == {"content.confusable-host.punycode"}
}

test_denied_punycode_in_calls if {
	view := {"kind": "tool_call", "content": `{"url":"https://XN--pple-43d.com/"}`}
	_denied(view) == {"content.confusable-host.punycode"}
}

test_warned_of_punycode_in_words if {
	_warned(_said("see https://www.xn--pple-43d.com/x")) == {"content.confusable-host.punycode"}
	_denied(_said("see https://www.xn--pple-43d.com/x")) == set()
}

test_denied_when_the_role_is_missing if {
	_denied({"kind": "text", "content": "https://\u0430pple.com/"}) == {"content.confusable-host"}
}

test_allowed_hosts if {
	every text in [
		"https://example.com/\u0430pple", "https://b\u00fccher.example",
		"https://\u043c\u043e\u0441\u043a\u0432\u0430.\u0440\u0444/",
		"https://\u043f\u0440\u0438\u0432\u0435\u0442.com", "https://\u65e5\u672c.jp",
		"https://\u043f\u043e\u0447\u0442\u0430.example",
		"a://b", "https://example.com\u3000\u65e5", "xn--pple-43d.com without a scheme",
	] {
		_denied(_said(text)) == set()
		_warned(_said(text)) == set()
	}
}

test_allowed_in_what_users_write if {
	_denied({"kind": "text", "role": "user", "content": "is https://\u0430pple.com/ real?"}) == set()
}

test_allowed_without_content if _denied({"kind": "text", "role": "assistant"}) == set()

test_denied_in_mail_addresses_and_addresses_without_a_scheme if {
	every text in [
		"write to ceo@\u0430pple.com", "[x](//\u0430pple.com/a)", "https:\\\\\u0430pple.com", "https://paypa\u217c.com",
		"https://\u13a0oogle.com", "https://\ufb01ne.com", "https://\u017fecure.com", "https://google\u3002com.example",
	] {
		_denied(_said(text)) == {"content.confusable-host"}
	}
}

test_allowed_signs_that_end_a_sentence_behind_an_address if {
	every text in [
		"\u8bf7\u770bhttps://example.com\u3002\u8c22\u8c22", "(https://example.com\uff09", "https://example.com\uff0c\u548c",
		"\u201chttps://example.com\u201d", "https://example.com\u2014really", "https://example.com\u3002",
		"ann@example.com\u3001bob@example.com", "ann@b\u00fccher.example",
	] {
		_denied(_said(text)) == set()
	}
}
