package cmf.rules.data.ssrf_test

import data.cmf.rules.data.ssrf

_call(content) := {"kind": "tool_call", "content": content, "properties": {}}

_codes(view) := {effect.code | some effect in denials} if denials := ssrf.deny with input as view

_of(url) := _codes(_call(concat("", [`{"url":"`, url, `"}`])))

test_denied_inner_addresses if {
	every url in [
		"http://127.0.0.1:8080/x", "http://localhost/", "HTTPS://LOCALHOST./", "http://10.0.0.1", "http://[::1]/",
		"http://[::ffff:10.0.0.1]/", "http://x.127.0.0.1.nip.io/", "gopher://192.168.0.1:6379/_INFO",
		"http://ann@127.0.0.1/", "http:\\\\127.0.0.1/", "http://%6c%6f%63alhost/", "http://127\uff0e0.0.1/",
	] {
		_of(url) == {"data.ssrf.internal"}
	}
}

test_denied_metadata_services_wherever_they_stand if {
	_codes(_call(`{"command":"curl -s 169.254.169.254/latest/meta-data"}`)) == {"data.ssrf.metadata"}
	_codes(_call(`{"host":"Metadata.Google.Internal"}`)) == {"data.ssrf.metadata"}
}

test_denied_disguised_addresses if {
	_codes(_call(`{"command":"curl http://2852039166/x"}`)) == {"data.ssrf.disguised"}
	every url in ["http://2130706433/", "http://0x7f.1/", "http://0177.0.0.1/", "http://127.1/", "http://0"] {
		_of(url) == {"data.ssrf.disguised"}
	}
}

test_denied_misleading_users if {
	_of("https://bank.example@evil.example/") == {"data.ssrf.misleading"}
}

test_denied_references_and_pictures if {
	every kind in ["audio", "document", "image", "resource_ref", "video"] {
		_codes({"kind": kind, "content": "http://10.1.1.1/x", "properties": {}}) == {"data.ssrf.internal"}
	}
}

test_allowed_outer_addresses if {
	every url in [
		"https://example.com/", "http://8.8.8.8/", "https://10.example.com/", "file:///etc/hosts", "https://[2606:4700::1]/",
		"https://ann:pw@example.com/", "https://example.com/?next=http://localhost/",
	] {
		_of(url) == set()
	}
}

test_allowed_inner_addresses_in_a_text if {
	_codes(_call(`{"content":"Run the server and open http://localhost:8000/docs in a browser."}`)) == set()
}

test_allowed_when_listed if {
	settings := {"allowed_hosts": ["10.0.0.1"], "internal_hosts": [], "metadata_hosts": []}
	found := ssrf.deny with input as _call(`{"url":"http://10.0.0.1/"}`) with data.cmf.defaults.data.ssrf as settings
	found == set()
}

test_allowed_without_content if {
	_codes({"kind": "tool_call", "properties": {}}) == set()
}

test_denied_without_a_scheme if {
	every content in [
		`{"url":"127.0.0.1:9200/x"}`, `{"base_url":"localhost:8080"}`, `{"url":"//10.0.0.1/x"}`, `{"src":"//10.0.0.1/x"}`,
		`{"url":"http:10.0.0.1"}`, `{"webhook":"[::1]:80"}`, `{"url":"view-source:http://10.0.0.1/"}`,
	] {
		_codes(_call(content)) == {"data.ssrf.internal"}
	}
}

test_denied_names_that_only_networks_of_ones_own_have if {
	every url in ["http://db.internal/", "http://router.local", "http://1.c0a80001.rbndr.us", "http://x.home.arpa"] {
		_of(url) == {"data.ssrf.internal"}
	}
}

test_denied_escapes_that_no_host_has if {
	_of("http://localhost%00.example.com/") == {"data.ssrf.disguised"}
	_of("https://%D0%B0pple.example/") == {"data.ssrf.disguised"}
}

test_allowed_what_is_no_host if {
	every content in [
		`{"callback":"onDone"}`, `{"uri":"config.local"}`, `{"url":"report.pdf"}`, `{"endpoint":"/api/v1"}`,
		`{"url":"https://%s/api"}`, `{"link":"//cdn.example.com/x.js"}`, `{"url":"example.com/127.0.0.1"}`,
	] {
		_codes(_call(content)) == set()
	}
}
