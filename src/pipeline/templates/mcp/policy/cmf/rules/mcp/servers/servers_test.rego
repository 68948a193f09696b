package cmf.rules.mcp.servers_test

import data.cmf.rules.mcp.servers

_known := {"known": ["_", "files"]}

test_denied_for_a_strange_server if {
	count(servers.deny) == 1 with input as {"kind": "tool_call", "uri": "tool://evil/read"}
		with data.cmf.defaults.mcp.servers as _known
}

test_denied_without_a_uri if {
	count(servers.deny) == 1 with input as {"kind": "tool_call"} with data.cmf.defaults.mcp.servers as _known
}

test_takes_a_strange_server_s_tools_off_the_list if {
	count(servers.strip_tool) == 1 with input as {"kind": "tool_definition", "uri": "tool://evil/read"}
		with data.cmf.defaults.mcp.servers as _known
}

test_allowed_for_a_known_server if {
	count(servers.deny) == 0 with input as {"kind": "tool_call", "uri": "tool://files/read"}
		with data.cmf.defaults.mcp.servers as _known
}
