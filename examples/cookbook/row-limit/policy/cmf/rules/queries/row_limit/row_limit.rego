# METADATA
# title: Clamp an argument
# description: A query that asks for more rows than it may, or does not say how many, gets as many as it may.
# custom:
#   code: queries.row-limit
#   severity: info
#   kinds: [tool_call]
package cmf.rules.queries.row_limit

rewrite contains {
	"code": "queries.row-limit",
	"reason": "The query was limited.",
	"pointer": concat("", ["/arguments/", _bound.argument]),
	"value": _bound.at_most,
} if {
	_is_too_much
}

_is_too_much if {
	_is_number
	input.arguments[_bound.argument] > _bound.at_most
}

_is_too_much if not _is_said

deny contains {
	"code": "queries.row-limit.unreadable",
	"reason": "Say how many rows you need, as a number.",
	"detail": {"argument": _bound.argument, "at_most": _bound.at_most},
} if {
	_is_said
	not _is_number
}

_is_said if _bound.argument in object.keys(input.arguments)

_is_number if is_number(input.arguments[_bound.argument])

_bound := data.cmf.defaults.queries.row_limit.tools[input.uri]
