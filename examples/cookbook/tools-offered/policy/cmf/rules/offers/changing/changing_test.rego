package cmf.rules.offers.changing_test

import data.cmf.rules.offers.changing

_stripped(uri, extensions) := count(hits) if {
	hits := changing.strip_tool with input as {"kind": "tool_definition", "uri": uri, "extensions": extensions}
		with data.cmf.defaults.offers as {"changing": ["tool://*/delete_*"], "roles": ["editor"]}
}

_as(roles) := {"security": {"subject": {"roles": roles}}}

test_strips_for_guests if _stripped("tool://files/delete_page", _as(["guest"])) == 1

test_strips_when_the_subject_is_missing if _stripped("tool://files/delete_page", {}) == 1

test_allowed_for_editors_and_for_reading if {
	_stripped("tool://files/delete_page", _as(["guest", "editor"])) == 0
	_stripped("tool://files/read_page", _as(["guest"])) == 0
}
