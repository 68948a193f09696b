"""MCP servers behind the gateway, over streamable HTTP."""
