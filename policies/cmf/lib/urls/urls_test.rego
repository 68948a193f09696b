package cmf.lib.urls_test

import data.cmf.lib.urls

_call(content) := {"kind": "tool_call", "content": content, "properties": {}}

_hosts(view) := {found.host | some found in those} if those := urls.in_content with input as view

test_hosts_are_read_as_a_lenient_client_would if {
	every authority, expected in {
		"Example.COM": "example.com",
		"example.com.": "example.com",
		"example.com:8443": "example.com",
		"ann:pw@example.com:1": "example.com",
		"a@b@example.com": "example.com",
		"%31%32%37.0.0.1": "127.0.0.1",
		"127\uff0e0\u30020\uff61\uff11": "127.0.0.1",
		"\u2460\u2461\u2466.0.0.1": "127.0.0.1",
		"[::1]:80": "[::1]",
		"100%": "100%",
		"%zz.example": "%zz.example",
	} {
		urls.host(authority) == expected
	}
}

test_urls_are_found_in_arguments_and_in_text if {
	_hosts(_call(`{"url":"https://a.example/x?y","b":"see HTTP://b.example, or ws:\\\\c.example"}`)) == {
		"a.example",
		"b.example",
		"c.example",
	}
	_hosts(_call(`{"body":"{\"url\":\"http:\\/\\/d.example\\/x\"}"}`)) == {"d.example"}
}

test_a_value_that_is_a_url_is_told_from_one_with_a_url_in_it if {
	found := urls.in_content with input as _call(`{"a":"https://a.example/x","b":"at https://b.example/y"}`)
	{one.host | some one in found; one.whole} == {"a.example"}
	inner := urls.in_content with input as _call(`{"body":"{\"url\":\"http://d.example/x\"}"}`)
	{one.host | some one in inner; one.whole} == {"d.example"}
	reference := urls.in_content with input as {"kind": "resource_ref", "content": "http://a.example"}
	{one.host | some one in reference; one.whole} == {"a.example"}
}

test_nothing_without_content if {
	_hosts({"kind": "tool_call", "properties": {}}) == set()
	not urls.misleading with input as {"kind": "tool_call", "properties": {}}
}

test_a_host_before_the_user_mark_misleads if {
	urls.misleading with input as _call(`{"u":"https://bank.example@evil.example/"}`)
	urls.misleading with input as _call(`{"u":"https://evil.example\\@bank.example/"}`)
	not urls.misleading with input as _call(`{"u":"https://ann:pw@bank.example/","v":"a.b@c.example"}`)
	not urls.misleading with input as _call(`{"u":"https://bank.example/@ann/x.y@z"}`)
}

test_disguised_addresses if {
	every name in ["2130706433", "0x7f000001", "0x7f.1", "127.1", "0177.0.0.1", "127.0.0.01", "0", "010.0.0.1"] {
		urls.is_disguised(name)
	}
	every name in ["127.0.0.1", "8.8.8.8", "example.com", "1password.com", "0x.org", "1.2.3.4.example", "[::1]"] {
		not urls.is_disguised(name)
	}
}

test_internal_addresses if {
	every name in [
		"127.0.0.1", "10.1.2.3", "0.0.0.0", "100.64.0.1", "100.127.1.1", "169.254.169.254", "172.16.0.1", "172.31.9.9",
		"192.168.1.1", "192.0.0.8", "198.18.0.1", "224.0.0.1", "255.255.255.255",
		"[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[fe80::1%eth0]", "[fd00::1]", "[64:ff9b::7f00:1]",
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
