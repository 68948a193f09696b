package cmf.rules.customers.inside_test

import data.cmf.rules.customers.inside

_denied(uri, extensions) := count(hits) if {
	hits := inside.deny with input as {"kind": "tool_call", "uri": uri, "extensions": extensions}
		with data.cmf.defaults.customers.outside as ["tool://_/fetch", "tool://web/*"]
}

_with(labels) := {"security": {"labels": labels}}

test_denied_with_the_label if {
	_denied("tool://_/fetch", _with(["customer"])) == 1
	_denied("tool://web/search", _with(["customer", "other"])) == 1
}

test_denied_when_the_labels_are_missing if _denied("tool://_/fetch", {}) == 1

test_allowed_without_the_label_and_inside if {
	_denied("tool://_/fetch", _with(["other"])) == 0
	_denied("tool://_/find_customer", _with(["customer"])) == 0
}
