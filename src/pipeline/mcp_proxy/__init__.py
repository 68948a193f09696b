"""MCP between a client and a server, each message judged. Spec: docs/spec/mcp-proxy.md."""
