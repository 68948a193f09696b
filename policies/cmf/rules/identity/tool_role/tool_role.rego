# METADATA
# title: Tools need the right role and permissions
# description: |
#   A tool call is refused when its subject lacks the roles or permissions that the operator asks for the tool, or the
#   permissions that the tool's own security profile names. A call without a known subject has none of them.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: identity.tool-role
#   severity: high
#   kinds: [tool_call, prompt_request, resource_ref]
#   capabilities: [read_roles, read_permissions, read_objects]
#   standards: [OWASP-LLM06, OWASP-ASI03, NIST-AC-3, NIST-AC-6, NIST-AI-RMF-GOVERN-3.2]
#   settings:
#     tools:
#       type: object
#       propertyNames: {format: uri-pattern}
#       additionalProperties:
#         type: object
#         minProperties: 1
#         properties:
#           roles: {type: array, items: {type: string, format: text}}
#           permissions: {type: array, minItems: 1, items: {type: string, format: text}}
#         additionalProperties: false
package cmf.rules.identity.tool_role

import data.cmf.lib

deny contains {
	"code": "identity.tool-role",
	"reason": "You do not have a role that may use this tool.",
	"detail": {"any_of_roles": need.roles},
} if {
	some need in _needs
	not _has_role(need)
}

deny contains {
	"code": "identity.tool-role.permission",
	"reason": "You do not have the permissions that this tool needs.",
	"detail": {"missing_permissions": missing},
} if {
	count(_needed_permissions) > 0
	missing := _needed_permissions - _permissions
	count(missing) > 0
}

_needs contains need if {
	some pattern, need in data.cmf.defaults.identity.tool_role.tools
	lib.tool_matches(input.uri, pattern)
}

# A call that cannot be told from another is held to every requirement.
_needs contains need if {
	not input.uri
	some need in data.cmf.defaults.identity.tool_role.tools
}

_has_role(need) if not need.roles

_has_role(need) if {
	some role in need.roles
	role in input.extensions.security.subject.roles
}

_needed_permissions contains permission if {
	some need in _needs
	some permission in need.permissions
}

_needed_permissions contains permission if some permission in input.extensions.security.object.permissions

_permissions contains permission if some permission in input.extensions.security.subject.permissions
