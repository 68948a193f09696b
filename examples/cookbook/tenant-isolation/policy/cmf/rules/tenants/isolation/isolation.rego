# METADATA
# title: Tenant isolation
# description: A tool that works on a tenant's data is called with the subject's own tenant.
# custom:
#   code: tenants.isolation
#   severity: critical
#   kinds: [tool_call]
#   capabilities: [read_claims]
package cmf.rules.tenants.isolation

deny contains {
	"code": "tenants.isolation",
	"reason": "This is not your organisation's data.",
} if {
	argument := _settings.tools[input.uri]
	not _own(argument)
}

_own(argument) if {
	tenant := input.extensions.security.subject.claims[_settings.claim]
	is_string(tenant)
	tenant != ""
	input.arguments[argument] == tenant
}

_settings := data.cmf.defaults.tenants.isolation
