# METADATA
# title: Models by role
# description: A request names a model that one of the subject's roles may ask.
# custom:
#   code: models.by-role
#   severity: warn
#   kinds: [request]
#   capabilities: [read_roles]
package cmf.rules.models.by_role

deny contains {
	"code": "models.by-role",
	"reason": "You may not use this model.",
	"detail": {"allowed": _allowed},
} if {
	not _matches
}

_allowed contains pattern if {
	some role in input.extensions.security.subject.roles
	some pattern in data.cmf.defaults.models.by_role[role]
}

_matches if {
	some pattern in _allowed
	glob.match(pattern, ["/"], input.uri)
}
