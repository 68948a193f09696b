"""The adapter of every format that has the chat-completions shape. Spec: docs/spec/adapters/openai_chat.md."""

from __future__ import annotations

from functools import partial

from cmf.adapters.chat_completions.bodies import read_request, read_response, write_request, write_response
from cmf.adapters.chat_completions.dialect import Dialect, as_own
from cmf.adapters.chat_completions.stream import LiveDecoder, error_event, fold_events, write_events
from cmf.adapters.wire.base import Adapter, HttpCall
from cmf.adapters.wire.replies import in_one_text
from cmf.message.request import Request, Response


def adapter_of(dialect: Dialect) -> Adapter:
    """The adapter of one format of the family. What a kindred format kept is written as this one's own [OPR-6]."""
    call = HttpCall(path=dialect.path, headers={"content-type": "application/json"})

    def asked(request: Request) -> Request:
        return as_own(request, dialect.asks_as, dialect.format)

    def answered(response: Response) -> Response:
        return as_own(response, dialect.answers_as, dialect.format)

    def join_texts(response: Response, streamed: bool) -> Response:
        own = answered(response)
        joined = in_one_text(own, dialect.format, is_own=lambda part: dialect.key_of(part) is not None)
        return response if joined is own else joined

    return Adapter(
        name=dialect.format,
        read_request=partial(read_request, dialect),
        write_request=lambda request: write_request(dialect, asked(request)),
        to_http=lambda request: call,
        read_response=partial(read_response, dialect),
        write_response=lambda response: write_response(dialect, answered(response)),
        fold=fold_events,
        write_events=lambda response: write_events(dialect, answered(response)),
        error_event=error_event,
        live_decoder=LiveDecoder,
        join_texts=join_texts,
        merges_extra_body=True,
    )
