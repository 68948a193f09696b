# METADATA
# title: Media must be what they say
# description: |
#   A picture, recording or document whose bytes are of another type than declared, or of no known type, is refused: a
#   reader downstream may take it for something that nobody judged.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: data.media-type
#   severity: high
#   kinds: [audio, document, image, resource, video]
#   capabilities: []
#   standards: [OWASP-LLM01, NIST-SI-3, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   settings:
#     allowed_unknown: {type: array, items: {type: string, format: media-type}}
package cmf.rules.data.media_type_mismatch

deny contains {
	"code": "data.media-type",
	"reason": "The bytes of this part are not of the type that it declares.",
} if {
	some item in input.properties.data
	item.mismatch
}

deny contains {
	"code": "data.media-type.unknown",
	"reason": "The bytes of this part are of no known type.",
} if {
	some item in input.properties.data
	not item.sniffed_type
	not item.length == 0
	not _expected(item)
}

_expected(item) if item.declared_type in data.cmf.defaults.data.media_type_mismatch.allowed_unknown
