# METADATA
# title: A person approves what cannot be undone
# description: |
#   A call of a destructive tool waits until a person has approved exactly this call. A call that has no name of its
#   own waits too.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: tools.destructive-approval
#   severity: high
#   kinds: [tool_call]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, OWASP-ASI09, NIST-AC-3, NIST-AI-RMF-GOVERN-3.2, NIST-AI-RMF-MAP-3.5]
#   settings:
#     destructive_names: {type: array, items: {type: string, format: name}}
#     destructive_tools: {type: array, items: {type: string, format: uri-pattern}}
#     destructive_arguments:
#       type: object
#       propertyNames: {format: uri-pattern}
#       additionalProperties:
#         type: object
#         minProperties: 1
#         additionalProperties: {type: array, minItems: 1}
package cmf.rules.tools.destructive_approval

import data.cmf.lib

require_approval contains {
	"code": "tools.destructive-approval",
	"reason": "This cannot be undone: a person has to approve it.",
} if {
	_destructive
}

_destructive if {
	count(_settings.destructive_tools) > 0
	lib.any_tool_matches(input.uri, _settings.destructive_tools)
}

_destructive if lower(input.name) in _names

_destructive if not input.uri

# Servers that share one tool for many actions say in an argument which is meant.
_destructive if {
	some pattern, actions in _settings.destructive_arguments
	lib.tool_matches(input.uri, pattern)
	some name, values in actions
	_is_one_of(input.arguments[name], values)
}

_is_one_of(value, values) if value in values

_is_one_of(value, values) if lower(value) in {lower(listed) | some listed in values}

_names contains lower(name) if some name in _settings.destructive_names

_settings := data.cmf.defaults.tools.destructive_approval
