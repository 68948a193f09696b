# METADATA
# title: Encoded text is read as well
# description: |
#   A run of base64, hex or percent escapes among the arguments of a call is decoded, if what it spells is plain text;
#   and so is what stands in that text, three times over. When a text so found holds a credential, or orders to a
#   model, the call is refused, and so is one that is encoded deeper still: nobody encodes these by accident.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: content.encoded-payload
#   severity: high
#   kinds: [prompt_request, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-LLM02, OWASP-ASI01, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   settings:
#     orders: {type: array, minItems: 1, items: {type: string, format: expression}}
#     max_runs: {type: integer, minimum: 0, maximum: 10000}
package cmf.rules.content.encoded_payload

import data.cmf.lib.scan
import data.cmf.lib.secrets

deny contains {
	"code": "content.encoded-payload.secret",
	"reason": "This call holds a credential in disguise.",
	"detail": {"found": secrets.kinds_in(text)},
} if {
	_encoded
	some text in _decoded
	count(secrets.kinds_in(text)) > 0
}

deny contains {
	"code": "content.encoded-payload.orders",
	"reason": "This call holds orders to a model in disguise.",
} if {
	_encoded
	some text in _decoded
	some pattern in _settings.orders
	regex.match(pattern, text)
}

# So many runs are no text that somebody reads; and looking at all of them would be work without bound.
deny contains {
	"code": "content.encoded-payload.too-many",
	"reason": "This call holds too much encoded text to read.",
} if {
	_encoded
	_too_many
}

deny contains {
	"code": "content.encoded-payload.too-deep",
	"reason": "This call holds text that is encoded again and again.",
} if {
	_encoded
	some text in _thrice
	count(_runs(text)) > 0
}

# What is read at each depth; nothing once there are too many runs.
_decoded := (_once | _twice) | _thrice

_once contains decoded if {
	count(_first) <= _settings.max_runs
	some run in _first
	decoded := _spelled(run)
}

_twice contains decoded if {
	count(_first) + count(_second) <= _settings.max_runs
	some run in _second
	decoded := _spelled(run)
}

_thrice contains decoded if {
	not _too_many
	some run in _third
	decoded := _spelled(run)
}

_too_many if count(_first) > _settings.max_runs

_too_many if {
	_encoded
	count(_first) + count(_second) > _settings.max_runs
}

_too_many if {
	_encoded
	count(_first) + (count(_second) + count(_third)) > _settings.max_runs
}

# Nothing stands in what is not there.
_encoded if count(_first) > 0

default _first := []

_first := [run | some text in scan.readings; some run in _runs(text)] if _suspicious

_second := [run | some text in _once; some run in _runs(text)]

_third := [run | some text in _twice; some run in _runs(text)]

# A look that most calls end with.
_suspicious if {
	some text in scan.readings
	regex.match(`[0-9A-Za-z+/_-]{32}|(?:%(?:25)*[0-7][0-9A-Fa-f]){8}`, text)
}

# Only runs that spell ASCII, character by character of the encoding: three letters in four characters, the first bit of
# each letter zero. So decoding cannot fail, and pictures and other bytes are not even tried.
_runs(text) := [[encoding, run] |
	some encoding, pattern in _patterns
	some run in regex.find_n(pattern, text, _settings.max_runs + 1)
]

_patterns := {
	"base64": `(?:[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]){8,}`,
	"hex": `(?:[2-7][0-9a-fA-F]){16,}`,
	"percent": `(?:%(?:25)*[0-7][0-9a-fA-F]){8,}`,
}

_spelled(run) := base64.decode(replace(replace(run[1], "-", "+"), "_", "/")) if run[0] == "base64"

_spelled(run) := hex.decode(run[1]) if run[0] == "hex"

_spelled(run) := urlquery.decode(run[1]) if run[0] == "percent"

_settings := data.cmf.defaults.content.encoded_payload
