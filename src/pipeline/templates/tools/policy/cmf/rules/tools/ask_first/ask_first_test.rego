package cmf.rules.tools.ask_first_test

import data.cmf.rules.tools.ask_first

_asked(view) := asked if {
	asked := ask_first.require_approval with input as view
		with data.cmf.defaults.tools.ask_first.beginnings as ["delete_"]
}

test_asks_before_a_deletion if {
	count(_asked({"name": "delete_draft"})) == 1
}

test_allowed_otherwise_and_without_a_name if {
	count(_asked({"name": "undelete_draft"})) == 0
	count(_asked({})) == 0
}
