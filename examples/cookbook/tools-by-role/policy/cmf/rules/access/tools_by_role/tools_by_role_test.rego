package cmf.rules.access.tools_by_role_test

import data.cmf.rules.access.tools_by_role

_call(uri, roles) := {"kind": "tool_call", "uri": uri, "extensions": {"security": {"subject": {"roles": roles}}}}

_denied(view) := count(hits) if {
	hits := tools_by_role.deny with input as view
		with data.cmf.defaults.access.tools_by_role as {"reader": ["tool://files/read_*"], "editor": ["tool://files/*"]}
}

test_denied_without_the_role if _denied(_call("tool://files/delete", ["reader"])) == 1

test_denied_when_the_subject_is_missing if _denied({"kind": "tool_call", "uri": "tool://files/delete"}) == 1

test_denied_for_a_tool_that_nobody_listed if _denied(_call("tool://_/format_disk", ["reader", "editor"])) == 1

test_allowed_with_the_role if {
	_denied(_call("tool://files/read_page", ["reader"])) == 0
	_denied(_call("tool://files/delete", ["reader", "editor"])) == 0
}
