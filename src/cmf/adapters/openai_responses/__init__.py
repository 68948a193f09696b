"""The OpenAI Responses format (`/v1/responses`). Spec: docs/spec/adapters/openai_responses.md.

Each item of `input` is one message; the items of an answer are the parts of one.
"""

from typing import Final

from cmf.adapters.openai_responses.bodies import http_call, read_request, read_response, write_request, write_response
from cmf.adapters.openai_responses.parts import FORMAT
from cmf.adapters.openai_responses.stream import LiveDecoder, error_event, fold_events, write_events
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
    merges_extra_body=True,
)

__all__ = ["ADAPTER"]
