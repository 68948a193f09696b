# METADATA
# title: Secrets are masked, or stop the message
# description: |
#   A credential in text is masked. Where masking would change what a part asks for (arguments, names, schemas, unknown
#   parts), the part is refused.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: data.secret
#   severity: critical
#   kinds: [
#     audio, document, image, opaque, prompt_request, prompt_result, request, resource, resource_ref, response, text,
#     thinking, tool_call, tool_definition, tool_result, video,
#   ]
#   capabilities: []
#   standards: [OWASP-LLM02, OWASP-ASI03, NIST-IA-5, NIST-SC-28, NIST-AI-RMF-MEASURE-2.7]
#   stream:
#     - {max_word: 8192, opened_by: ["-----BEGIN", "SSWS"]}
#     - {max_match: 2048, where: data.cmf.defaults.data.secrets.extra_patterns}
#   settings:
#     hint: {type: string, format: expression}
#     patterns: &shapes
#       type: object
#       additionalProperties:
#         type: object
#         required: [literals, pattern]
#         properties:
#           literals: {type: array, minItems: 1, items: {type: string, minLength: 1}}
#           pattern: {type: string, format: expression}
#           unended: {type: string, format: expression}
#           anywhere: {type: boolean}
#         additionalProperties: false
#     more_hint: {type: string, format: expression}
#     more_patterns: *shapes
#     weak_patterns:
#       type: object
#       additionalProperties:
#         type: object
#         required: [hint, pattern, min_digits, min_letters]
#         properties:
#           hint: {type: string, format: expression}
#           pattern: {type: string, format: expression}
#           min_digits: {type: integer, minimum: 0, maximum: 64}
#           min_letters: {type: integer, minimum: 0, maximum: 64}
#         additionalProperties: false
#     extra_patterns: *shapes
#     max_masked: {type: integer, minimum: 0}
#     replacement: {enum: [mask, hash, drop, token]}
package cmf.rules.data.secrets

import data.cmf.lib.scan
import data.cmf.lib.secrets

redact contains {
	"code": "data.secret",
	"reason": "A credential was masked.",
	"spans": scan.spans(scan.content, {found.secret | some found in secrets.in_content}),
	"replacement": _settings.replacement,
} if {
	secrets.worth_a_look
	scan.cuttable
	count(secrets.in_content) > 0
	count(secrets.in_content) <= _settings.max_masked
}

redact contains {
	"code": "data.secret",
	"reason": "A credential in disguise was masked.",
	"spans": scan.spans(scan.plain, {found.secret | some found in secrets.disguised}),
	"of": "plain",
	"replacement": _settings.replacement,
} if {
	scan.cuttable
	count(secrets.disguised) > 0
	count(secrets.disguised) <= _settings.max_masked
}

redact contains {
	"code": "data.secret",
	"reason": "An encoded credential was masked.",
	"spans": scan.spans_spelling({found.secret | some found in secrets.encoded}),
	"replacement": _settings.replacement,
} if {
	scan.cuttable
	count(secrets.encoded) > 0
	count(secrets.encoded) <= _settings.max_masked
}

deny contains {
	"code": "data.secret",
	"reason": "This part contains a credential.",
	"detail": {"found": {found.kind | some found in _in_content}, "where": "content"},
} if {
	secrets.worth_a_look
	not scan.cuttable
	count(_in_content) > 0
}

deny contains {
	"code": "data.secret",
	"reason": "This part contains a credential.",
	"detail": {"found": {found.kind | some found in secrets.in_surroundings}, "where": "surroundings"},
} if {
	secrets.worth_a_look
	count(secrets.in_surroundings) > 0
}

# A text with this many credentials is a leak to stop, not a text to mend; it also bounds the work of finding spans.
deny contains {
	"code": "data.secret.too-many",
	"reason": "This part contains too many credentials to mask.",
} if {
	secrets.worth_a_look
	scan.cuttable
	count(_in_content) > _settings.max_masked
}

_in_content := (secrets.in_content | secrets.disguised) | secrets.encoded

_settings := data.cmf.defaults.data.secrets
