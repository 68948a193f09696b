package cmf.rules.request.tools_offered_test

import data.cmf.rules.request.tools_offered

_codes(view) := {effect.code | some effect in stripped} if {
	stripped := tools_offered.strip_tool with input as view
		with data.cmf.defaults.request.tools_offered as {"allowed": ["tool://mail/*"]}
}

test_stripped_when_not_listed if {
	_codes({"kind": "tool_definition", "uri": "tool://shell/run"}) == {"request.tools-offered"}
}

test_stripped_when_the_uri_is_missing if _codes({"kind": "tool_definition"}) == {"request.tools-offered"}

test_allowed_when_listed if _codes({"kind": "tool_definition", "uri": "tool://mail/send"}) == set()

test_allowed_as_shipped if {
	found := tools_offered.strip_tool with input as {"kind": "tool_definition", "uri": "tool://shell/run"}
	found == set()
}
