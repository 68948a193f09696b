# METADATA
# title: Tools are on the list
# description: |
#   A call of a tool, or a request for a prompt, is refused when its URI is on the list of denied ones or not on the
#   list of allowed ones.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: tools.tool-allowed
#   severity: high
#   kinds: [prompt_request, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-AC-6, NIST-CM-7, NIST-AI-RMF-MANAGE-2.4]
#   settings:
#     allowed: {type: array, items: {type: string, format: uri-pattern}}
#     denied: {type: array, items: {type: string, format: uri-pattern}}
package cmf.rules.tools.tool_allowed

import data.cmf.lib

deny contains {
	"code": "tools.tool-allowed",
	"reason": "This tool is not allowed here.",
} if {
	count(_settings.denied) > 0
	lib.any_tool_matches(input.uri, _settings.denied)
}

deny contains {
	"code": "tools.tool-allowed",
	"reason": "This tool is not allowed here.",
} if {
	not _allowed
}

_allowed if lib.any_uri_matches(input.uri, _settings.allowed)

_settings := data.cmf.defaults.tools.tool_allowed
