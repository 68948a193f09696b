"""MCP: JSON-RPC messages between a client and a tool server, both ways. Spec: docs/spec/adapters/mcp.md.

A body is one JSON-RPC message, or a batch of them. One reader serves all directions: what a server asks of a client
(sampling, elicitation) is read like what a client asks of a server.
"""

from typing import Final

from cmf.adapters.mcp.parts_in import FORMAT
from cmf.adapters.mcp.request import http_call, read_request, write_request
from cmf.adapters.mcp.response import read_response, write_response
from cmf.adapters.mcp.stream import ending, error_event, fold_events, live_decoder, write_events
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
