"""What every adapter can do. Adapters are pure: no ids or times are minted [A2], nothing is gated [C6], no SDK is used.

Spec: docs/spec/adapters.md, docs/spec/streaming.md.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NotRequired, TypeAlias, TypedDict, TypeVar, cast

from cmf.adapters.wire.key_spelling import refuse_other_spellings
from cmf.adapters.wire.loss import critical, path_of
from cmf.adapters.wire.replies import error_text, is_unrecognized, write_unrecognized
from cmf.adapters.wire.stream import StreamError, StreamEvent, ending
from cmf.errors import CmfError, ProjectionError, ShapeError
from cmf.json.codec import dumps
from cmf.json.value import replace
from cmf.message.message import MediaPart, Part, PromptResultPart, ToolResultPart
from cmf.message.request import ErrorInfo, Request, Response
from cmf.models.capabilities import ModelCapabilities, lookup

_EXTRA_BODY: Final = "extra_body"
BYTES_PER_TOKEN: Final = 4  # of UTF-8 English text, by the providers' own rule of thumb
MESSAGE_TOKENS: Final = 4  # what a turn costs beside its text
MEDIA_TOKENS: Final = 1_000  # for an image, sound or page of which nothing else is known
_ANSWERS: Final = frozenset({"n", "best_of", "candidateCount", "candidate_count"})
_V = TypeVar("_V", bound=Request | Response)


class WireEvent(TypedDict):
    """One event of a stream, whatever its framing: `data` is JSON, or a string that is no JSON (`[DONE]`)."""

    data: NotRequired[Any]
    event: NotRequired[str]
    id: NotRequired[str]
    comment: NotRequired[str]


Arriving: TypeAlias = AsyncIterable[WireEvent] | Iterable[WireEvent]
"""The events of a stream as they arrive, or as a list that is there already."""

EventDecoder = Callable[[WireEvent], Iterable[StreamEvent]]
"""What one wire event adds at once: `TextDelta`, `ThinkingDelta`, `ToolUseStart`, `ToolUseInputDelta`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """The facts that a format keeps outside its body: method, path (with query) and headers."""

    method: str = "POST"
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One wire format, both directions, whole and streamed. `body` is a plain JSON value.

    A format gives the functions below; the methods add to them what holds for every format. Readers raise ShapeError
    where a body does not fit, writers UnsupportedError and LossyProjectionError for what the format cannot say.

    Attributes:
        name: the format's name, as in `cmf.adapters.get(name)`.
        read_request: the request of a body; its model and its headers, where the format keeps facts in them.
        write_request: the body of a request.
        to_http: method, path and headers of the call.
        read_response: the response of a body; the second argument is the request, if it is known.
        write_response: the body of a response.
        fold: the whole body that the events of a stream add up to, with the mark `cmf_partial` if they have no end.
        write_events: the events that fold to the body of the response.
        error_event: the event for a reply that was not in its format, from a text that says so and the reply itself.
        live_decoder: makes the decoder for the events of one stream. It never raises for their form: the fold does.
        ending: the last canonical events of a stream whose fold was read as this response.
        join_texts: the response with one text where the format, or its stream (`True`), has one.
        merges_extra_body: whether LiteLLM's proxy serves it, which puts the fields of `extra_body` in place of others.
    """

    name: str
    read_request: Callable[[Any, str | None, Mapping[str, str]], Request]
    write_request: Callable[[Request], Any]
    to_http: Callable[[Request], HttpCall]
    read_response: Callable[[Any, Request | None], Response]
    write_response: Callable[[Response], Any]
    fold: Callable[[Iterable[WireEvent]], Any]
    write_events: Callable[[Response], list[WireEvent]]
    error_event: Callable[[str, Any], WireEvent]
    live_decoder: Callable[[], EventDecoder]
    ending: Callable[[Response], list[StreamEvent]] = ending
    join_texts: Callable[[Response, bool], Response] | None = None
    merges_extra_body: bool = False

    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request. `model` where the format keeps it in the path.

        Raises:
            CmfError: with a JSON path; also for what other readers may read otherwise [ADP-17], [ADP-18].
        """
        request = self.read_request(body, model, headers or {})
        refuse_other_spellings(request)
        if self.merges_extra_body and isinstance(body, Mapping) and isinstance(body.get(_EXTRA_BODY), Mapping):
            merged = {**{key: item for key, item in body.items() if key != _EXTRA_BODY}, **body[_EXTRA_BODY]}
            _refuse_override(request, self.from_wire_request(merged, model=model, headers=headers))
        return request

    def to_wire(self, request: Request) -> Any:
        """The request in this format; what it cannot say is dropped with a record, or refused [C8]."""
        if not request.critical_kinds:
            return _located(self.write_request, request)
        with critical(request.critical_kinds):
            return _located(self.write_request, replace(request, critical_kinds=()))

    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response; never refuses for lack of context. An error body is a response with `error`."""
        response = self.read_response(body, context)
        refuse_other_spellings(response)
        return response

    def to_wire_response(self, response: Response) -> Any:
        """The response in this format."""
        if is_unrecognized(response, self.name):
            return write_unrecognized(response, self.name)
        return _located(self.write_response, response)

    def in_one_text(self, response: Response, *, streamed: bool = False) -> Response:
        """The response with one text where this format, or its stream, has one: what is to be judged and written."""
        return response if self.join_texts is None else self.join_texts(response, streamed)

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The provider's own whole-response body that the events add up to; a cut stream decodes to `partial`."""
        return self.fold(events)

    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The events that stream the response; they fold to the same body as `to_wire_response`."""
        if is_unrecognized(response, self.name):
            return [self.error_event(error_text(response), write_unrecognized(response, self.name))]
        events: list[WireEvent] = _located(self.write_events, response)
        return events

    async def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives: what each event adds, then the end [STR-1] to [STR-5].

        The live events are a preview. What the answer *is* comes from the fold of all events, read by the reader of
        whole responses, so that a streamed and a whole answer cannot differ. The end is, for a whole answer: each tool
        call with its arguments, the usage, `MessageComplete`. For one that was cut, broke off with an error, or cannot
        be read: `StreamError`, with what had arrived.
        """
        received: list[WireEvent] = []
        decode = self.live_decoder()
        async for item in _arriving(events):
            received.append(item)
            try:
                added = list(decode(cast("WireEvent", item))) if isinstance(item, dict) else []
            except CmfError:
                continue  # text that is no text; the fold refuses it in a moment
            for live_event in added:
                yield live_event
        try:
            response = self.from_wire_response(self.fold(received), context)
        except CmfError as error:
            yield StreamError(error=ErrorInfo(message=error.message, type=error.code))
            return
        for last_event in self.ending(response):
            yield last_event

    def estimate_input_tokens(self, request: Request) -> int:
        """Roughly how many tokens the request is, before asking."""
        return estimate(request)

    def capabilities(self, model: str) -> ModelCapabilities:
        """What the model can do through this format; an unknown model gets the most restrictive answer [F7]."""
        return lookup(self.name, model)


def _refuse_override(request: Request, merged: Request) -> None:
    """Fields that adapters only keep and show may stand in `extra_body`: rules find them there."""
    if replace(merged, extra=None) != replace(request, extra=None):
        raise ShapeError(
            "what is in it would take the place of fields beside it, for some readers",
            path=f"$.{_EXTRA_BODY}",
            code="shape.overridden",
            hint=f"write these fields beside `{_EXTRA_BODY}`",
        )


def _located(write: Callable[[_V], Any], value: _V) -> Any:
    """What `write` makes of the value; its refusals have the path, as views have it, of what the format cannot say."""
    try:
        return write(value)
    except ProjectionError as error:
        error.path = error.path or path_of(error.about, value)
        raise


async def _arriving(events: Arriving) -> AsyncIterator[Any]:
    """The events one by one; a caller's list may hold what is none, which the fold refuses."""
    if isinstance(events, AsyncIterable):
        async for event in events:
            yield event
    else:
        for event in events:
            yield event


# -- roughly how many tokens a request is, for routing and limits before anything is sent ------------------------------


def estimate(request: Request) -> int:
    """Tokens of all text, tool definitions and schemas at four bytes each, rounded up, plus a fixed sum per turn."""
    size = media = 0
    for message in request.messages:
        for part in message.content:
            text, pieces = _weight(part)
            size += text
            media += pieces
    for tool in request.tools:
        size += len(tool.name.encode()) + len((tool.description or "").encode()) + len(dumps(tool.input_schema or {}))
    if request.response_schema is not None:
        size += len(dumps(request.response_schema))
    return -(-size // BYTES_PER_TOKEN) + MESSAGE_TOKENS * len(request.messages) + MEDIA_TOKENS * media


def answers(request: Request) -> int:
    """How many answers the request asks for, each of which may have the greatest length: 1 unless it names more."""
    return max((1, *_counts(request.extra or {}, depth=2)))


def _counts(extra: Mapping[str, Any], depth: int) -> Iterator[int]:
    """The counts of answers in these fields and in objects within: under the format's name, and in its settings."""
    for key, item in extra.items():
        if key in _ANSWERS and isinstance(item, int | float):
            yield math.ceil(item)
        elif depth and isinstance(item, dict):
            yield from _counts(item, depth - 1)


def _weight(part: Part) -> tuple[int, int]:
    """Bytes of text, and pieces of media."""
    if isinstance(part, MediaPart):
        return 0, 1
    nested: tuple[Any, ...] = ()
    if isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        nested = part.content
    elif isinstance(part, PromptResultPart):
        nested = tuple(inner for message in part.messages for inner in message.content)
    if nested:
        weights = [_weight(inner) for inner in nested]
        return sum(text for text, _ in weights), sum(pieces for _, pieces in weights)
    own = {name: item for name, item in part.model_dump().items() if name not in ("content_type", "extra")}
    return sum(len(item.encode()) if isinstance(item, str) else len(dumps(item)) for item in own.values()), 0
