# METADATA
# title: No request redirects its gateway
# description: |
#   A request that tells a gateway behind this one where to send it or its logs, with whose key, by which headers, or to
#   answer with made-up text, is refused. Such gateways read these fields beside the messages, among the metadata (also
#   where that is JSON in a text), and in the settings of other models. Names are compared in small letters, without
#   `-` and `_`; they count too where they end like such a field (`openai_api_base`), and beside the messages and in
#   settings where they end like an address or a callback (`webhook`, `inference_endpoint`).
# related_resources:
#   - ref: https://nvd.nist.gov/vuln/detail/CVE-2024-6587
#   - ref: https://genai.owasp.org/llmrisk/llm032025-supply-chain/
# custom:
#   code: request.overrides
#   severity: high
#   kinds: [request]
#   capabilities: []
#   standards: [OWASP-LLM03, OWASP-LLM10, NIST-AC-4, NIST-SC-7, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     fields: {type: array, minItems: 1, items: {type: string, format: name}}
#     endings: {type: array, items: {type: string, format: name}}
#     setting_endings: {type: array, items: {type: string, format: name}}
#     containers: {type: array, minItems: 1, items: {type: string, format: name}}
#     allowed: {type: array, items: {type: string, format: name}}
package cmf.rules.request.overrides

deny contains {
	"code": "request.overrides",
	"reason": "A field of this request tells a gateway where to send it, or how.",
	"detail": {"field": name},
} if {
	some place in _places
	some name, _ in place
	_redirects(_normal(name))
	not name in _settings.allowed
}

# Metadata may be the user's own words: `page_url` there is no setting of a gateway.
deny contains {
	"code": "request.overrides",
	"reason": "A field of this request tells a gateway where to send it, or how.",
	"detail": {"field": name},
} if {
	some place in (_tops | _in_settings)
	some name, _ in place
	strings.any_suffix_match(_normal(name), _setting_endings)
	not name in _settings.allowed
}

# What stands deeper is not looked at, so it may not stand there.
deny contains {
	"code": "request.overrides",
	"reason": "Settings for a gateway are nested too deeply in this request to be looked at.",
	"detail": {"field": name},
} if {
	some place in _third
	some name, value in place
	_normal(name) in _containers
	count(_objects(_read(value))) > 0
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

_places := (_tops | _first) | (_second | _third)

_first contains fields if {
	some place in _tops
	some fields in _within(place)
}

_second contains fields if {
	some place in _first
	some fields in _within(place)
}

_third contains fields if {
	some place in _second
	some fields in _within(place)
}

_in_settings contains fields if {
	some place in (_tops | (_first | _second))
	some name, value in place
	_normal(name) in _containers
	not _is_metadata(name)
	some fields in _objects(_read(value))
}

_is_metadata(name) if endswith(_normal(name), "metadata")

_redirects(name) if name in _fields

_redirects(name) if strings.any_suffix_match(name, _endings)

# The objects, also those in lists, under names beneath which gateways look for settings.
_within(place) := {fields |
	some name, value in place
	_normal(name) in _containers
	some fields in _objects(_read(value))
}

# Gateways read metadata that is JSON in a text as if it were not in one.
_read(value) := json.unmarshal(value) if {
	is_string(value)
	json.is_valid(value)
}

_read(value) := value if not is_string(value)

_objects(value) := {value} if is_object(value)

_objects(value) := {item | some item in value; is_object(item)} if is_array(value)

_normal(name) := replace(replace(lower(name), "-", ""), "_", "")

_fields contains _normal(name) if some name in _settings.fields

_endings contains _normal(name) if some name in _settings.endings

_setting_endings contains _normal(name) if some name in _settings.setting_endings

_containers contains _normal(name) if some name in _settings.containers

_settings := data.cmf.defaults.request.overrides
