package cmf.rules.provenance.control_origin_test

import data.cmf.rules.provenance.control_origin

_before := {"path": "", "type": "before", "use": "other", "sources": [{"kind": "claimed", "trust": "claimed"}]}

_send := {"path": "", "type": "call", "use": "control", "sources": [], "profile": "known", "sink": true}

_value(path, trusts) := {
	"path": path,
	"type": "string",
	"use": "control",
	"sources": [{"kind": "tool_result", "trust": trust} | some trust in trusts],
}

_piece(path, trusts) := object.union(_value(path, trusts), {"type": "piece", "span": [0, 1]})

_asked(origins) := asked if asked := control_origin.require_approval with input as {"origins": origins}

test_asks_about_a_value_of_others if {
	some hit in _asked([_send, _before, _value("/to/0", ["untrusted"]), _value("/id", ["trusted"])])
	hit.detail == {"arguments": {"to"}}
	hit.binds == {"to"}
}

test_asks_about_a_value_that_nobody_said_and_about_raw_arguments if {
	count(_asked([_send, _before, _value("/to", [])])) == 1
	count(_asked([_send, _before, object.union(_value("", []), {"type": "raw"})])) == 1
	count(_asked([_send, _before, object.union(_value("/to/who~1ever", []), {"type": "key"})])) == 1
	count(_asked([_send, _before, object.union(_value("/to/mallory", ["untrusted"]), {"type": "key"})])) == 1
}

test_asks_about_a_tool_that_no_profile_describes if {
	count(_asked([{"type": "call", "profile": "unknown", "sources": []}, _before, _value("/to", [])])) == 1
}

test_denied_where_the_operator_says_so if {
	denied := control_origin.deny with input as {"origins": [_send, _before, _value("/to", [])]}
		with data.cmf.defaults.provenance.control_origin as {"effect": "deny"}
	count(denied) == 1
}

test_allowed_trusted_values_pass if {
	count(_asked([_send, _before, _value("/to", ["untrusted", "trusted"])])) == 0
}

test_asks_about_what_others_name if {
	some hit in _asked([_send, _before, object.union(_value("/id", ["trusted"]), {"named": true})])
	hit.code == "provenance.control-origin.named"
	hit.detail == {"arguments": {"id"}}
	hit.binds == {"id"}
}

test_denied_what_others_name_where_the_operator_says_so if {
	named := object.union(_value("/id", ["trusted"]), {"named": true})
	denied := control_origin.deny with input as {"origins": [_send, _before, named]}
		with data.cmf.defaults.provenance.control_origin as {"effect": "deny"}
	count(denied) == 1
}

test_allowed_what_others_name_where_the_user_handed_over_to_them if {
	named := object.union(_value("/id", ["trusted"]), {"named": true})
	handed := object.union(_send, {"sources": [{"kind": "user", "trust": "trusted", "match": "delegated"}]})
	count(_asked([handed, _before, named])) == 0
	count(_asked([object.union(_send, {"sink": false}), _before, named])) == 0
}

test_asks_about_a_list_with_a_piece_that_nobody_trusted_said if {
	count(_asked([_send, _before, _value("/to", []), _piece("/to", ["trusted"]), _piece("/to", ["untrusted"])])) == 1
	count(_asked([_send, _before, _value("/to", []), _piece("/cc", ["trusted"])])) == 1
}

test_allowed_a_list_of_which_each_piece_was_said_and_the_name_of_a_field if {
	count(_asked([_send, _before, _value("/to", []), _piece("/to", ["trusted"]), _piece("/to", ["trusted"])])) == 0
	count(_asked([_send, _before, object.union(_value("/to/street", []), {"type": "key"})])) == 0
}

test_allowed_everything_pass_before_others_were_read if {
	count(_asked([_send, _value("/to", ["untrusted"])])) == 0
}

test_allowed_tools_pass_that_only_read_and_values_that_steer_nothing if {
	count(_asked([object.union(_send, {"sink": false}), _before, _value("/to", [])])) == 0
	count(_asked([{"type": "call", "profile": "none", "sources": []}, _before, _value("/to", [])])) == 0
	count(_asked([_send, _before, object.union(_value("/body", []), {"use": "content"})])) == 0
	count(_asked([_send, _before, object.union(_value("/now", []), {"type": "boolean"})])) == 0
}

test_not_hit_with_the_origins_missing if {
	count(control_origin.require_approval) == 0 with input as {"kind": "tool_call"}
	count(control_origin.deny) == 0 with input as {"kind": "tool_call"}
}
