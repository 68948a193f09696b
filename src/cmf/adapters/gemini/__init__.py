"""The wire format of Gemini's `generateContent`. Spec: docs/spec/adapters/gemini.md."""

from typing import Final

from cmf.adapters.gemini.parts import FORMAT
from cmf.adapters.gemini.request import http_call, read_request, write_request
from cmf.adapters.gemini.response import (
    LiveDecoder,
    error_event,
    fold_events,
    join_texts,
    read_response,
    write_events,
    write_response,
)
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
    join_texts=join_texts,
)

__all__ = ["ADAPTER"]
