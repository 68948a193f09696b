# METADATA
# title: Clamp an argument
# description: A query that asks for more rows than it may gets as many as it may.
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
	_says_how_many
	input.arguments[_bound.argument] > _bound.at_most
}

deny contains {
	"code": "queries.row-limit.missing",
	"reason": "Say how many rows you need.",
	"detail": {"argument": _bound.argument, "at_most": _bound.at_most},
} if {
	_bound
	not _says_how_many
}

_says_how_many if is_number(input.arguments[_bound.argument])

_bound := data.cmf.defaults.queries.row_limit.tools[input.uri]
