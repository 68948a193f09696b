package cmf.rules.customers.seen_test

import data.cmf.rules.customers.seen

_labels(view) := {hit.label | some hit in hits} if {
	hits := seen.label with input as view
		with data.cmf.defaults.customers.sources as ["find_customer"]
		with data.cmf.defaults.customers.pattern as `\bC-[0-9]{6}\b`
}

test_labels_results_of_the_database if {
	_labels({"kind": "tool_result", "name": "find_customer", "content": "nobody"}) == {"customer"}
}

test_labels_a_customer_number if _labels({"kind": "text", "content": "what did C-104711 buy?"}) == {"customer"}

test_allowed_for_other_things if {
	_labels({"kind": "text", "content": "what is a C-1047110?"}) == set()
	_labels({"kind": "tool_result", "name": "calculate", "content": "2"}) == set()
}

test_allowed_when_the_content_is_missing if _labels({"kind": "resource"}) == set()
