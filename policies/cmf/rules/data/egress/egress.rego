# METADATA
# title: Data goes to known hosts only
# description: |
#   A call of a tool that sends data outside names only hosts, and mail domains, that the operator allows: every URL
#   and every mail address among its arguments is looked at. So is what a model asks to have fetched.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm022025-sensitive-information-disclosure/
# custom:
#   code: data.egress
#   severity: high
#   kinds: [audio, document, image, request, resource_ref, response, tool_call, tool_definition, video]
#   capabilities: []
#   standards: [OWASP-LLM02, OWASP-LLM06, OWASP-ASI02, NIST-AC-4, NIST-SC-7, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_word: 8192}
#   settings:
#     tools: {type: array, minItems: 1, items: {type: string, format: tool-pattern}}
#     allowed_hosts: {type: array, items: {type: string, format: host-pattern}}
#     mail_domains: {type: array, items: {type: string, format: host-pattern}}
package cmf.rules.data.egress

import data.cmf.lib
import data.cmf.lib.scan
import data.cmf.lib.urls

deny contains {
	"code": "data.egress",
	"reason": "This would reach a host that is not allowed here.",
} if {
	not "*" in _settings.allowed_hosts
	_held
	some found in urls.asked
	host := found.host
	not urls.host_matches(host, _settings.allowed_hosts)
}

deny contains {
	"code": "data.egress",
	"reason": "This would reach a host that is not allowed here.",
} if {
	not "*" in _settings.allowed_hosts
	_held
	some found in urls.reached
	found.unreadable
}

deny contains {
	"code": "data.egress.unread",
	"reason": "What this would reach could not be read.",
} if {
	not "*" in _settings.allowed_hosts
	_held
	urls.unread
}

deny contains {
	"code": "data.egress.mail",
	"reason": "This would send mail to a domain that is not allowed here.",
} if {
	not "*" in _settings.mail_domains
	_held
	some text in scan.readings
	some groups in regex.find_all_string_submatch_n(_mail, text, -1)
	domain := lower(groups[1])
	not urls.host_matches(domain, _settings.mail_domains)
}

# What is written behind the last `@` of a run without spaces, up to what no domain holds.
_mail := `[^\x00-\x20"'<>@,;:/]@([^\x00-\x20"'<>@,;:/?#&)(\\]+)`

_held if not input.uri

_held if {
	input.kind != "tool_call"
	input.kind != "tool_definition"
}

_held if {
	input.kind == "tool_definition"
	input.properties.extra.mcp
}

_held if lib.any_tool_matches(input.uri, _settings.tools)

_settings := data.cmf.defaults.data.egress
