package cmf.rules.egress.hosts_test

import data.cmf.rules.egress.hosts

_denied(arguments) := count(hits) if {
	hits := hosts.deny with input as {"kind": "tool_call", "uri": "tool://_/fetch", "arguments": arguments}
		with data.cmf.defaults.egress.hosts as {
			"tools": ["tool://_/fetch"],
			"argument": "url",
			"hosts": ["example.org", "*.example.org"],
		}
}

test_denied_for_inner_addresses if {
	_denied({"url": "http://169.254.169.254/latest/meta-data/"}) == 1
	_denied({"url": "https://localhost/"}) == 1
	_denied({"url": "https://0x7f000001/"}) == 1
	_denied({"url": "https://[::1]/"}) == 1
}

test_denied_for_disguises if {
	_denied({"url": "https://example.org@evil.example/"}) == 1
	_denied({"url": "https://example.org.evil.example/"}) == 1
	_denied({"url": "https://evilexample.org/"}) == 1
	_denied({"url": "https://example.org:8443/"}) == 1
	_denied({"url": "file:///etc/passwd"}) == 1
	_denied({"url": "https://example.org\\@evil.example/"}) == 1
}

test_denied_when_the_url_is_missing if _denied({}) == 1

test_allowed_when_listed if {
	_denied({"url": "https://example.org"}) == 0
	_denied({"url": "https://docs.example.org:443/a?b=c#d"}) == 0
}
