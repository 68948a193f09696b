package cmf.rules.hours.office_test

import data.cmf.rules.hours.office

_denied(uri, extensions) := count(hits) if {
	view := {"kind": "tool_call", "hook": "llm_response", "uri": uri, "extensions": extensions}
	hits := office.deny with input as view
		with data.cmf.defaults.hours.office as {
			"zone": "Europe/Berlin",
			"days": ["Monday", "Friday"],
			"from_hour": 8,
			"until_hour": 18,
			"any_time": ["tool://_/search"],
		}
}

_at(timestamp) := _denied("tool://_/pay", {"request": {"timestamp": timestamp}})

test_denied_at_night if {
	_at("2026-11-20T06:59:59Z") == 1 # 07:59 in Berlin, where it is winter
	_at("2026-07-20T16:00:00Z") == 1 # 18:00 there, in summer
}

test_denied_on_other_days if _at("2026-11-21T10:00:00Z") == 1

test_denied_when_the_time_is_missing if _denied("tool://_/pay", {}) == 1

test_allowed_in_office_hours if {
	_at("2026-11-20T07:00:00Z") == 0
	_at("2026-11-20T18:00:00+09:00") == 0
}

test_allowed_at_any_time if _denied("tool://_/search", {}) == 0
