# METADATA
# title: Labelled data stays inside
# description: |
#   Once a message or its session carries a forbidden label, calls of tools that send data outside are refused. When the
#   labels are not known, nothing is sent.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: data.label-to-sink
#   severity: critical
#   kinds: [tool_call]
#   capabilities: [read_labels]
#   standards: [OWASP-LLM01, OWASP-LLM02, OWASP-ASI01, NIST-AC-4, NIST-AI-RMF-MEASURE-2.10]
#   settings:
#     forbidden_labels: {type: array, minItems: 1, items: {type: string, format: text}}
#     external_sinks: {type: array, minItems: 1, items: {type: string, format: uri-pattern}}
package cmf.rules.data.label_to_sink

import data.cmf.lib
import data.cmf.lib.labels

deny contains {
	"code": "data.label-to-sink",
	"reason": "This conversation holds data that must not leave, and this tool sends data outside.",
	"detail": {"labels": forbidden},
} if {
	_sink
	forbidden := labels.in_force & {label | some label in _settings.forbidden_labels}
	count(forbidden) > 0
}

deny contains {
	"code": "data.label-to-sink.unknown",
	"reason": "It is not known whether this conversation holds data that must not leave.",
} if {
	_sink
	not labels.in_force
}

_sink if lib.any_expression_matches(lower(input.uri), _sinks)

# A call that cannot be told from another may be any tool.
_sink if not input.uri

_sinks := lib.tool_expressions(_settings.external_sinks)

_settings := data.cmf.defaults.data.label_to_sink
