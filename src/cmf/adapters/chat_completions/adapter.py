"""The adapter of every format that has the chat-completions shape. Spec: docs/spec/adapters/openai_chat.md."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from cmf.adapters.chat_completions.decode import Names, decoded_message
from cmf.adapters.chat_completions.dialect import STREAM, Dialect
from cmf.adapters.chat_completions.encode import wire_messages, wire_request, wire_response
from cmf.adapters.chat_completions.envelope import decoded_request, decoded_response
from cmf.adapters.chat_completions.fold import fold
from cmf.adapters.chat_completions.kinship import as_own
from cmf.adapters.chat_completions.stream import LiveDecoder, events_of
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.driver import drive, is_whole
from cmf.adapters.wire.extra_body import reading_one_body
from cmf.adapters.wire.fields import MARK, extra_of, object_in, unmarked
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.layout import envelope_layout, respell, respell_envelope, shape_of, with_layout, with_spelling
from cmf.adapters.wire.loss import locating_errors, respecting_critical
from cmf.adapters.wire.single_text import in_one_text
from cmf.adapters.wire.stream import StreamEvent
from cmf.json.frozen import freeze
from cmf.json.value import replace
from cmf.message.message import Message, ToolCallPart
from cmf.message.request import Request, Response


class ChatCompletions(Adapter):
    """One format of the family; see `cmf.adapters.wire.base.Adapter` for what each method gives."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    @property
    def name(self) -> str:
        """The format's name."""
        return self._dialect.format

    # -- requests ------------------------------------------------------------------------------------------------------

    @reading_one_body
    @reading_exact_names
    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request; `model` where the body names none (a deployment in the path)."""
        listed: Any = body.get("messages") if isinstance(body, dict) else None
        rest = freeze(
            {key: item for key, item in body.items() if key != "messages"} if isinstance(body, dict) else body
        )
        head = decoded_request(rest, listed, self._dialect)
        layout = envelope_layout(wire_request(head, self._dialect), rest, format_name=self.name)
        names: Names = {}
        request = replace(head, messages=tuple([self._message(raw, at, names) for at, raw in enumerate(listed)]))
        request = request if layout is None else with_layout(request, layout)
        return request if model is None or request.model is not None else replace(request, model=model)

    def _message(self, raw: Any, index: int, names: Names) -> Message:
        raw = freeze(raw)
        path = f"$.messages[{index}]"
        decoded = decoded_message(raw, path, self._dialect, names)
        return with_spelling((decoded,), raw, format_name=self.name, index=index, path=path, encode=self._encode_group)[
            0
        ]

    def _encode_group(self, group: Sequence[Message]) -> Any:
        return wire_messages(group[0], self._dialect, CallIds())[0]

    def to_wire(self, request: Request) -> Any:
        """The request in this format; what it cannot say is dropped with a record, or refused [C8]."""
        return self._asked(as_own(request, self._dialect.asks_as, self.name))

    @respecting_critical
    def _asked(self, request: Request) -> Any:
        body = respell_envelope(
            wire_request(request, self._dialect),
            request,
            format_name=self.name,
            decode=lambda spelt: replace(decoded_request(freeze(spelt), [], self._dialect), messages=request.messages),
        )
        ids, names = CallIds(), Names()
        body["messages"] = [raw for one in request.messages for raw in self._written(one, ids, names)]
        return body

    def _written(self, one: Message, ids: CallIds, names: Names) -> list[Any]:
        if not shape_of(one, self.name):
            written = wire_messages(one, self._dialect, ids)
        else:
            written = [
                respell(
                    (one,),
                    format_name=self.name,
                    encode=lambda group: wire_messages(group[0], self._dialect, ids)[0],
                    decode=lambda raw: (decoded_message(freeze(raw), "$", self._dialect, dict(names)),),
                )
            ]
        for part in one.content:
            if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
                names[part.tool_call_id] = part.name
        return written

    def to_http(self, request: Request) -> HttpCall:
        """One path for everything."""
        return HttpCall(path=self._dialect.path, headers={"content-type": "application/json"})

    # -- responses -----------------------------------------------------------------------------------------------------

    @reading_exact_names
    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response; an error body is a response with `error`. The request is not needed."""
        raw = freeze(body)
        decoded = decoded_response(raw, self._dialect)
        if not isinstance(raw, dict):
            return decoded
        plain = wire_response(decoded, self._dialect)
        layout = envelope_layout(plain, unmarked(raw), format_name=self.name)
        return with_layout(decoded, layout) if layout is not None else decoded

    def in_one_text(self, response: Response, *, streamed: bool = False) -> Response:
        """The response with the texts that another format has as one, and its thinking."""
        own = as_own(response, self._dialect.answers_as, self.name)
        joined = in_one_text(own, self.name, is_own=lambda part: self._dialect.key_of(part) is not None)
        return response if joined is own else joined

    def to_wire_response(self, response: Response) -> Any:
        """The response in this format."""
        return self._answered(as_own(response, self._dialect.answers_as, self.name))

    @locating_errors
    def _answered(self, response: Response) -> Any:
        marks = {key: item for key, item in extra_of(response, self.name).items() if key.startswith(MARK)}
        body: Any = respell_envelope(
            wire_response(response, self._dialect),
            response,
            format_name=self.name,
            decode=lambda spelt: decoded_response(freeze({**spelt, **marks}), self._dialect),
        )
        return body

    # -- streams -------------------------------------------------------------------------------------------------------

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The whole response that the chunks add up to."""
        return fold(events)

    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The chunks that stream the response."""
        response = as_own(response, self._dialect.answers_as, self.name)
        whole = response.error is None and is_whole(response)
        aside = object_in(extra_of(response, self.name), STREAM)
        return events_of(self._answered(response), whole=whole, aside=aside)

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, LiveDecoder())
