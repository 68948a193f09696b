package cmf.rules.mail.per_session_test

import data.cmf.rules.mail.per_session

_mail := {"kind": "tool_call", "hook": "llm_response", "uri": "tool://_/send_mail"}

_denied(view) := count(hits) if {
	hits := per_session.deny with input as view
		with data.cmf.defaults.mail.per_session as {"tools": ["tool://_/send_mail", "tool://_/reply"], "at_most": 3}
}

_after(counters) := object.union(_mail, {"session": {"counters": counters}})

test_denied_at_the_limit_of_all_together if {
	_denied(_after({"calls:tool://_/send_mail": 2, "calls:tool://_/reply": 1})) == 1
}

test_denied_when_the_session_is_missing if _denied(_mail) == 1

test_allowed_below_the_limit if {
	_denied(_after({})) == 0
	_denied(_after({"calls:tool://_/send_mail": 2, "calls:tool://_/search": 9})) == 0
}

test_allowed_in_the_history if _denied(object.union(_mail, {"hook": "llm_request"})) == 0
