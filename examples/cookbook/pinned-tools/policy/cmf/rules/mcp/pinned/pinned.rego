# METADATA
# title: Pinned tool definitions
# description: A tool is offered to a model only with the description and the schema that somebody looked at.
# custom:
#   code: mcp.pinned
#   severity: critical
#   kinds: [tool_definition]
package cmf.rules.mcp.pinned

strip_tool contains {
	"code": "mcp.pinned",
	"reason": "This tool is not as it was when it was looked at.",
	"detail": {"tool": input.uri},
} if {
	not _as_pinned
}

_as_pinned if {
	pin := data.cmf.defaults.mcp.pins[input.uri]
	object.get(input, "content", "") == pin.description
	object.get(input.properties, "input_schema", {}) == pin.input_schema
}
