package cmf.rules.sql.read_only_test

import data.cmf.rules.sql.read_only

_denied(arguments) := count(hits) if {
	hits := read_only.deny with input as {"kind": "tool_call", "uri": "tool://_/query", "arguments": arguments}
		with data.cmf.defaults.sql.read_only as {
			"tools": ["tool://_/query"],
			"argument": "sql",
			"writing": ["delete", "into", "update"],
		}
}

test_denied_for_writes if {
	_denied({"sql": "DELETE FROM customers"}) == 1
	_denied({"sql": "select 1; delete from customers"}) == 1
	_denied({"sql": "select * into copy_of from customers"}) == 1
	_denied({"sql": "with gone as (delete from customers returning *) select * from gone"}) == 1
}

test_denied_for_what_hides if {
	_denied({"sql": "select 1 -- delete"}) == 1
	_denied({"sql": "select 1 /* */"}) == 1
	_denied({"sql": `select '\'; delete from customers; --'`}) == 1
}

test_denied_when_the_query_is_missing if _denied({}) == 1

test_allowed_for_reading if {
	_denied({"sql": "select name, updated_at from customers where name = 'Update Ltd';"}) == 0
	_denied({"sql": "\n  SELECT count(*)\n  FROM customers"}) == 0
}
