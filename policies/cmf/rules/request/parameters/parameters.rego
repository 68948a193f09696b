# METADATA
# title: Parameters stay within bounds
# description: |
#   A request whose parameters are outside the operator's bounds is refused: how much it may write, how many answers
#   it draws, how it samples. Parameters are looked for among the sampling settings, among what the wire adds, and in
#   what is said for models that its provider may turn to. Null says nothing.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/
# custom:
#   code: request.parameters
#   severity: warn
#   kinds: [request]
#   capabilities: []
#   standards: [OWASP-LLM10, NIST-SC-5, NIST-AI-RMF-MANAGE-2.4]
#   settings:
#     bounds:
#       type: object
#       additionalProperties:
#         type: object
#         minProperties: 1
#         properties:
#           min: {type: number}
#           max: {type: number}
#           one_of: {type: array, minItems: 1}
#           required: {type: boolean}
#         additionalProperties: false
package cmf.rules.request.parameters

deny contains {
	"code": "request.parameters",
	"reason": "A parameter of this request is out of bounds.",
	"detail": {"parameter": name},
} if {
	some [name, value] in (_given | _said_for_others)
	_breaks(_bounds[name], value)
}

deny contains {
	"code": "request.parameters.missing",
	"reason": "This request lacks a parameter that it needs here.",
	"detail": {"parameter": name},
} if {
	some name, bound in _bounds
	bound.required
	not name in {known | some [known, _] in _given}
}

_given contains said if {
	some place in _places
	some said in _among(place)
}

_said_for_others contains said if {
	some fields in _wires
	is_array(fields.fallbacks)
	some other in fields.fallbacks
	some said in _among(other)
}

_among(place) := {[name, place[name]] |
	some name, _ in _bounds
	place[name] != null
}

_places contains input.properties

_places contains input.properties.sampling

_places contains fields if some fields in _wires

_places contains fields.generationConfig if some fields in _wires

_places contains fields.options if some fields in _wires

# What rides along is under the name of its wire format; in a request that was made by hand it may stand by itself.
_wires contains input.properties.extra

_wires contains fields if some fields in input.properties.extra

_breaks(bound, value) if {
	_numeric(bound)
	not is_number(value)
}

_breaks(bound, value) if value < bound.min

_breaks(bound, value) if value > bound.max

_breaks(bound, value) if {
	is_array(bound.one_of)
	not value in bound.one_of
}

_numeric(bound) if is_number(bound.min)

_numeric(bound) if is_number(bound.max)

_bounds := data.cmf.defaults.request.parameters.bounds
