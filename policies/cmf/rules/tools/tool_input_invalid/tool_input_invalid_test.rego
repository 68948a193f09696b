package cmf.rules.tools.tool_input_invalid_test

import data.cmf.rules.tools.tool_input_invalid

_call(overrides) := object.union(
	{"kind": "tool_call", "uri": "tool://_/a", "properties": {}, "extensions": {}},
	overrides,
)

_unfit := [{"path": "", "type": "call", "use": "control", "sources": [], "fits": false}]

test_denied_when_it_is_about_to_run_and_does_not_fit_the_tool if {
	call := {"hook": "tool_pre", "arguments": {"a": 1}, "origins": _unfit}
	count(tool_input_invalid.deny) == 1 with input as _call(call)
	count(tool_input_invalid.warn) == 0 with input as _call(call)
}

test_denied_when_the_hook_is_missing if {
	count(tool_input_invalid.deny) == 1 with input as _call({"arguments": {"a": 1}, "origins": _unfit})
}

test_warned_when_it_is_told_and_does_not_fit_the_tool if {
	every hook in ["llm_response", "llm_request"] {
		call := {"hook": hook, "arguments": {"a": 1}, "origins": _unfit}
		count(tool_input_invalid.warn) == 1 with input as _call(call)
		count(tool_input_invalid.deny) == 0 with input as _call(call)
	}
}

test_left_to_the_pipeline_when_the_text_is_no_object if {
	count(tool_input_invalid.deny) == 0 with input as _call({"properties": {"arguments_invalid": true}})
}

test_denied_when_arguments_are_missing if count(tool_input_invalid.deny) == 1 with input as _call({})

_inner := {"recipient_name": "functions.pay", "parameters": {"amount": 1}}

test_denied_when_it_wraps_other_calls if {
	every name in ["multi_tool_use.parallel", "multi_tool_use_parallel", "Multi_Tool_Use-parallel"] {
		count(tool_input_invalid.deny) == 1 with input as _call({"name": name, "arguments": {}})
	}
	every call in [
		{"name": "parallel", "arguments": {}, "properties": {"namespace": "multi_tool_use"}},
		{"name": "parallel", "arguments": {"tool_uses": [{}, _inner]}},
	] {
		some hit in tool_input_invalid.deny with input as _call(call)
		hit.code == "tools.input-invalid.wrapped"
	}
}

test_allowed_where_an_argument_only_has_the_name if {
	every uses in [[], ["functions.pay"], "functions.pay", [{"name": "pay"}], null] {
		count(tool_input_invalid.deny) == 0 with input as _call({"name": "log", "arguments": {"tool_uses": uses}})
	}
}

test_allowed_without_arguments_at_the_provider if {
	count(tool_input_invalid.deny) == 0 with input as _call({"properties": {"executed_by": "provider"}})
}

test_allowed_with_arguments if {
	count(tool_input_invalid.deny) == 0 with input as _call({"arguments": {"a": 1}})
	count(tool_input_invalid.deny) == 0 with input as _call({"arguments": {}})
}
