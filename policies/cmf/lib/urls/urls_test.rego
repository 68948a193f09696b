package cmf.lib.urls_test

import data.cmf.lib.urls

test_addresses_are_unread_where_none_are_told if {
	urls.unread with input as {"kind": "tool_call", "content": `{"url":"http://a.example/"}`}
	urls.unread with input as {"kind": "tool_call", "content": "{}", "addresses": [{"kind": "unread"}]}
	not urls.unread with input as {"kind": "tool_call", "content": `{"n":1}`}
	not urls.unread with input as {"kind": "tool_call", "content": `{"url":"http://a.example/"}`, "addresses": []}
	not urls.unread with input as {"kind": "tool_call"}
}

test_hosts_are_asked_where_a_client_would_go_there if {
	asked := urls.asked with input as {"addresses": [
		{"kind": "value", "scheme": "https", "host": "a"}, {"kind": "text", "scheme": "memo", "host": "b.example"},
		{"kind": "value", "host": "c.example"}, {"kind": "value", "scheme": "memo", "host": "notes"},
		{"kind": "bare", "host": "d.example"}, {"kind": "value", "scheme": "file"},
	]}
	{found.host | some found in asked} == {"a", "b.example", "c.example"}
}

test_internal_addresses if {
	every name in [
		"127.0.0.1", "10.1.2.3", "0.0.0.0", "100.64.0.1", "100.127.1.1", "169.254.169.254", "172.16.0.1", "172.31.9.9",
		"192.168.1.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "255.255.255.255",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fd00::1]", "[64:ff9b::7f00:1]",
		"[2002:7f00:1::]", "[2001::1]", "[2001:0:1::1]", "[0:0:0:0:0:0:0:1]",
	] {
		urls.is_internal(name)
	}
	every name in [
		"8.8.8.8", "11.0.0.1", "100.63.0.1", "100.128.0.1", "169.253.1.1", "172.15.0.1", "172.32.0.1", "192.169.1.1",
		"198.20.0.1", "223.255.255.255", "[2606:4700::1111]", "[2001:4860:4860::8888]", "[3fff::1]", "10.example",
		"127.0.0.1.example",
	] {
		not urls.is_internal(name)
	}
}

test_host_patterns if {
	urls.host_matches("a.example", ["a.example"])
	urls.host_matches("b.a.example", ["*.a.example"])
	urls.host_matches("x", ["*"])
	not urls.host_matches("a.example", ["*.a.example"])
	not urls.host_matches("evila.example", ["*.a.example", "a.example.evil"])
	not urls.host_matches("a.example", [])
}
