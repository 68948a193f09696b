# METADATA
# title: Tenants keep to their own
# description: |
#   What belongs to a tenant is reached only by subjects of that tenant: by URI, and by arguments that name one. The
#   subject's tenant is a claim that the host vouches for; without it a subject is of no tenant.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: identity.tenant-isolation
#   severity: critical
#   kinds: [prompt_request, resource, resource_ref, tool_call]
#   capabilities: [read_claims]
#   standards: [OWASP-LLM02, OWASP-LLM08, OWASP-ASI03, NIST-AC-3, NIST-AC-4, NIST-AI-RMF-MEASURE-2.10]
#   settings:
#     claim: {type: string, format: text}
#     tenants_by_uri:
#       type: object
#       propertyNames: {format: uri-pattern}
#       additionalProperties: {type: array, items: {type: string, format: text}}
#     tenant_arguments: {type: array, items: {type: string, format: name}}
package cmf.rules.identity.tenant_isolation

import data.cmf.lib

deny contains {
	"code": "identity.tenant-isolation",
	"reason": "This belongs to another tenant.",
} if {
	some pattern, tenants in _settings.tenants_by_uri
	_meant(pattern)
	not _of_one_of(tenants)
}

deny contains {
	"code": "identity.tenant-isolation.argument",
	"reason": "This names another tenant.",
	"detail": {"argument": name},
} if {
	some name in _settings.tenant_arguments
	named := input.arguments[name]
	not _of_one_of([named])
}

_meant(pattern) if lib.tool_matches(input.uri, pattern)

# What cannot be told from another may be anybody's.
_meant(_) if not input.uri

_of_one_of(tenants) if input.extensions.security.subject.claims[_settings.claim] in tenants

_settings := data.cmf.defaults.identity.tenant_isolation
