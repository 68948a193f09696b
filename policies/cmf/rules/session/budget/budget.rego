# METADATA
# title: Budgets end
# description: |
#   A request, or a new call of a tool, is refused once a counter of the session has reached the operator's limit:
#   tokens, cost, whatever the installation counts. A counter that nobody raised stands at zero.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/
# custom:
#   code: session.budget
#   severity: high
#   kinds: [request, tool_call]
#   capabilities: [read_agent]
#   standards: [OWASP-LLM10, OWASP-ASI08, NIST-SC-5, NIST-AI-RMF-MANAGE-2.4]
#   settings:
#     limits:
#       type: object
#       propertyNames: {format: counter}
#       additionalProperties: {type: number, minimum: 0}
package cmf.rules.session.budget

import data.cmf.lib.calls

deny contains {
	"code": "session.budget",
	"reason": "This conversation has used up its budget.",
	"detail": {"counter": name, "limit": limit},
} if {
	_held
	some name, limit in _limits
	object.get(input.session.counters, name, 0) >= limit
}

deny contains {
	"code": "session.budget.unknown",
	"reason": "It is not known what this conversation has used.",
} if {
	_held
	count(_limits) > 0
	not input.session.counters
}

_held if input.kind == "request"

_held if calls.new

_limits := data.cmf.defaults.session.budget.limits
