"""MCP: JSON-RPC messages between a client and a tool server, both ways. Spec: docs/spec/adapters/mcp.md.

One reader serves all directions: what a server asks of a client (sampling, elicitation) is read like what a client asks
of a server, and a stream or batch is read message by message.
"""

from cmf.adapters.mcp.adapter import ADAPTER

__all__ = ["ADAPTER"]
