"""MCP: JSON-RPC messages between a client and a tool server, both ways. Spec: docs/spec/adapters/mcp.md.

A body is one JSON-RPC message, or a batch of them. One reader serves all directions: what a server asks of a client
(sampling, elicitation) is read like what a client asks of a server.
"""

from cmf.adapters.mcp.message import ADAPTER as ADAPTER
