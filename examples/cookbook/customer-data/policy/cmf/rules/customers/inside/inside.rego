# METADATA
# title: Customer data stays inside
# description: While the label `customer` is in force, or labels are not known, no tool is called that sends outside.
# custom:
#   code: customers.inside
#   severity: critical
#   kinds: [tool_call]
#   capabilities: [read_labels]
package cmf.rules.customers.inside

deny contains {
	"code": "customers.inside",
	"reason": "This conversation holds customer data, which stays inside.",
} if {
	_sends_outside
	not _clean
}

_sends_outside if {
	some pattern in data.cmf.defaults.customers.outside
	glob.match(pattern, ["/"], input.uri)
}

_clean if {
	labels := input.extensions.security.labels
	not "customer" in labels
}
