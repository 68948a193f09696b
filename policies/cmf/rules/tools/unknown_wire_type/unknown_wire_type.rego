# METADATA
# title: Unknown wire types are refused
# description: |
#   A part of a type that this version does not model is refused, unless its provider and type are on the operator's
#   list. Its JSON is judged by the content rules in any case.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm052025-improper-output-handling/
# custom:
#   code: tools.unknown-wire-type
#   severity: high
#   kinds: [opaque]
#   capabilities: []
#   standards: [OWASP-LLM05, NIST-SI-10, NIST-CM-7, NIST-AI-RMF-MEASURE-2.7]
#   settings:
#     allowed: {type: array, items: {type: string, format: uri-pattern}}
package cmf.rules.tools.unknown_wire_type

import data.cmf.lib

deny contains {
	"code": "tools.unknown-wire-type",
	"reason": "This message has a part of a type that is not allowed here.",
} if {
	not _allowed
}

_allowed if lib.any_uri_matches(input.uri, data.cmf.defaults.tools.unknown_wire_type.allowed)
