package cmf.rules.provenance.irreversible_test

import data.cmf.rules.provenance.irreversible

_before := {"path": "", "type": "before", "use": "other", "sources": [{"kind": "resource", "trust": "untrusted"}]}

_call(matches) := {
	"type": "call",
	"profile": "known",
	"sink": true,
	"irreversible": true,
	"askable": true,
	"sources": [{"message": 0, "match": match} | some match in matches],
}

_asked(origins) := asked if asked := irreversible.require_approval with input as {"origins": origins}

test_asks_when_the_user_did_not_say_so if {
	count(_asked([_call([]), _before])) == 1
	count(_asked([_call(["delegated"]), _before])) == 1
	count(_asked([object.union(_call([]), {"askable": false}), _before])) == 1
}

test_always_asks_where_the_operator_says_so if {
	asked := irreversible.require_approval with input as {"origins": [_call(["asked"]), _before]}
		with data.cmf.defaults.provenance.irreversible as {"unless_asked": false}
	count(asked) == 1
}

test_allowed_what_was_asked_for_or_can_be_undone if {
	count(_asked([_call(["asked"]), _before])) == 0
	count(_asked([object.union(_call([]), {"irreversible": false}), _before])) == 0
	count(_asked([_call([])])) == 0
}

test_not_hit_with_the_origins_missing if {
	count(irreversible.require_approval) == 0 with input as {"kind": "tool_call"}
}
