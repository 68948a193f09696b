# METADATA
# title: Arguments stay within bounds
# description: |
#   What a tool's schema cannot say, or says too widely: an argument outside the operator's smallest or largest value,
#   length, list of values or form is refused, and so is one of another type, or one that must be there and is not.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: tools.argument-bounds
#   severity: high
#   kinds: [prompt_request, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM05, OWASP-LLM06, OWASP-ASI02, NIST-SI-10, NIST-AI-RMF-MANAGE-2.4]
#   settings:
#     bounds:
#       type: object
#       propertyNames: {format: uri-pattern}
#       additionalProperties:
#         type: object
#         minProperties: 1
#         additionalProperties:
#           type: object
#           minProperties: 1
#           properties:
#             min: {type: number}
#             max: {type: number}
#             max_length: {type: integer, minimum: 0}
#             pattern: {type: string, format: expression}
#             one_of: {type: array, minItems: 1}
#             required: {type: boolean}
#           additionalProperties: false
package cmf.rules.tools.argument_bounds

import data.cmf.lib

deny contains {
	"code": "tools.argument-bounds",
	"reason": "An argument of this call is out of bounds.",
	"detail": {"argument": name},
} if {
	some bounds in _bounds
	some name, bound in bounds
	value := input.arguments[name]
	_breaks(bound, value)
}

deny contains {
	"code": "tools.argument-bounds.missing",
	"reason": "This call lacks an argument that it needs here.",
	"detail": {"argument": name},
} if {
	some bounds in _bounds
	some name, bound in bounds
	bound.required
	not name in _given
}

_given contains name if some name, _ in input.arguments

_bounds contains bounds if {
	some pattern, bounds in data.cmf.defaults.tools.argument_bounds.bounds
	lib.tool_matches(input.uri, pattern)
}

# A call that cannot be told from another is held to every bound.
_bounds contains bounds if {
	not input.uri
	some bounds in data.cmf.defaults.tools.argument_bounds.bounds
}

_breaks(bound, value) if {
	not is_number(value)
	some limit in ["min", "max"]
	is_number(bound[limit])
}

_breaks(bound, value) if {
	is_number(value)
	value < bound.min
}

_breaks(bound, value) if {
	is_number(value)
	value > bound.max
}

_breaks(bound, value) if {
	not is_string(value)
	some limit in ["max_length", "pattern"]
	bound[limit]
}

_breaks(bound, value) if {
	is_string(value)
	count(split(value, "")) > bound.max_length
}

_breaks(bound, value) if {
	is_string(value)
	pattern := bound.pattern
	not regex.match(pattern, value)
}

_breaks(bound, value) if {
	is_array(bound.one_of)
	not value in bound.one_of
}
