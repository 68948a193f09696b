# METADATA
# title: Tools by role
# description: A tool that is listed with roles is called only by a subject that has one of them. Other tools are free.
# custom:
#   code: tools.by-role
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_roles]
package cmf.rules.tools.by_role

deny contains {
	"code": "tools.by-role",
	"reason": "You may not use this tool.",
	"detail": {"needs_one_of": needed},
} if {
	needed := data.cmf.defaults.tools.by_role[input.name]
	not _has_one_of(needed)
}

# Without a subject there are no roles.
_has_one_of(needed) if {
	some role in input.extensions.security.subject.roles
	role in needed
}
