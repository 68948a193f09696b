package cmf.lib.calls_test

import data.cmf.lib.calls

_view := {"session": {"counters": {"calls:tool://mail/send": 2, "calls:tool://mail/read": 1, "cost": 9}}}

test_calls_are_summed_over_what_matches if {
	calls.made("tool://mail/send") == 2 with input as _view
	calls.made("tool://mail/*") == 3 with input as _view
	calls.made("tool://web/*") == 0 with input as _view
}

test_nothing_is_known_without_counters if {
	not calls.made("tool://mail/send") with input as {"session": {}}
	not calls.made("tool://mail/send") with input as {}
}

test_history_is_not_new if {
	calls.new with input as {"hook": "llm_response"}
	calls.new with input as {"hook": "tool_pre"}
	calls.new with input as {}
	not calls.new with input as {"hook": "llm_request"}
}
