package cmf.rules.tools.by_role_test

import data.cmf.rules.tools.by_role

_roles := {"delete_draft": ["editor"]}

_call(name, roles) := {"name": name, "extensions": {"security": {"subject": {"roles": roles}}}}

test_denied_without_the_role if {
	count(by_role.deny) == 1 with input as _call("delete_draft", ["reader"]) with data.cmf.defaults.tools.by_role as _roles
}

test_denied_without_a_subject if {
	count(by_role.deny) == 1 with input as {"name": "delete_draft"} with data.cmf.defaults.tools.by_role as _roles
}

test_allowed_with_the_role if {
	count(by_role.deny) == 0 with input as _call("delete_draft", ["editor"]) with data.cmf.defaults.tools.by_role as _roles
}

test_allowed_for_tools_that_are_not_listed if {
	count(by_role.deny) == 0 with input as _call("search", []) with data.cmf.defaults.tools.by_role as _roles
}
