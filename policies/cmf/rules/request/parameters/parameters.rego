# METADATA
# title: Parameters stay within bounds
# description: |
#   A request whose parameters are outside the operator's bounds is refused: how much it may write, how many answers
#   it draws, how it samples. Parameters are looked for among the sampling settings and among what the wire adds.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm102025-unbounded-consumption/
# custom:
#   code: request.parameters
#   severity: warn
#   kinds: [request]
#   capabilities: []
#   standards: [OWASP-LLM10, NIST-SC-5, NIST-AI-RMF-MANAGE-2.4]
package cmf.rules.request.parameters

deny contains {
	"code": "request.parameters",
	"reason": "A parameter of this request is out of bounds.",
	"detail": {"parameter": name},
} if {
	some [name, value] in _given
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

_given contains [name, value] if {
	some name, _ in _bounds
	some place in _places
	value := place[name]
}

_places contains input.properties.sampling

_places contains input.properties.extra

_places contains input.properties.extra.generationConfig

_places contains input.properties.extra.options

_places contains input.properties

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
