package cmf.rules.data.path_traversal_test

import data.cmf.rules.data.path_traversal

_codes(view) := {effect.code | some effect in denials} if denials := path_traversal.deny with input as view

_of(path) := _codes({"kind": "tool_call", "content": concat("", [`{"path":"`, path, `"}`]), "properties": {}})

test_denied_encoded if {
	every path in [
		"%2e%2e/etc/passwd", "..%2fetc", "%2E./x", ".%2e/x", "..%252fetc", "%252e%252e%252f", "a%c0%ae%c0%ae/x",
		"..%5cwindows", "x%u002e%u002e/y", "%e0%80%ae/",
	] {
		_of(path) == {"data.path-traversal.encoded"}
	}
}

test_denied_climbing if {
	every path in [
		"uploads/../../etc/passwd", "/srv/data/../secret", "../../../../etc/shadow", `..\\..\\..\\..\\windows`,
		`C:\\data\\..\\secret`, "https://a.example/public/../admin", "./a/../b", "....//....//x/../y",
	] {
		_of(path) == {"data.path-traversal"}
	}
}

test_denied_reference if {
	_codes({"kind": "resource_ref", "content": "file:///srv/../etc/passwd"}) == {"data.path-traversal"}
}

test_denied_an_address_that_climbs if {
	view := {"kind": "tool_call", "content": "{}", "addresses": [{"kind": "value", "scheme": "https", "climbs": true}]}
	_codes(view) == {"data.path-traversal"}
}

test_allowed_paths if {
	every path in [
		"src/app.py", "../sibling/file.txt", "../../lib", "./x", "a..b/c", "100%25/x", "v1...v2", "/etc/hosts",
		"see a/../b for that, and c", "%2Fhome%2Fann", "file..",
	] {
		_of(path) == set()
	}
}

test_allowed_without_content if _codes({"kind": "tool_call", "properties": {}}) == set()

test_denied_in_signs_of_other_scripts_and_behind_a_nul if {
	every path in [
		"..\uff0f..\uff0fetc", "\uff0e\uff0e/etc", "..\u2215etc", "..%ef%bc%8fetc", "..%e2%88%95etc", "/etc/passwd%00.png",
		`/etc/passwd\u0000.png`,
	] {
		_of(path) == {"data.path-traversal.encoded"}
	}
}

test_denied_what_lenient_readers_take_for_steps if {
	_codes({"kind": "tool_call", "content": `{"body":"{\"path\":\"../../../../etc/x\"}"}`}) == {"data.path-traversal"}
	every path in ["....//....//etc", "..;/manager", "/srv/data/..", `a\\..`] {
		_of(path) == {"data.path-traversal"}
	}
}

test_allowed_code_that_imports_from_far_up if {
	every text in [`import a from \"../../../../lib/a\"`, `#include \"../../../../x.h\"`, `if (s[0] == '\\u0000')`] {
		_codes({"kind": "tool_call", "content": concat("", [`{"code":"`, text, `"}`])}) == set()
	}
}
