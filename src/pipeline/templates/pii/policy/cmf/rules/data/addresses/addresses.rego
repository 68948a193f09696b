# METADATA
# title: Mail addresses are masked
# description: |
#   Mail addresses in texts, other than those of our own domains, do not leave. In arguments they are refused.
# custom:
#   code: data.addresses
#   severity: high
#   kinds: [text, tool_call]
package cmf.rules.data.addresses

redact contains {
	"code": "data.addresses",
	"reason": "A mail address was masked.",
	"spans": spans,
	"replacement": "mask",
} if {
	input.kind == "text"
	spans := [[at, at + count(found)] |
		some found in _strange
		some at in indexof_n(input.content, found)
	]
	count(spans) > 0
}

deny contains {
	"code": "data.addresses",
	"reason": "This call holds a mail address of somebody else's domain.",
} if {
	input.kind == "tool_call"
	count(_strange) > 0
}

_strange contains found if {
	some found in regex.find_n(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+`, input.content, -1)
	not _ours(found)
}

_ours(address) if {
	some domain in data.cmf.defaults.data.addresses.own_domains
	endswith(lower(address), concat("", ["@", domain]))
}
