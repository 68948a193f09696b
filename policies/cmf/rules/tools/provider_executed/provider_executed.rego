# METADATA
# title: Tools that the provider runs must be listed
# description: |
#   Web search, code execution and hosted MCP tools run at the provider: their calls never pass here. Offering or using
#   one is refused unless its URI is on the operator's list.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: tools.provider-executed
#   severity: high
#   kinds: [tool_definition, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-CM-7, NIST-AI-RMF-MANAGE-3.1]
package cmf.rules.tools.provider_executed

import data.cmf.lib

deny contains {
	"code": "tools.provider-executed",
	"reason": "This tool runs at the provider and is not on the list of allowed ones.",
} if {
	not _runs_here
	not _allowed
}

_runs_here if input.properties.executed_by == "client"

_allowed if lib.any_uri_matches(input.uri, data.cmf.defaults.tools.provider_executed.allowed)
