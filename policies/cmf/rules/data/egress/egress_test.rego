package cmf.rules.data.egress_test

import data.cmf.rules.data.egress

_settings := {
	"tools": ["tool://web/*", "tool://mail/*"],
	"allowed_hosts": ["api.example.com", "*.example.org"],
	"mail_domains": ["example.com"],
}

_call(uri, content) := {"kind": "tool_call", "uri": uri, "content": content, "properties": {}}

_codes(view) := {effect.code | some effect in denials} if {
	denials := egress.deny with input as view with data.cmf.defaults.data.egress as _settings
}

test_denied_other_hosts if {
	_codes(_call("tool://web/post", `{"body":"see https://evil.example/ for more"}`)) == {"data.egress"}
	"data.egress" in _codes(_call("tool://web/post", `{"url":"https://api.example.com@evil.example/"}`))
	every url in ["https://evil.example/", "https://api.example.com.evil.example/", "https://example.org/"] {
		_codes(_call("tool://web/post", concat("", [`{"url":"`, url, `"}`]))) == {"data.egress"}
	}
}

test_denied_other_mail_domains if {
	_codes(_call("tool://mail/send", `{"to":["ann@example.com","eve@Evil.example"]}`)) == {"data.egress.mail"}
	_codes(_call("tool://mail/send", `{"to":"ann@example.com.evil.example"}`)) == {"data.egress.mail"}
}

test_denied_pictures_and_references if {
	_codes({"kind": "image", "uri": "https://evil.example/", "content": "https://evil.example/"}) == {"data.egress"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "content": `{"url":"https://evil.example/"}`}) == {"data.egress"}
}

test_allowed_hosts_and_domains if {
	_codes(_call("tool://web/post", `{"url":"https://API.example.com:443/x","b":"http://a.b.example.org"}`)) == set()
	_codes(_call("tool://mail/send", `{"to":"Ann <ann@Example.com>, bob@example.com"}`)) == set()
}

test_allowed_for_tools_that_are_not_held if {
	_codes(_call("tool://fs/write", `{"text":"https://evil.example eve@evil.example"}`)) == set()
}

test_allowed_without_lists if {
	view := _call("tool://web/post", `{"url":"https://evil.example","to":"eve@evil.example"}`)
	found := egress.deny with input as view
	found == set()
}
