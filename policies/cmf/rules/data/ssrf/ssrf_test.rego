package cmf.rules.data.ssrf_test

import data.cmf.rules.data.ssrf

_call(content, addresses) := {"kind": "tool_call", "content": content, "addresses": addresses, "properties": {}}

_codes(view) := {effect.code | some effect in denials} if denials := ssrf.deny with input as view

_of(address) := _codes(_call("{}", [address]))

_value(host) := {"kind": "value", "scheme": "http", "host": host, "url": concat("", ["http://", host, "/"])}

test_denied_inner_addresses if {
	every host in [
		"127.0.0.1", "localhost", "10.0.0.1", "[::1]", "[::ffff:a00:1]", "[fec0::1]", "x.127.0.0.1.nip.io", "db.internal",
		"metadata", "metadata.goog", "instance-data", "kubernetes", "kubernetes.default",
	] {
		_of(_value(host)) == {"data.ssrf.internal"}
		_of(object.union(_value(host), {"scheme": "redis"})) == {"data.ssrf.internal"}
	}
}

test_denied_metadata_services_wherever_they_stand if {
	_codes(_call(`{"command":"curl -s 169.254.169.254/latest/meta-data"}`, [])) == {"data.ssrf.metadata"}
	_codes(_call(`{"host":"Metadata.Google.Internal"}`, [])) == {"data.ssrf.metadata"}
	_codes(_call(`{"command":"curl http://168.63.129.16/machine?comp=goalstate"}`, [])) == {"data.ssrf.metadata"}
	_of({"kind": "text", "scheme": "http", "host": "169.254.169.254"}) == {"data.ssrf.metadata"}
	_of({"kind": "text", "scheme": "http", "host": "[fd00:ec2::254]"}) == {"data.ssrf.metadata"}
}

test_denied_disguised_addresses if {
	_of(object.union(_value("127.0.0.1"), {"disguised": true})) == {"data.ssrf.disguised"}
	_of({"kind": "text", "scheme": "http", "host": "8.8.8.8", "disguised": true}) == {"data.ssrf.disguised"}
	_of({"kind": "value", "scheme": "http", "unreadable": true}) == {"data.ssrf.disguised"}
}

test_denied_misleading_users if {
	_of(object.union(_value("evil.example"), {"misleading": true})) == {"data.ssrf.misleading"}
}

test_denied_references_and_pictures if {
	every kind in ["audio", "document", "image", "resource_ref", "video"] {
		view := {"kind": kind, "content": "http://10.1.1.1/x", "addresses": [_value("10.1.1.1")], "properties": {}}
		_codes(view) == {"data.ssrf.internal"}
	}
}

test_denied_without_a_scheme if {
	every host in ["127.0.0.1", "localhost", "[::1]"] {
		_of({"kind": "bare", "host": host}) == {"data.ssrf.internal"}
	}
}

test_denied_when_the_addresses_are_missing if {
	_codes({"kind": "tool_call", "content": `{"url":"https://example.com/"}`}) == {"data.ssrf.unread"}
	_of({"kind": "unread"}) == {"data.ssrf.unread"}
}

test_allowed_outer_addresses if {
	_of({"kind": "value", "scheme": "file", "url": "file:///etc/hosts"}) == set()
	_of({"kind": "bare", "host": "config.local"}) == set()
	every host in ["example.com", "8.8.8.8", "10.example.com", "[2606:4700::1]"] {
		_of(_value(host)) == set()
	}
}

test_allowed_inner_addresses_in_a_text if _of({"kind": "text", "scheme": "http", "host": "localhost"}) == set()

test_allowed_when_listed if {
	settings := {"allowed_hosts": ["10.0.0.1"], "internal_hosts": [], "metadata_hosts": []}
	found := ssrf.deny with input as _call("{}", [_value("10.0.0.1")]) with data.cmf.defaults.data.ssrf as settings
	found == set()
}

test_allowed_without_content if _codes({"kind": "tool_call", "properties": {}}) == set()

_field(kind, host) := {
	"kind": kind,
	"properties": {"extra": {"mcp": {}}},
	"addresses": [object.union(_value(host), {"kind": "field", "format": "mcp", "field": "icons.src"})],
}

test_denied_in_fields_of_mcp if {
	every kind in ["request", "resource", "response", "tool_definition"] {
		_codes(_field(kind, "10.0.0.1")) == {"data.ssrf.internal"}
		"data.ssrf.metadata" in _codes(_field(kind, "169.254.169.254"))
		_codes(object.remove(_field(kind, "10.0.0.1"), ["addresses"])) == {"data.ssrf.unread"}
	}
}

test_allowed_beside_fields_of_mcp if {
	_codes(_field("response", "example.com")) == set()
	_codes({"kind": "tool_definition", "content": "See http://169.254.169.254/", "addresses": []}) == set()
	_codes(object.union(_field("response", "10.0.0.1"), {"addresses": [_of_chat]})) == set()
}

_of_chat := object.union(_value("10.0.0.1"), {"kind": "field", "format": "openai_chat", "field": "images.url"})
