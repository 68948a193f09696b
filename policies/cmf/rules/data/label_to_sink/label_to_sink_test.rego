package cmf.rules.data.label_to_sink_test

import data.cmf.rules.data.label_to_sink

_call(uri, security, session) := {
	"kind": "tool_call",
	"uri": uri,
	"arguments": {},
	"properties": {},
	"extensions": {"security": security},
	"session": session,
}

_codes(view) := {effect.code | some effect in denials} if denials := label_to_sink.deny with input as view

test_denied_when_the_session_is_labelled if {
	_codes(_call("tool://mail/send_email", {"labels": []}, {"labels": ["secret"]})) == {"data.label-to-sink"}
}

test_denied_when_the_message_is_labelled if {
	_codes(_call("tool://_/http_post", {"labels": ["secret"]}, {})) == {"data.label-to-sink"}
}

test_denied_when_the_labels_are_missing if {
	_codes(_call("tool://mail/send_email", {}, {})) == {"data.label-to-sink.unknown"}
	_codes({"kind": "tool_call", "uri": "tool://mail/send_email", "properties": {}}) == {"data.label-to-sink.unknown"}
}

test_denied_when_the_uri_is_missing if {
	_codes({"kind": "tool_call", "session": {"labels": ["secret"]}, "properties": {}}) == {"data.label-to-sink"}
}

test_allowed_with_other_labels if {
	_codes(_call("tool://mail/send_email", {"labels": ["pii"]}, {"labels": ["public"]})) == set()
}

test_allowed_for_a_tool_that_sends_nothing_out if {
	_codes(_call("tool://fs/read_file", {"labels": ["secret"]}, {"labels": ["secret"]})) == set()
	_codes(_call("tool://fs/read_file", {}, {})) == set()
}
