"""MCP: JSON-RPC messages between a client and a tool server, both ways. Spec: docs/spec/adapters/mcp.md.

A body is one JSON-RPC message, or a batch of them. One reader serves all directions: what a server asks of a client
(sampling, elicitation) is read like what a client asks of a server.
"""

from typing import Final

from cmf.adapters.mcp.message import (
    ending,
    error_event,
    fold_events,
    http_call,
    live_decoder,
    read_request,
    read_response,
    write_events,
    write_request,
    write_response,
)
from cmf.adapters.mcp.parts import FORMAT
from cmf.adapters.wire.base import Adapter

ADAPTER: Final = Adapter(
    name=FORMAT,
    read_request=read_request,
    write_request=write_request,
    to_http=http_call,
    read_response=read_response,
    write_response=write_response,
    fold=fold_events,
    write_events=write_events,
    error_event=error_event,
    live_decoder=live_decoder,
    ending=ending,
)

__all__ = ["ADAPTER"]
