package cmf.rules.data.egress_test

import data.cmf.rules.data.egress

_settings := {
	"tools": ["tool://web/*", "tool://mail/*"],
	"allowed_hosts": ["api.example.com", "*.example.org"],
	"mail_domains": ["example.com"],
}

_call(uri, content) := {"kind": "tool_call", "uri": uri, "content": content, "addresses": [], "properties": {}}

_to(host) := object.union(
	_call("tool://web/post", "{}"),
	{"addresses": [{"kind": "text", "scheme": "https", "host": host}]},
)

_codes(view) := {effect.code | some effect in denials} if {
	denials := egress.deny with input as view with data.cmf.defaults.data.egress as _settings
}

test_denied_other_hosts if {
	every host in ["evil.example", "api.example.com.evil.example", "example.org", "localhost"] {
		_codes(_to(host)) == {"data.egress"}
	}
	unreadable := {"addresses": [{"kind": "value", "scheme": "http", "unreadable": true}]}
	_codes(object.union(_call("tool://web/post", "{}"), unreadable)) == {"data.egress"}
}

test_denied_when_the_addresses_are_missing if {
	view := object.remove(_call("tool://web/post", `{"url":"https://api.example.com/"}`), ["addresses"])
	_codes(view) == {"data.egress.unread"}
}

test_denied_other_mail_domains if {
	_codes(_call("tool://mail/send", `{"to":["ann@example.com","eve@Evil.example"]}`)) == {"data.egress.mail"}
	_codes(_call("tool://mail/send", `{"to":"ann@example.com.evil.example"}`)) == {"data.egress.mail"}
}

test_denied_pictures_and_references if {
	found := [{"kind": "value", "scheme": "https", "host": "evil.example"}]
	_codes({"kind": "image", "uri": "https://evil.example/", "content": "", "addresses": found}) == {"data.egress"}
}

test_denied_when_the_uri_is_missing if {
	_codes(object.remove(_to("evil.example"), ["uri"])) == {"data.egress"}
}

test_allowed_hosts_and_domains if {
	_codes(_call("tool://mail/send", `{"to":"Ann <ann@Example.com>, bob@example.com"}`)) == set()
	every host in ["api.example.com", "a.b.example.org"] {
		_codes(_to(host)) == set()
	}
}

test_allowed_for_tools_that_are_not_held if {
	view := object.union(_to("evil.example"), {"uri": "tool://fs/write", "content": `{"text":"eve@evil.example"}`})
	_codes(view) == set()
}

test_allowed_without_lists if {
	found := egress.deny with input as object.union(_to("evil.example"), {"content": `{"to":"eve@evil.example"}`})
	found == set()
}
