# METADATA
# title: So many calls and no more
# description: |
#   A call is refused once the session has made as many calls of the tools under one limit as the operator allows.
#   Without a known session the count is not known, and the call is refused.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/
# custom:
#   code: session.call-limit
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_agent]
#   standards: [OWASP-LLM06, OWASP-LLM10, OWASP-ASI08, NIST-SC-5, NIST-AI-RMF-MANAGE-2.4]
#   settings:
#     at_most:
#       type: object
#       propertyNames: {format: uri-pattern}
#       additionalProperties: {type: integer, minimum: 0}
package cmf.rules.session.call_limit

import data.cmf.lib
import data.cmf.lib.calls

deny contains {
	"code": "session.call-limit",
	"reason": "This conversation has called this tool as often as it may.",
	"detail": {"at_most": limit},
} if {
	some pattern, limit in _limits
	calls.made_alike(pattern) >= limit
}

deny contains {
	"code": "session.call-limit.unknown",
	"reason": "It is not known how often this tool was called.",
} if {
	count(_limits) > 0
	not input.session.counters
}

_limits[pattern] := limit if {
	calls.new
	some pattern, limit in data.cmf.defaults.session.call_limit.at_most
	_meant(pattern)
}

_meant(pattern) if lib.tool_matches(input.uri, pattern)

# A call that cannot be told from another is held to every limit.
_meant(_) if not input.uri
