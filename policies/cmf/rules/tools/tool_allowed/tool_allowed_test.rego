package cmf.rules.tools.tool_allowed_test

import data.cmf.rules.tools.tool_allowed

_settings := {"allowed": ["tool://mail/*", "tool://*/search"], "denied": ["tool://**/delete_*"]}

_codes(view) := {effect.code | some effect in denials} if {
	denials := tool_allowed.deny with input as view with data.cmf.defaults.tools.tool_allowed as _settings
}

test_denied_when_not_listed if {
	_codes({"kind": "tool_call", "uri": "tool://files/read"}) == {"tools.tool-allowed"}
}

test_denied_when_listed_as_denied if {
	_codes({"kind": "tool_call", "uri": "tool://mail/delete_all"}) == {"tools.tool-allowed"}
}

test_denied_in_whatever_case if {
	_codes({"kind": "tool_call", "uri": "tool://mail/Delete_all"}) == {"tools.tool-allowed"}
}

test_denied_when_only_the_case_differs_from_what_is_allowed if {
	_codes({"kind": "tool_call", "uri": "tool://Mail/send"}) == {"tools.tool-allowed"}
}

test_denied_when_the_uri_is_missing if _codes({"kind": "tool_call"}) == {"tools.tool-allowed"}

test_allowed_when_listed if {
	_codes({"kind": "tool_call", "uri": "tool://mail/send"}) == set()
	_codes({"kind": "tool_call", "uri": "tool://web/search"}) == set()
}

test_allowed_as_shipped if {
	found := tool_allowed.deny with input as {"kind": "tool_call", "uri": "tool://files/read"}
	found == set()
}
