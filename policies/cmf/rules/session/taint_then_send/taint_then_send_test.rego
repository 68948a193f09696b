package cmf.rules.session.taint_then_send_test

import data.cmf.rules.session.taint_then_send

_settings := {"labels": ["untrusted"], "sending_tools": ["tool://**/send_*"]}

_codes(view) := {effect.code | some effect in asked} if {
	asked := taint_then_send.require_approval with input as view
		with data.cmf.defaults.session.taint_then_send as _settings
}

_send(labels) := {
	"kind": "tool_call",
	"hook": "llm_response",
	"uri": "tool://mail/send_mail",
	"session": {"labels": labels},
}

test_asked_after_a_taint if {
	_codes(_send(["untrusted"])) == {"session.taint-then-send"}
	_codes({
		"kind": "tool_call",
		"uri": "tool://mail/send_mail",
		"extensions": {"security": {"labels": ["untrusted"]}},
	}) == {"session.taint-then-send"}
}

test_asked_when_the_labels_are_missing if {
	_codes({"kind": "tool_call", "uri": "tool://mail/send_mail"}) == {"session.taint-then-send.unknown"}
}

test_asked_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "session": {"labels": ["untrusted"]}}) == {"session.taint-then-send"}
}

test_allowed_without_a_taint if _codes(_send(["pii"])) == set()

test_allowed_for_tools_that_do_not_send if {
	_codes(object.union(_send(["untrusted"]), {"uri": "tool://mail/read"})) == set()
}

test_allowed_in_history if _codes(object.union(_send(["untrusted"]), {"hook": "llm_request"})) == set()

test_allowed_without_labels_to_look_for if {
	found := taint_then_send.require_approval with input as {"kind": "tool_call", "uri": "tool://mail/send_mail"}
	found == set()
}
