package cmf.rules.queries.row_limit_test

import data.cmf.rules.queries.row_limit

_tools := {"tool://_/query": {"argument": "limit", "at_most": 100}}

_values(arguments) := {[hit.pointer, hit.value] | some hit in hits} if {
	hits := row_limit.rewrite with input as {"kind": "tool_call", "uri": "tool://_/query", "arguments": arguments}
		with data.cmf.defaults.queries.row_limit.tools as _tools
}

_denied(uri, arguments) := count(hits) if {
	hits := row_limit.deny with input as {"kind": "tool_call", "uri": uri, "arguments": arguments}
		with data.cmf.defaults.queries.row_limit.tools as _tools
}

test_rewrites_what_is_too_much if _values({"limit": 1000000}) == {["/arguments/limit", 100]}

test_adds_the_bound_when_it_is_missing if {
	_values({}) == {["/arguments/limit", 100]}
	_denied("tool://_/query", {}) == 0
}

test_denied_when_it_is_no_number if _denied("tool://_/query", {"limit": "all"}) == 1

test_allowed_within_the_bound_and_for_other_tools if {
	_values({"limit": 100}) == set()
	_denied("tool://_/query", {"limit": 100}) == 0
	_denied("tool://_/search", {}) == 0
}
