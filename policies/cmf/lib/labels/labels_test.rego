package cmf.lib.labels_test

import data.cmf.lib.labels

test_in_force_are_those_of_message_and_session if {
	labels.in_force == {"a", "b"} with input as {
		"extensions": {"security": {"labels": ["a"]}},
		"session": {"labels": ["b"]},
	}
	labels.in_force == set() with input as {"extensions": {"security": {"labels": []}}}
}

test_undefined_when_nobody_granted_them if {
	not labels.in_force with input as {"extensions": {}}
	not labels.in_force with input as {"extensions": {"security": {}}, "session": {}}
}
