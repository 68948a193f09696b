package cmf.rules.tools.tool_name_test

import data.cmf.rules.tools.tool_name

_codes(view) := {effect.code | some effect in tool_name.deny with input as view}

_call(name) := {"kind": "tool_call", "name": name, "uri": "tool://_/x", "properties": {"executed_by": "client"}}

test_denied_when_letters_look_like_others if {
	every name in ["dеlete", "ｓhell", "𝓈hell", "ⓢhell", "shéll", "ѕһеӏӏ", "ſhell", "drop_tаble", "⼀"] {
		_codes(_call(name)) == {"tools.tool-name"}
	}
}

test_denied_when_a_character_cannot_be_seen if {
	every name in ["shell\u200b_exec", "shell ", " shell", "shell\n", "shell\t", "shell\u0000", "shell\u00a0", ""] {
		_codes(_call(name)) == {"tools.tool-name"}
	}
}

test_denied_when_longer_than_128 if {
	_codes(_call(concat("", ["a" | some _ in numbers.range(1, 129)]))) == {"tools.tool-name"}
}

test_denied_when_the_name_is_missing if {
	_codes({"kind": "tool_call", "properties": {}}) == {"tools.tool-name"}
	_codes({"kind": "tool_definition", "properties": {}}) == {"tools.tool-name"}
}

test_denied_when_the_namespace_looks_like_another if {
	view := {"kind": "tool_definition", "name": "send", "properties": {"namespace": "mаil"}}
	_codes(view) == {"tools.tool-name.namespace"}
}

test_denied_when_chosen if {
	view := {"kind": "request", "name": "m", "properties": {"tool_choice": {"mode": "tool", "name": "shell "}}}
	_codes(view) == {"tools.tool-name.choice"}
}

test_denied_when_among_those_allowed if {
	view := {"kind": "request", "properties": {"tool_choice": {"mode": "auto", "allowed": ["send", "shell "]}}}
	_codes(view) == {"tools.tool-name.choice"}
}

test_allowed_when_legible if {
	every name in ["Delete_Database", "a", "mcp__mail--send", "fs.read", "a:b/c", "查询天气", "get_天气_v2", "날씨_조회"] {
		_codes(_call(name)) == set()
	}
}

test_allowed_up_to_128 if _codes(_call(concat("", ["a" | some _ in numbers.range(1, 128)]))) == set()

test_allowed_without_a_choice if {
	_codes({"kind": "request", "properties": {"tool_choice": {"mode": "auto", "allowed": ["a", "b"]}}}) == set()
	_codes({"kind": "tool_definition", "name": "send", "properties": {"namespace": "mail"}}) == set()
}
