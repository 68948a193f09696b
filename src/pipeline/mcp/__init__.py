"""A proxy between an MCP client and an MCP server: policy decides on each message. Spec: docs/spec/mcp-proxy.md."""
