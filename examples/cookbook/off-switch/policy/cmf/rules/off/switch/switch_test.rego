package cmf.rules.off.switch_test

import data.cmf.rules.off.switch

_denied(view, off) := count(hits) if {
	hits := switch.deny with input as view with data.cmf.defaults.off.switch as {"off": off}
}

_asks(uri, others) := {"kind": "request", "hook": "llm_request", "uri": uri, "properties": {"other_models": others}}

_calls(hook) := {"kind": "tool_call", "hook": hook, "uri": "tool://github/merge", "properties": {}}

test_denied_while_off if {
	_denied(_asks("llm://openai/gpt-5", []), ["**"]) == 1
	_denied(_asks("llm://openai/gpt-5", []), ["tool://**", "llm://openai/*"]) == 1
	_denied(_asks("llm://anthropic/a", ["llm://openai/gpt-5"]), ["llm://openai/*"]) == 1
	_denied(_calls("tool_pre"), ["tool://github/*"]) == 1
}

test_denied_when_the_uri_is_missing if {
	_denied({"kind": "tool_call", "hook": "llm_response", "properties": {}}, ["tool://github/*"]) == 1
}

test_allowed_while_on if {
	_denied(_asks("llm://openai/gpt-5", []), []) == 0
	_denied({"kind": "tool_call", "properties": {}}, []) == 0
	_denied(_asks("llm://anthropic/a", []), ["llm://openai/*", "tool://**"]) == 0
	_denied(_calls("llm_response"), ["tool://gitlab/*"]) == 0
}

test_allowed_in_the_history if _denied(_calls("llm_request"), ["tool://github/*"]) == 0
