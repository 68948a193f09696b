# METADATA
# title: Models by classification
# description: |
#   A request names a model that the operator allows for the classification of its data, and so are all others that it
#   names: where its provider may turn to, and whom its tools ask. A request without a classification is held to the
#   list for any.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm032025-supply-chain/
# custom:
#   code: request.model-allowed
#   severity: high
#   kinds: [request]
#   capabilities: [read_labels]
#   standards: [OWASP-LLM03, NIST-AC-4, NIST-SA-9, NIST-AI-RMF-GOVERN-6.1]
#   settings:
#     any_classification: {type: array, items: {type: string, format: uri-pattern}}
#     by_classification:
#       type: object
#       additionalProperties: {type: array, items: {type: string, format: uri-pattern}}
package cmf.rules.request.model_allowed

import data.cmf.lib

deny contains {
	"code": "request.model-allowed",
	"reason": "This model is not allowed for this request.",
} if {
	not _allowed
}

deny contains {
	"code": "request.model-allowed",
	"reason": "This request names another model, which is not allowed for it.",
} if {
	some uri in input.properties.other_models
	not _fits(uri)
}

_allowed if _fits(input.uri)

_fits(uri) if lib.any_uri_matches(uri, _patterns)

_patterns := listed if {
	listed := _settings.by_classification[input.extensions.security.classification]
} else := _settings.any_classification

_settings := data.cmf.defaults.request.model_allowed
