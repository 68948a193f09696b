# METADATA
# title: Only known MCP servers
# description: Tools of servers that are not listed are neither offered nor called.
# custom:
#   code: mcp.servers
#   severity: high
#   kinds: [tool_definition, tool_call]
package cmf.rules.mcp.servers

strip_tool contains {
	"code": "mcp.servers",
	"reason": "This server is not known here.",
	"detail": {"tool": input.uri},
} if {
	input.kind == "tool_definition"
	not _known
}

deny contains {
	"code": "mcp.servers",
	"reason": "This server is not known here.",
} if {
	input.kind == "tool_call"
	not _known
}

_known if split(input.uri, "/")[2] in data.cmf.defaults.mcp.servers.known
