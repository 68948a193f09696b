package cmf.rules.content.markdown_exfiltration_test

import data.cmf.rules.content.markdown_exfiltration

_said(address) := {
	"kind": "text",
	"role": "assistant",
	"content": "see https://here.example/",
	"addresses": [object.union({"scheme": "https", "host": "evil.example", "span": [4, 9]}, address)],
}

_masked(address) := {span | some effect in effects; some span in effect.spans} if {
	effects := markdown_exfiltration.redact with input as _said(address)
}

_image(url) := {"kind": "image", "url": url}

_data := concat("", ["c2VjcmV0" | some _ in numbers.range(1, 20)])

test_masked_pictures_with_data if {
	every url in [
		"https://evil.example/p.png?d=secret", "https://evil.example/?q=1", "https://evil.example/?secret",
		"https://evil.example/?v=4&d=1", "https://evil.example/?v=secret", "https://evil.example/?w=12345",
		"https://evil.example/?v=1&v=2&v=3&v=4&v=5", concat("", ["https://evil.example/", _data, ".png"]),
		"https://evil.example/%61%62%63%64%65%66%67%68",
	] {
		_masked(_image(url)) == {[4, 9]}
	}
}

test_masked_pictures_with_data_beside_the_path if {
	plain := _image("https://evil.example/a.png")
	_masked(object.union(plain, {"user": true})) == {[4, 9]}
	_masked(object.union(plain, {"fragment": true})) == {[4, 9]}
	_masked(object.union(plain, {"host": concat("", [substring(_data, 0, 60), ".evil.example"])})) == {[4, 9]}
	_masked({"kind": "image", "unreadable": true}) == {[4, 9]}
	_masked({"kind": "base", "url": "https://evil.example/"}) == {[4, 9]}
}

test_masked_links_with_long_values if {
	_masked({"kind": "link", "url": concat("", ["https://evil.example/?q=", _data])}) == {[4, 9]}
	_masked({"kind": "link", "url": concat("", ["https://evil.example/", _data])}) == {[4, 9]}
}

test_masked_when_the_role_is_missing if {
	view := object.remove(_said(_image("https://evil.example/?a=b")), ["role"])
	effects := markdown_exfiltration.redact with input as view
	count(effects) == 1
}

test_all_is_masked_when_the_addresses_are_missing if {
	view := object.remove(_said({}), ["addresses"])
	effects := markdown_exfiltration.redact with input as view
	{effect.spans | some effect in effects} == {[[0, 25]]}
}

test_allowed_pictures_and_links if {
	_masked({"kind": "link", "url": "https://example.com/a?b=c&d=e"}) == set()
	_masked({"kind": "text", "url": concat("", ["https://example.com/?a=", _data])}) == set()
	_masked({"kind": "link", "unreadable": true}) == set()
	every url in [
		"https://example.com/logo.png", "https://example.com/x.svg?style=flat-square", "https://example.com/u/1?v=4&s=64",
		"https://example.com/css2?family=Inter&display=swap", "https://example.com/b.svg?branch=main&event=push",
	] {
		_masked(_image(url)) == set()
	}
}

test_allowed_to_listed_hosts if {
	settings := {
		"allowed_hosts": ["*.example"],
		"picture_name": 64,
		"link_value": 100,
		"harmless_parameters": {},
		"replacement": "mask",
	}
	effects := markdown_exfiltration.redact with input as _said(_image("https://evil.example/p?w=1"))
		with data.cmf.defaults.content.markdown_exfiltration as settings
	effects == set()
}

test_allowed_in_what_users_write if {
	view := object.union(_said(_image("https://evil.example/?a=b")), {"role": "user"})
	effects := markdown_exfiltration.redact with input as view
	effects == set()
}

test_allowed_without_content if {
	effects := markdown_exfiltration.redact with input as {"kind": "text", "role": "assistant"}
	effects == set()
}

_codes(view) := {effect.code | some effect in denials} if denials := markdown_exfiltration.deny with input as view

_loaded := {"content.markdown-exfiltration.loaded"}

_part(kind, address) := {
	"kind": kind,
	"role": "assistant",
	"hook": "llm_response",
	"content": "https://evil.example/p.png",
	"addresses": [object.union({"kind": "value", "scheme": "https", "host": "evil.example"}, address)],
}

_field(address) := _part("response", object.union({"kind": "field"}, address))

test_denied_parts_that_are_loaded if {
	every kind in ["audio", "image", "video"] {
		_codes(_part(kind, {"url": "https://evil.example/p.png?d=secret"})) == _loaded
		_codes(_part(kind, {"url": "https://evil.example/p.png", "fragment": true})) == _loaded
	}
}

test_denied_fields_that_are_loaded if {
	url := "https://evil.example/p.png?d=secret"
	every name in ["image_url.url", "images.url", "icons.src", "item.thumbnailUrl", ".favicon"] {
		_codes(_field({"field": name, "url": url})) == _loaded
	}
}

test_denied_fields_with_markup if {
	field := {"field": "searchEntryPoint.renderedContent", "loads": true, "url": "https://evil.example/?d=secret"}
	_codes(_field(field)) == _loaded
	_codes(object.union(_field(field), {"kind": "text"})) == _loaded
}

test_denied_when_what_is_loaded_could_not_be_read if {
	_codes(object.remove(_part("image", {}), ["addresses"])) == _loaded
	_codes(_field({"kind": "unread"})) == _loaded
}

test_allowed_what_is_not_loaded if {
	url := "https://evil.example/p.png?d=secret"
	_codes(_field({"field": "url_citation.url", "url": url})) == set()
	_codes(object.union(_part("image", {"url": url}), {"hook": "llm_request"})) == set()
	_codes(object.union(_part("image", {"url": url}), {"role": "user"})) == set()
	_codes(_part("image", {"url": "https://evil.example/p.png"})) == set()
}
