"""The adapter of Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

from cmf.adapters.anthropic_messages.parts_in import FORMAT
from cmf.adapters.anthropic_messages.request import HTTP, decode_request, encode_request
from cmf.adapters.anthropic_messages.response import decode_response, encode_response
from cmf.adapters.anthropic_messages.stream import Fold, LiveDecoder, events_of
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.driver import drive, is_whole
from cmf.adapters.wire.extra_body import reading_one_body
from cmf.adapters.wire.fields import extra_of
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.loss import locating_errors, respecting_critical
from cmf.adapters.wire.stream import StreamEvent
from cmf.message.request import Request, Response

_VERSION: Final = "2023-06-01"


class AnthropicMessagesAdapter(Adapter):
    """The Messages format, both directions. Every method is pure; `cmf.adapters.Adapter` describes each."""

    name: Final = FORMAT

    @reading_one_body
    @reading_exact_names
    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request; also of a body for counting tokens. Keeps the `anthropic-*` headers."""
        return decode_request(body, model=model, headers=headers)

    @respecting_critical
    def to_wire(self, request: Request) -> dict[str, Any]:
        """The body of the request."""
        return encode_request(request)

    def to_http(self, request: Request) -> HttpCall:
        """`POST /v1/messages`, with the version and the betas that the request came with."""
        came = extra_of(request, HTTP)
        return HttpCall(path="/v1/messages", headers={"anthropic-version": _VERSION, **came})

    @reading_exact_names
    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response, of a whole body or of the fold of a stream."""
        return decode_response(body, context)

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The body of the response."""
        return encode_response(response)

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The whole body that a stream adds up to; `cmf_partial` is true in it where the stream was cut."""
        fold = Fold()
        for event in events:
            fold.feed(event)
        return fold.body()

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The events that stream the response."""
        return events_of(encode_response(response), whole=response.error is None and is_whole(response))

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, LiveDecoder())


ADAPTER: Final = AnthropicMessagesAdapter()
