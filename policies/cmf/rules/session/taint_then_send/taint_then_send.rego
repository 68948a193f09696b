# METADATA
# title: A person looks before tainted sessions send
# description: |
#   Once a session carries one of the operator's labels for what came from outside, a new call of a tool that writes
#   or sends waits until a person approves it. Coarse on purpose: it asks whatever the call's arguments are.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: session.taint-then-send
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_labels]
#   standards: [OWASP-LLM01, OWASP-LLM06, OWASP-ASI01, NIST-AC-4, NIST-AI-RMF-MAP-3.5]
#   settings:
#     labels: {type: array, items: {type: string, format: text}}
#     sending_tools: {type: array, minItems: 1, items: {type: string, format: uri-pattern}}
package cmf.rules.session.taint_then_send

import data.cmf.lib
import data.cmf.lib.calls
import data.cmf.lib.labels

require_approval contains {
	"code": "session.taint-then-send",
	"reason": "This conversation holds what others wrote: a person has to approve what it sends.",
	"detail": {"labels": found},
} if {
	count(_settings.labels) > 0
	_sends
	found := labels.in_force & {label | some label in _settings.labels}
	count(found) > 0
}

require_approval contains {
	"code": "session.taint-then-send.unknown",
	"reason": "It is not known whether this conversation holds what others wrote.",
} if {
	count(_settings.labels) > 0
	_sends
	not labels.in_force
}

_sends if {
	calls.new
	lib.any_tool_matches(input.uri, _settings.sending_tools)
}

# A call that cannot be told from another may be any tool.
_sends if not input.uri

_settings := data.cmf.defaults.session.taint_then_send
