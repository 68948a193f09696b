package cmf.rules.provenance.asked_for_test

import data.cmf.rules.provenance.asked_for

_before := {"path": "", "type": "before", "use": "other", "sources": [{"kind": "resource", "trust": "untrusted"}]}

_call(matches) := {
	"type": "call",
	"profile": "known",
	"sink": true,
	"askable": true,
	"sources": [{"message": 0, "match": match} | some match in matches],
}

_asked(origins) := asked if asked := asked_for.require_approval with input as {"origins": origins}

test_asks_when_nobody_asked if {
	count(_asked([_call([]), _before])) == 1
}

test_denied_where_the_operator_says_so if {
	denied := asked_for.deny with input as {"origins": [_call([]), _before]}
		with data.cmf.defaults.provenance.asked_for as {"effect": "deny", "matches": ["asked"]}
	count(denied) == 1
}

test_asks_about_handing_over_where_the_operator_does_not_take_it if {
	asked := asked_for.require_approval with input as {"origins": [_call(["delegated"]), _before]}
		with data.cmf.defaults.provenance.asked_for as {"effect": "require_approval", "matches": ["asked"]}
	count(asked) == 1
}

test_allowed_what_was_asked_for if {
	count(_asked([_call(["asked"]), _before])) == 0
	count(_asked([_call(["delegated"]), _before])) == 0
}

test_allowed_before_others_were_read_and_where_asking_is_not_described if {
	count(_asked([_call([])])) == 0
	count(_asked([object.union(_call([]), {"askable": false}), _before])) == 0
	count(_asked([object.union(_call([]), {"sink": false}), _before])) == 0
}

test_not_hit_with_the_origins_missing if {
	count(asked_for.require_approval) == 0 with input as {"kind": "tool_call"}
}
