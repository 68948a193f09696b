# METADATA
# title: No requests to inner addresses
# description: |
#   A call, reference or picture by URL is refused when its host is loopback, private, link-local or a name for one of
#   these, when the host is a number in disguise (decimal, hex, octal, shortened), when one host is shown before an
#   `@` and another meant, and wherever the address of a cloud's metadata service stands. So is a message of MCP with
#   such an address in a field: pictures of a server or a tool, a page that a user is sent to, roots, references.
# related_resources:
#   - ref: https://owasp.org/www-community/attacks/Server_Side_Request_Forgery
# custom:
#   code: data.ssrf
#   severity: critical
#   kinds:
#     - audio
#     - document
#     - image
#     - prompt_request
#     - request
#     - resource
#     - resource_ref
#     - response
#     - tool_call
#     - tool_definition
#     - video
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-SC-7, NIST-SI-10, NIST-AI-RMF-MEASURE-2.7]
#   stream: {max_word: 8192}
#   settings:
#     allowed_hosts: {type: array, items: {type: string, format: host-pattern}}
#     internal_hosts: {type: array, minItems: 1, items: {type: string, format: host-pattern}}
#     metadata_hosts: {type: array, minItems: 1, items: {type: string, format: name, pattern: "^[^A-Z]+$"}}
package cmf.rules.data.ssrf

import data.cmf.lib.scan
import data.cmf.lib.urls

deny contains {
	"code": "data.ssrf.internal",
	"reason": "This asks for an address inside a network.",
} if {
	some found in urls.reached
	found.kind in {"field", "value"}
	not found.disguised
	host := found.host
	_internal(host)
	not urls.host_matches(host, _settings.allowed_hosts)
}

deny contains {
	"code": "data.ssrf.internal",
	"reason": "This asks for an address inside a network.",
} if {
	some found in urls.reached
	found.kind == "bare"
	host := found.host
	_known_inside(host)
	not urls.host_matches(host, _settings.allowed_hosts)
}

deny contains {
	"code": "data.ssrf.disguised",
	"reason": "This asks for an address that hides what it is.",
} if {
	some found in urls.reached
	found.disguised
	host := found.host
	not urls.host_matches(host, _settings.allowed_hosts)
}

deny contains {
	"code": "data.ssrf.disguised",
	"reason": "This asks for an address that hides what it is.",
} if {
	some found in urls.reached
	found.unreadable
}

deny contains {
	"code": "data.ssrf.misleading",
	"reason": "This address shows one host and means another.",
} if {
	some found in urls.reached
	found.misleading
}

deny contains {
	"code": "data.ssrf.unread",
	"reason": "What this asks for could not be read.",
} if {
	urls.unread
}

deny contains {
	"code": "data.ssrf.metadata",
	"reason": "This asks for the credentials of the machine that runs it.",
} if {
	some name in _metadata_named
	not urls.host_matches(name, _settings.allowed_hosts)
}

_metadata_named contains name if {
	not urls.has_fields
	regex.match(_metadata_hosts, _lowered)
	some name in _settings.metadata_hosts
	contains(_lowered, name)
}

# The same host in another spelling.
_metadata_named contains name if {
	some found in urls.reached
	some name in _settings.metadata_hosts
	trim(found.host, "[]") == name
}

_lowered := lower(concat("\n", scan.readings))

# All of them at once: most calls name none.
_metadata_hosts := concat("|", [literal |
	some name in _settings.metadata_hosts
	literal := regex.replace(name, `[\\.+*?()|\[\]{}^$]`, `\${0}`)
])

_internal(name) if urls.is_internal(name)

_internal(name) if urls.host_matches(name, _settings.internal_hosts)

_known_inside(name) if urls.is_internal(name)

_known_inside(name) if name in _settings.internal_hosts

_settings := data.cmf.defaults.data.ssrf
