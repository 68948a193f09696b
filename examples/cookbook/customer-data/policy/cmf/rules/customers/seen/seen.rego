# METADATA
# title: Customer data was seen
# description: Results of the customer database, and texts with a customer number, are labelled.
# custom:
#   code: customers.seen
#   severity: info
#   kinds: [text, tool_result, resource]
package cmf.rules.customers.seen

label contains {
	"code": "customers.seen",
	"reason": "This holds customer data.",
	"label": "customer",
} if {
	_holds_some
}

_holds_some if {
	input.kind == "tool_result"
	input.name in data.cmf.defaults.customers.sources
}

_holds_some if regex.match(data.cmf.defaults.customers.pattern, input.content)
