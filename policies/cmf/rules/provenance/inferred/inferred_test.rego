package cmf.rules.provenance.inferred_test

import data.cmf.rules.provenance.inferred

_before := {"path": "", "type": "before", "use": "other", "sources": [{"kind": "resource", "trust": "untrusted"}]}

_theirs := {"kind": "tool_result", "trust": "untrusted"}

_send := {
	"path": "",
	"type": "call",
	"use": "control",
	"sources": [{"kind": "user", "trust": "trusted", "match": "asked"}],
	"profile": "inferred",
	"inferred": ["actions", "asked_for", "content", "control", "irreversible", "result", "sink"],
	"inference": "enforce",
	"actions": ["send"],
	"sink": true,
	"irreversible": false,
	"askable": true,
}

_edit := object.union(_send, {"actions": ["write"]})

_open := object.union(_send, {"actions": ["read", "send"]})

_to(sources) := {"path": "/to/0", "type": "string", "use": "control", "sources": sources}

_asked(origins) := {hit.code: object.get(hit.detail, "arguments", set()) |
	some hit in inferred.require_approval with input as {"origins": origins}
}

_warned(origins) := {hit.code | some hit in inferred.warn with input as {"origins": origins}}

_asked_at(dial, origins) := {hit.code |
	some hit in inferred.require_approval with input as {"origins": origins}
		with data.cmf.defaults.provenance.inferred.dial as dial
}

test_asks_about_a_value_that_only_others_wrote if {
	_asked([_send, _before, _to([_theirs])]) == {"provenance.inferred.control": {"to"}}
	_asked([_edit, _before, _to([_theirs])]) == {"provenance.inferred.control": {"to"}}
}

test_asks_about_what_others_name_and_about_addresses_of_theirs_that_are_sent if {
	named := object.union(_to([{"kind": "metadata", "trust": "trusted"}]), {"named": true})
	_asked([_send, _before, named]) == {"provenance.inferred.named": {"to"}}

	link := {"path": "/body", "type": "address", "use": "content", "span": [0, 4], "sources": [_theirs]}
	_asked([_send, _before, link]) == {"provenance.inferred.relay": {"body"}}
	_asked([_edit, _before, link]) == {}
}

test_asks_about_an_act_that_nobody_asked_for_with_values_of_others if {
	subject := {"path": "/subject", "type": "string", "use": "content", "sources": [_theirs]}
	unasked := object.union(_send, {"sources": []})
	_asked([unasked, _before, subject]) == {"provenance.inferred.not-asked": {"subject"}}
	_asked([_send, _before, subject]) == {}
}

test_warns_of_what_nobody_wrote if {
	_asked([_send, _before, _to([])]) == {}
	_warned([_send, _before, _to([])]) == {"provenance.inferred.unknown"}
	delete := object.union(_edit, {"irreversible": true, "sources": []})
	_warned([delete, _before]) == {"provenance.inferred.irreversible"}
}

test_strict_asks_about_what_nobody_wrote_and_what_the_user_left_to_a_text if {
	_asked_at("strict", [_send, _before, _to([])]) == {"provenance.inferred.unknown"}
	referred := object.union(_to([_theirs]), {"referred": true})
	_asked_at("strict", [_send, _before, referred]) == {"provenance.inferred.control"}
}

test_lenient_asks_only_where_something_leaves_or_cannot_be_undone if {
	_asked_at("lenient", [_send, _before, _to([_theirs])]) == {"provenance.inferred.control"}
	delete := object.union(_edit, {"irreversible": true})
	_asked_at("lenient", [delete, _before, _to([_theirs])]) == {"provenance.inferred.control"}
	_asked_at("lenient", [_edit, _before, _to([_theirs])]) == set()
	_asked_at("lenient", [_open, _before, _to([_theirs])]) == set()
}

test_only_warns_where_inference_is_observed if {
	observed := object.union(_send, {"inference": "observe"})
	_asked([observed, _before, _to([_theirs])]) == {}
	_warned([observed, _before, _to([_theirs])]) == {"provenance.inferred.control"}
}

test_asks_about_inferred_arguments_of_a_tool_that_is_described_in_part if {
	part := object.union(_send, {"profile": "known", "inferred": ["control"]})
	_asked([part, _before, _to([_theirs])]) == {"provenance.inferred.control": {"to"}}
}

test_allowed_what_the_user_left_to_a_text_that_he_named if {
	_asked([_send, _before, object.union(_to([_theirs]), {"referred": true})]) == {}
}

test_allowed_trusted_values_and_tools_that_only_read if {
	trusted := {"kind": "user", "trust": "trusted"}
	_asked([_send, _before, _to([_theirs, trusted])]) == {}
	_asked([object.union(_send, {"sink": false}), _before, _to([_theirs])]) == {}
	_asked([_send, _to([_theirs])]) == {}
}

test_allowed_a_list_of_which_someone_trusted_said_each_piece if {
	whole := {"path": "/to", "type": "string", "use": "control", "sources": [_theirs]}
	piece := object.union(whole, {"type": "piece", "sources": [{"kind": "user", "trust": "trusted"}]})
	_asked([_send, _before, whole, piece]) == {}
}

test_allowed_what_a_profile_describes if {
	known := object.remove(object.union(_send, {"profile": "known"}), ["inferred"])
	_asked([known, _before, _to([_theirs])]) == {}
	_warned([known, _before, _to([])]) == set()
}

test_not_hit_with_the_origins_missing if {
	count(inferred.require_approval) == 0 with input as {"kind": "tool_call"}
	count(inferred.warn) == 0 with input as {"kind": "tool_call"}
}
