# METADATA
# title: Tools by role
# description: A tool is called only by a subject with a role that is listed for it.
# custom:
#   code: access.tools-by-role
#   severity: high
#   kinds: [tool_call]
#   capabilities: [read_roles]
package cmf.rules.access.tools_by_role

deny contains {
	"code": "access.tools-by-role",
	"reason": "None of your roles may use this tool.",
} if {
	not _allowed
}

_allowed if {
	some role in input.extensions.security.subject.roles
	some pattern in data.cmf.defaults.access.tools_by_role[role]
	glob.match(pattern, ["/"], input.uri)
}
