# METADATA
# title: Changing tools are offered to some
# description: A tool that changes something is taken out of a request of somebody who may not use it.
# custom:
#   code: offers.changing
#   severity: info
#   kinds: [tool_definition]
#   capabilities: [read_roles]
package cmf.rules.offers.changing

strip_tool contains {
	"code": "offers.changing",
	"reason": "This tool is not offered to you.",
	"detail": {"tool": input.uri},
} if {
	_changes
	not _may
}

_changes if {
	some pattern in data.cmf.defaults.offers.changing
	glob.match(pattern, ["/"], input.uri)
}

_may if {
	some role in input.extensions.security.subject.roles
	role in data.cmf.defaults.offers.roles
}
