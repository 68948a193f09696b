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
	regex.match(pattern, _text)
}

deny contains {
	"code": "tools.definition-poisoned.server",
	"reason": "What this server says of itself or of what it offers gives the model orders.",
	"detail": {"pattern": name},
} if {
	_of_a_server
	some told in _told
	some name, pattern in _settings.patterns
	regex.match(pattern, _as_read(told))
}

warn contains {
	"code": "tools.definition-poisoned.other-tools",
	"reason": "The description of this tool says how other tools are to be used.",
} if {
	not _of_a_server
	some pattern in _settings.other_tools
	regex.match(pattern, _text)
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

_text := _as_read(scan.everything)

# As a model reads it: without what nobody sees, letters that look Latin as Latin ones.
_as_read(text) := strings.replace_n(_alike, regex.replace(text, _unseen, "")) if {
	regex.match(`[^\x00-\x7f]`, text)
} else := text

_unseen := `[\x{AD}\x{200B}-\x{200F}\x{2060}-\x{2064}\x{FE00}-\x{FE0F}\x{FEFF}]`

# Cyrillic and Greek look-alikes, and wide letters.
_alike := {
	"\u0430": "a", "\u0435": "e", "\u043e": "o", "\u0440": "p", "\u0441": "c", "\u0443": "y", "\u0445": "x",
	"\u0456": "i", "\u0458": "j", "\u0455": "s", "\u0501": "d", "\u04bb": "h", "\u03bf": "o", "\u03b1": "a",
	"\uff41": "a", "\uff42": "b", "\uff43": "c", "\uff44": "d", "\uff45": "e", "\uff46": "f", "\uff47": "g",
	"\uff48": "h", "\uff49": "i", "\uff4a": "j", "\uff4b": "k", "\uff4c": "l", "\uff4d": "m", "\uff4e": "n",
	"\uff4f": "o", "\uff50": "p", "\uff51": "q", "\uff52": "r", "\uff53": "s", "\uff54": "t", "\uff55": "u",
	"\uff56": "v", "\uff57": "w", "\uff58": "x", "\uff59": "y", "\uff5a": "z",
}

_settings := data.cmf.defaults.tools.definition_poisoned
