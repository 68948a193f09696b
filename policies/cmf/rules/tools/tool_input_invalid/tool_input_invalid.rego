# METADATA
# title: Tool arguments must be readable
# description: |
#   A tool call that is about to run is refused when its arguments do not fit the tool's schema, or are missing: what
#   policy cannot read as the tool will read it, nobody has judged. In a model's reply or a conversation, a call that
#   does not fit is a warning, since the client validates it and asks the model again. A call that wraps calls of other
#   tools, as models of OpenAI sometimes make one up, is refused, because no rule is asked about those inside.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm052025-improper-output-handling/
# custom:
#   code: tools.input-invalid
#   severity: high
#   kinds: [tool_call, prompt_request]
#   capabilities: []
#   standards: [OWASP-LLM05, OWASP-ASI02, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
package cmf.rules.tools.tool_input_invalid

deny contains {
	"code": "tools.input-invalid",
	"reason": "The arguments of this call are missing, or do not fit the tool.",
} if {
	_invalid
}

deny contains {
	"code": "tools.input-invalid.wrapped",
	"reason": "This call wraps calls of other tools, about which no rule is asked. Call each tool by itself.",
} if {
	_wraps_calls
}

warn contains {
	"code": "tools.input-invalid.unfit",
	"reason": "The arguments of this call do not fit the tool.",
} if {
	_unfit
	_is_told
}

_invalid if {
	_unfit
	not _is_told
}

# Without arguments and without the text that was sent instead, there is nothing to have judged. Arguments that are no
# object are refused by the pipeline itself.
_invalid if {
	not input.arguments
	not input.properties.arguments_invalid
	not _elsewhere
}

# The first entry is that of the call as a whole.
_unfit if input.origins[0].fits == false

# A model's reply, or a conversation: whoever runs the call validates it first.
_is_told if input.hook in {"llm_response", "llm_request"}

# What a provider runs it need not show; whether it may run at all is for tools/provider_executed.
_elsewhere if input.properties.executed_by == "provider"

# `multi_tool_use.parallel`, with one or another character in place of the dot; nobody offers it, some clients run it.
_wraps_calls if startswith(lower(input.name), "multi_tool_use")

_wraps_calls if input.properties.namespace == "multi_tool_use"

_wraps_calls if {
	is_array(input.arguments.tool_uses)
	some inner in input.arguments.tool_uses
	inner.recipient_name
}
