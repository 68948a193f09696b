package cmf.rules.mcp.servers_test

import data.cmf.rules.mcp.servers

_denied(view) := count(hits) if {
	hits := servers.deny with input as view with data.cmf.defaults.mcp.servers.known as ["_", "files"]
}

_stripped(view) := count(hits) if {
	hits := servers.strip_tool with input as view with data.cmf.defaults.mcp.servers.known as ["_", "files"]
}

test_denied_for_a_strange_server if _denied({"kind": "tool_call", "uri": "tool://evil/read"}) == 1

test_denied_when_the_address_is_missing if _denied({"kind": "tool_call"}) == 1

test_strips_a_strange_servers_tools if _stripped({"kind": "tool_definition", "uri": "tool://evil/read"}) == 1

test_allowed_for_known_servers if {
	_denied({"kind": "tool_call", "uri": "tool://files/read"}) == 0
	_stripped({"kind": "tool_definition", "uri": "tool://_/read"}) == 0
}
