package cmf.rules.session.call_limit_test

import data.cmf.rules.session.call_limit

_settings := {"at_most": {"tool://mail/send": 2, "tool://mail/*": 5, "tool://shell/*": 0}}

_codes(view) := {effect.code | some effect in denials} if {
	denials := call_limit.deny with input as view with data.cmf.defaults.session.call_limit as _settings
}

_send(counters) := {
	"kind": "tool_call",
	"hook": "llm_response",
	"uri": "tool://mail/send",
	"session": {"counters": counters},
}

test_denied_at_the_limit if {
	_codes(_send({"calls:tool://mail/send": 2})) == {"session.call-limit"}
	_codes(_send({"calls:tool://mail/read": 4, "calls:tool://mail/send": 1})) == {"session.call-limit"}
	_codes(object.union(_send({}), {"uri": "tool://shell/run"})) == {"session.call-limit"}
}

test_denied_when_the_session_is_missing if {
	_codes({"kind": "tool_call", "uri": "tool://mail/send"}) == {"session.call-limit.unknown"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "session": {"counters": {}}}) == {"session.call-limit"}
}

test_allowed_below_the_limit if {
	_codes(_send({})) == set()
	_codes(_send({"calls:tool://mail/send": 1, "calls:tool://web/get": 99})) == set()
}

test_allowed_in_history if {
	_codes(object.union(_send({"calls:tool://mail/send": 2}), {"hook": "llm_request"})) == set()
}

test_allowed_without_limits if {
	found := call_limit.deny with input as {"kind": "tool_call", "uri": "tool://mail/send"}
	found == set()
}
