# METADATA
# title: Encoded text is read as well
# description: |
#   A run of base64, hex or percent escapes among the arguments of a call is decoded once, if what it spells is plain
#   text. When that text holds a credential, or orders to a model, the call is refused: nobody encodes these by
#   accident.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: content.encoded-payload
#   severity: high
#   kinds: [prompt_request, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-LLM02, OWASP-ASI01, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
package cmf.rules.content.encoded_payload

import data.cmf.lib.scan
import data.cmf.lib.secrets

deny contains {
	"code": "content.encoded-payload.secret",
	"reason": "This call holds a credential in disguise.",
	"detail": {"found": secrets.kinds_in(text)},
} if {
	some text in _decoded
	count(secrets.kinds_in(text)) > 0
}

deny contains {
	"code": "content.encoded-payload.orders",
	"reason": "This call holds orders to a model in disguise.",
} if {
	some text in _decoded
	some pattern in _settings.orders
	regex.match(pattern, text)
}

# So many runs are no text that somebody reads; and looking at all of them would be work without bound.
deny contains {
	"code": "content.encoded-payload.too-many",
	"reason": "This call holds too much encoded text to read.",
} if {
	_suspicious
	sum([count(_base64), count(_hex), count(_percent)]) > _settings.max_runs
}

_decoded contains base64.decode(text) if {
	_suspicious
	some text in _base64
}

_decoded contains hex.decode(text) if {
	_suspicious
	some text in _hex
}

_decoded contains urlquery.decode(text) if {
	_suspicious
	some text in _percent
}

# A look that most calls end with.
_suspicious if regex.match(`[0-9A-Za-z+/]{32}|(?:%[0-7][0-9A-Fa-f]){8}`, scan.content)

# Only runs that spell ASCII, character by character of the encoding: three letters in four characters, the first bit of
# each letter zero. So decoding cannot fail, and pictures and other bytes are not even tried.
_base64 := regex.find_n(concat("", [`(?:`, _four, `){8,}`]), scan.content, _settings.max_runs + 1)

_four := `[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/]`

_hex := regex.find_n(`(?:[2-7][0-9a-fA-F]){16,}`, scan.content, _settings.max_runs + 1)

_percent := regex.find_n(`(?:%[0-7][0-9a-fA-F]){8,}`, scan.content, _settings.max_runs + 1)

_settings := data.cmf.defaults.content.encoded_payload
