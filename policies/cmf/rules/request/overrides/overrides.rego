# METADATA
# title: No request redirects its gateway
# description: |
#   A request that tells a gateway behind this one where to send it, with whose key, by which headers, or to answer
#   with made-up text, is refused. Such gateways read these fields beside the messages, among the metadata, and in the
#   settings of other models. Names are compared in small letters, with `-` as `_`.
# related_resources:
#   - ref: https://nvd.nist.gov/vuln/detail/CVE-2024-6587
#   - ref: https://genai.owasp.org/llmrisk/llm032025-supply-chain/
# custom:
#   code: request.overrides
#   severity: high
#   kinds: [request]
#   capabilities: []
#   standards: [OWASP-LLM03, OWASP-LLM10, NIST-AC-4, NIST-SC-7, NIST-AI-RMF-MANAGE-3.1]
package cmf.rules.request.overrides

deny contains {
	"code": "request.overrides",
	"reason": "A field of this request tells a gateway where to send it, or how.",
	"detail": {"field": name},
} if {
	some place in _places
	some name, _ in place
	_normal(name) in _settings.fields
	not name in _settings.allowed
}

# What rides along is under the name of its wire format; in a request that was made by hand it may stand by itself.
_tops contains fields if {
	fields := input.properties.extra
	is_object(fields)
}

_tops contains fields if {
	some fields in input.properties.extra
	is_object(fields)
}

_places contains fields if some fields in _tops

_places contains fields if some fields in _inner

_places contains fields if {
	some place in _inner
	some fields in _within(place)
}

_inner contains fields if {
	some top in _tops
	some fields in _within(top)
}

# The objects, also those in lists, under names beneath which gateways look for settings.
_within(place) := {fields |
	some name, value in place
	_normal(name) in _settings.containers
	some fields in _objects(value)
}

_objects(value) := {value} if is_object(value)

_objects(value) := {item | some item in value; is_object(item)} if is_array(value)

_normal(name) := replace(lower(name), "-", "_")

_settings := data.cmf.defaults.request.overrides
