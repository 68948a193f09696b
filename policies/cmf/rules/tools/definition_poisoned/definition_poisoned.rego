# METADATA
# title: Tool definitions do not give orders
# description: |
#   A definition that speaks to the model behind the user's back is refused: that something be hidden from the user,
#   that earlier instructions be dropped, that keys be read, in tags that look like the system's own, or behind a
#   screen of blank space. So is what an MCP server says of itself, of its prompts and resources, and to a user whom it
#   asks. A definition that says what to do when another tool is called is named in the record.
# related_resources:
#   - ref: https://genai.owasp.org/llmrisk/llm012025-prompt-injection/
# custom:
#   code: tools.definition-poisoned
#   severity: critical
#   kinds: [request, resource, response, text, tool_definition]
#   capabilities: []
#   standards: [OWASP-LLM01, OWASP-LLM03, OWASP-ASI01, OWASP-ASI04, NIST-SI-10, NIST-AI-RMF-MANAGE-3.1]
#   settings:
#     patterns: {type: object, minProperties: 1, additionalProperties: {type: string, format: expression}}
#     other_tools: {type: array, items: {type: string, format: expression}}
#   stream: {max_word: 64}
package cmf.rules.tools.definition_poisoned

import data.cmf.lib.scan

deny contains {
	"code": "tools.definition-poisoned",
	"reason": "The description of this tool gives the model orders.",
	"detail": {"pattern": name},
} if {
	not _of_a_server
	some name, pattern in _settings.patterns
	regex.match(pattern, scan.everything)
}

deny contains {
	"code": "tools.definition-poisoned.server",
	"reason": "What this server says of itself or of what it offers gives the model orders.",
	"detail": {"pattern": name},
} if {
	_of_a_server
	some told in _told
	some name, pattern in _settings.patterns
	regex.match(pattern, told)
}

warn contains {
	"code": "tools.definition-poisoned.other-tools",
	"reason": "The description of this tool says how other tools are to be used.",
} if {
	not _of_a_server
	some pattern in _settings.other_tools
	regex.match(pattern, scan.everything)
}

_of_a_server if input.kind in {"request", "resource", "response", "text"}

# Texts outside of results that nobody but a server of MCP sends: its instructions, what it asks a user, how far it is.
_told contains scan.everything if {
	input.kind == "text"
	input.role == "tool"
	not input.properties.container
}

# What a listing says of a resource; its content is data.
_told contains json.marshal(input.properties) if input.kind == "resource"

_told contains input.name if input.kind == "resource"

_told contains json.marshal(message) if some message in _messages

# The same in other letters, in escapes or encoded.
_told contains told if {
	input.kind == "resource"
	some told in input.spelled
}

_told contains told if {
	count(_messages) > 0
	some told in input.spelled
}

_messages contains message if {
	input.kind in {"request", "response"}
	mcp := input.properties.extra.mcp
	some message in array.concat([mcp], object.get(mcp, "batch", []))
	_describes(message)
}

_describes(message) if message.answers in _describing

_describes(message) if message.envelope.method == "elicitation/create"

_describes(message) if message.error.data.elicitations

_describing := {
	"initialize", "prompts/get", "prompts/list", "resources/list", "resources/templates/list", "server/discover",
	"tools/list",
}

_settings := data.cmf.defaults.tools.definition_poisoned
