# METADATA
# title: Tool arguments must be readable
# description: |
#   A tool call is refused when its arguments are not one strict JSON object, or do not fit the tool's schema: what
#   policy cannot read as the tool will read it, nobody has judged. So is a call that wraps calls of other tools, as
#   models of OpenAI sometimes make one up, because no rule is asked about those inside.
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
	"reason": "The arguments of this call cannot be read, or do not fit the tool.",
} if {
	_invalid
}

deny contains {
	"code": "tools.input-invalid.wrapped",
	"reason": "This call wraps calls of other tools, about which no rule is asked. Call each tool by itself.",
} if {
	_wraps_calls
}

_invalid if input.properties.arguments_invalid

_invalid if "arguments_raw" in object.keys(input.properties)

# The first entry is that of the call as a whole.
_invalid if input.origins[0].fits == false

# Without arguments and without the text that was sent instead, there is nothing to have judged.
_invalid if {
	not input.arguments
	not _elsewhere
}

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
