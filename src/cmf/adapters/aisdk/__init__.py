"""The Vercel AI SDK: UI messages, and the stream of chunks that builds one. Spec: docs/spec/adapters/aisdk.md."""

from typing import Final

from cmf.adapters.aisdk.message import (
    FORMAT,
    http_call,
    read_request,
    read_response,
    write_request,
    write_response,
)
from cmf.adapters.aisdk.stream import LiveDecoder, error_event, fold_events, write_events
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
    live_decoder=LiveDecoder,
)

__all__ = ["ADAPTER"]
