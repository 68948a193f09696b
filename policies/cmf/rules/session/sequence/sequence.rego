# METADATA
# title: First things first
# description: |
#   A call is refused until the session has made the call that has to come before it: look up before change, check
#   before pay. A step in the same message does not count: nobody has seen its result.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: session.sequence
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_agent]
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-AC-3, NIST-AI-RMF-MAP-3.5]
#   settings:
#     steps:
#       type: array
#       items:
#         type: object
#         required: [before, first]
#         properties:
#           before: {type: string, format: uri-pattern}
#           first: {type: string, format: uri-pattern}
#         additionalProperties: false
package cmf.rules.session.sequence

import data.cmf.lib
import data.cmf.lib.calls

deny contains {
	"code": "session.sequence",
	"reason": "Another step has to come before this call.",
	"detail": {"first": first},
} if {
	calls.new
	some step in data.cmf.defaults.session.sequence.steps
	_meant(step)
	first := step.first
	not _made(first)
}

_meant(step) if lib.tool_matches(input.uri, step.before)

# A call that cannot be told from another has to wait for every first step.
_meant(_) if not input.uri

_made(pattern) if calls.made(pattern) > 0
