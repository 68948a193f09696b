# METADATA
# title: Personal data is masked
# description: |
#   Payment cards and US social security numbers in text are masked; the operator chooses the types. Only values that
#   pass their checksum or range are touched, so order numbers stay.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: data.pii
#   severity: high
#   kinds: [prompt_result, resource, text, thinking, tool_result]
#   capabilities: []
#   standards: [OWASP-LLM02, NIST-PT-2, NIST-SI-19, NIST-AI-RMF-MEASURE-2.10]
#   stream: {max_match: 48}
#   settings:
#     redact: {type: array, minItems: 1, items: {enum: [payment_card, us_ssn, iban]}}
#     max_masked: {type: integer, minimum: 0}
#     replacement: {enum: [mask, hash, drop, token]}
package cmf.rules.data.pii

import data.cmf.lib.pii
import data.cmf.lib.scan

redact contains {
	"code": "data.pii",
	"reason": "Personal data was masked.",
	"spans": scan.spans(scan.content, _chosen),
	"replacement": _settings.replacement,
} if {
	count(_chosen) > 0
	count(_chosen) <= _settings.max_masked
	scan.cuttable
}

redact contains {
	"code": "data.pii",
	"reason": "Personal data in disguise was masked.",
	"spans": scan.spans(scan.plain, _disguised),
	"of": "plain",
	"replacement": _settings.replacement,
} if {
	count(_disguised) > 0
	count(_disguised) <= _settings.max_masked
	scan.cuttable
}

redact contains {
	"code": "data.pii",
	"reason": "Encoded personal data was masked.",
	"spans": scan.spans_spelling(_encoded),
	"replacement": _settings.replacement,
} if {
	count(_encoded) > 0
	count(_encoded) <= _settings.max_masked
	scan.cuttable
}

deny contains {
	"code": "data.pii.too-many",
	"reason": "This part contains too much personal data to mask.",
} if {
	count(((_chosen | _disguised) | _encoded)) > _settings.max_masked
	scan.cuttable
}

_chosen contains found.value if {
	some found in pii.in_content
	found.type in _settings.redact
}

_disguised contains found.value if {
	some found in pii.disguised
	found.type in _settings.redact
}

_encoded contains found.value if {
	some found in pii.encoded
	found.type in _settings.redact
}

_settings := data.cmf.defaults.data.pii
