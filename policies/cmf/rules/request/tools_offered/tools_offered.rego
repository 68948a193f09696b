# METADATA
# title: Only listed tools are offered
# description: |
#   A tool that is not on the operator's list is taken out of the request before a model sees it; the rest goes on.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: request.tools-offered
#   severity: warn
#   kinds: [tool_definition]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-AC-6, NIST-CM-7, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     allowed: {type: array, items: {type: string, format: uri-pattern}}
package cmf.rules.request.tools_offered

import data.cmf.lib

strip_tool contains {
	"code": "request.tools-offered",
	"reason": "This tool is not offered here.",
} if {
	not _listed
}

_listed if lib.any_uri_matches(input.uri, data.cmf.defaults.request.tools_offered.allowed)
