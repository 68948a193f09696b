# METADATA
# title: Tools that the provider runs must be listed
# description: |
#   Web search, code execution and hosted MCP tools run at the provider: their calls never pass here. Offering or using
#   one is refused unless its URI is on the operator's list. So is a request with a field that has the provider search,
#   run code, or call servers of MCP, without a tool that says so.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm062025-excessive-agency/
# custom:
#   code: tools.provider-executed
#   severity: high
#   kinds: [request, tool_definition, tool_call]
#   capabilities: []
#   standards: [OWASP-LLM06, OWASP-ASI02, NIST-CM-7, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     allowed: {type: array, items: {type: string, format: tool-pattern}}
#     code_fields: {type: array, minItems: 1, items: {type: string, format: name}}
#     search_endings: {type: array, minItems: 1, items: {type: string, format: text}}
#     search_fields: {type: array, minItems: 1, items: {type: string, format: name}}
#     search_plugins: {type: array, minItems: 1, items: {type: string, format: name}}
package cmf.rules.tools.provider_executed

import data.cmf.lib

deny contains {
	"code": "tools.provider-executed",
	"reason": "This tool runs at the provider and is not on the list of allowed ones.",
} if {
	not _is_request
	not _runs_here
	not _allowed
}

deny contains {
	"code": "tools.provider-executed",
	"reason": "This request has the provider run a tool that is not on the list of allowed ones.",
} if {
	some uri in _asked_for
	not lib.any_uri_matches(uri, _settings.allowed)
}

_is_request if input.kind == "request"

_runs_here if input.properties.executed_by == "client"

_allowed if lib.any_uri_matches(input.uri, _settings.allowed)

# What a request has the provider run without a tool, by the URIs that definitions of the same would have.
_asked_for contains "tool://_/web_search" if {
	some fields in _places
	some name in _settings.search_fields
	said := fields[name]
	not _is_off(said)
}

_asked_for contains "tool://_/web_search" if {
	some fields in _fields
	some plugin in fields.plugins
	plugin.id in _settings.search_plugins
	not _is_off(plugin)
}

_asked_for contains "tool://_/web_search" if {
	some uri in _models
	some ending in _settings.search_endings
	contains(concat("", [_plain(uri), ":"]), concat("", [ending, ":"])) # others may follow it
}

# Some names of models end in switches: `m:enable_web_search=on&others=off`.
_asked_for contains "tool://_/web_search" if {
	some uri in _models
	some piece in split(_plain(uri), ":")
	some switch in split(piece, "&")
	sides := split(switch, "=")
	sides[0] in _settings.search_fields
	not _is_turned_off(sides)
}

_asked_for contains "tool://_/code_interpreter" if {
	some fields in _places
	some name in _settings.code_fields
	said := fields[name]
	not _is_off(said)
}

_asked_for contains uri if {
	some fields in _fields
	some server in fields.mcp_servers
	uri := concat("", ["tool://", _named(server), "/mcp"])
}

_fields contains fields if {
	_is_request
	some fields in input.properties.extra
}

# LiteLLM's proxy reads what is in `extra_body` as if it stood beside it.
_fields contains fields.extra_body if {
	_is_request
	some fields in input.properties.extra
}

# Some providers keep such fields in an object of theirs.
_places contains fields if some fields in _fields

_places contains inner if {
	some fields in _fields
	is_object(fields)
	some inner in fields
}

_models contains input.uri if _is_request

_models contains uri if {
	_is_request
	some uri in input.properties.other_models
}

_plain(uri) := replace(replace(replace(uri, "%3A", ":"), "%3D", "="), "%26", "&")

_is_turned_off(sides) if sides[1] in {"false", "off"}

_is_off(said) if said in {null, false, 0, "disabled", "none", "off"}

_is_off(said) if said.enable == false

_is_off(said) if said.enabled == false

_is_off(said) if said.mode == "off"

_is_off(said) if said.type == "disabled"

_named(server) := server.name if {
	regex.match(`^[0-9A-Za-z_-]+$`, server.name)
} else := "_"

_settings := data.cmf.defaults.tools.provider_executed
