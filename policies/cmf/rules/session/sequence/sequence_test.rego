package cmf.rules.session.sequence_test

import data.cmf.rules.session.sequence

_settings := {"steps": [{"before": "tool://bank/pay*", "first": "tool://bank/check_balance"}]}

_codes(view) := {effect.code | some effect in denials} if {
	denials := sequence.deny with input as view with data.cmf.defaults.session.sequence as _settings
}

_pay(session) := {"kind": "tool_call", "hook": "llm_response", "uri": "tool://bank/pay_bill", "session": session}

test_denied_before_the_first_step if {
	_codes(_pay({"counters": {}})) == {"session.sequence"}
	_codes(_pay({"counters": {"calls:tool://bank/pay_bill": 1}})) == {"session.sequence"}
}

test_denied_when_the_session_is_missing if {
	_codes(_pay({})) == {"session.sequence"}
	_codes({"kind": "tool_call", "uri": "tool://bank/pay_bill"}) == {"session.sequence"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "session": {"counters": {}}}) == {"session.sequence"}
}

test_allowed_after_the_first_step if _codes(_pay({"counters": {"calls:tool://bank/check_balance": 1}})) == set()

test_allowed_in_history if {
	_codes(object.union(_pay({"counters": {}}), {"hook": "llm_request"})) == set()
}

test_allowed_for_other_tools if {
	_codes({"kind": "tool_call", "uri": "tool://bank/check_balance", "session": {"counters": {}}}) == set()
}

test_allowed_without_steps if {
	found := sequence.deny with input as _pay({"counters": {}})
	found == set()
}
