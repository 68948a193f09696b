package cmf.rules.session.budget_test

import data.cmf.rules.session.budget

_settings := {"limits": {"cost_usd": 1.5, "tokens": 1000}}

_codes(view) := {effect.code | some effect in denials} if {
	denials := budget.deny with input as view with data.cmf.defaults.session.budget as _settings
}

_request(counters) := {"kind": "request", "hook": "llm_request", "session": {"counters": counters}}

test_denied_at_the_limit if {
	_codes(_request({"cost_usd": 1.5})) == {"session.budget"}
	_codes(_request({"tokens": 4000})) == {"session.budget"}
	_codes({"kind": "tool_call", "hook": "tool_pre", "session": {"counters": {"tokens": 1000}}}) == {"session.budget"}
}

test_denied_when_the_session_is_missing if _codes({"kind": "request"}) == {"session.budget.unknown"}

test_allowed_below_the_limit if {
	_codes(_request({})) == set()
	_codes(_request({"cost_usd": 1.49, "tokens": 999, "other": 5000})) == set()
}

test_allowed_in_history if {
	_codes({"kind": "tool_call", "hook": "llm_request", "session": {"counters": {"tokens": 4000}}}) == set()
}

test_allowed_without_limits if {
	found := budget.deny with input as {"kind": "request"}
	found == set()
}
