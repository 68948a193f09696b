package cmf.rules.spending.approve_payments_test

import data.cmf.rules.spending.approve_payments

_asked(uri, arguments) := count(hits) if {
	hits := approve_payments.require_approval with input as {"kind": "tool_call", "uri": uri, "arguments": arguments}
		with data.cmf.defaults.spending.approve_payments as {
			"tools": ["tool://_/pay"],
			"amount": "amount",
			"free_up_to": 100,
		}
}

test_asks_above_the_limit if _asked("tool://_/pay", {"amount": 100.01}) == 1

test_asks_when_the_amount_cannot_be_read if {
	_asked("tool://_/pay", {}) == 1
	_asked("tool://_/pay", {"amount": "12"}) == 1
	_asked("tool://_/pay", {"amount": -1}) == 1
}

test_allowed_up_to_the_limit_and_for_other_tools if {
	_asked("tool://_/pay", {"amount": 100}) == 0
	_asked("tool://_/search", {"amount": 1000}) == 0
}
