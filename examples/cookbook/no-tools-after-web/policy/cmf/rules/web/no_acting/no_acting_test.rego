package cmf.rules.web.no_acting_test

import data.cmf.rules.web.no_acting

_call(uri, hook, labels) := {
	"kind": "tool_call",
	"hook": hook,
	"uri": uri,
	"extensions": {"security": {"labels": labels}},
}

_denied(view) := count(hits) if {
	hits := no_acting.deny with input as view with data.cmf.defaults.web.harmless as ["tool://_/fetch"]
}

test_denied_after_the_web if _denied(_call("tool://_/send_mail", "llm_response", ["web"])) == 1

test_denied_when_the_labels_are_missing if {
	_denied({"kind": "tool_call", "hook": "llm_response", "uri": "tool://_/send_mail", "extensions": {}}) == 1
}

test_allowed_before_it_and_for_harmless_tools if {
	_denied(_call("tool://_/send_mail", "llm_response", [])) == 0
	_denied(_call("tool://_/fetch", "llm_response", ["web"])) == 0
}

test_allowed_in_the_history if _denied(_call("tool://_/send_mail", "llm_request", ["web"])) == 0
