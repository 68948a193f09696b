"""The adapter of Gemini's `generateContent`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from cmf.adapters.gemini.parts_in import FORMAT
from cmf.adapters.gemini.request import decode_request, encode_request
from cmf.adapters.gemini.response import decode_response, encode_response
from cmf.adapters.gemini.stream import LiveDecoder, fold_events, wire_events
from cmf.adapters.wire.base import Adapter, Arriving, HttpCall, WireEvent
from cmf.adapters.wire.driver import drive
from cmf.adapters.wire.key_spelling import reading_exact_names
from cmf.adapters.wire.loss import locating_errors, respecting_critical
from cmf.adapters.wire.non_json_reply import error_text, is_unrecognized
from cmf.adapters.wire.single_text import in_one_text
from cmf.adapters.wire.stream import StreamEvent
from cmf.errors import UnsupportedError
from cmf.message.request import Request, Response


class GeminiAdapter(Adapter):
    """Gemini's JSON, both ways, whole and streamed. The model is in the path."""

    name = FORMAT

    @reading_exact_names
    def from_wire_request(
        self,
        body: Any,
        *,
        model: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """The canonical request of a body and the `model` in its path; the two may not name different ones [GEM-1]."""
        return decode_request(body, model)

    @respecting_critical
    def to_wire(self, request: Request) -> Any:
        """The request's body; UnsupportedError for arguments, files or tools that Gemini cannot take."""
        return encode_request(request)

    def to_http(self, request: Request) -> HttpCall:
        """`POST /v1beta/models/<model>:generateContent`, or `:streamGenerateContent?alt=sse` for a stream [GEM-1]."""
        if not request.model:
            raise UnsupportedError("Gemini's path names the model", path="model", hint="say which model is asked")
        model = quote(request.model.removeprefix("models/"), safe="")
        method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
        return HttpCall(path=f"/v1beta/models/{model}:{method}", headers={"content-type": "application/json"})

    @reading_exact_names
    def from_wire_response(
        self,
        body: Any,
        context: Request | None = None,
    ) -> Response:
        """The canonical response; an error body is a response with `error`."""
        return decode_response(body)

    def in_one_text(self, response: Response, *, streamed: bool = False) -> Response:
        """The response, if streamed with neighbouring texts as one: whoever reads the stream joins them [GEM-22]."""
        if not streamed:
            return response
        return in_one_text(response, FORMAT, is_own=lambda part: FORMAT in (part.extra or ()), neighbours=True)

    @locating_errors
    def to_wire_response(self, response: Response) -> Any:
        """The response's body."""
        return encode_response(response)

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The whole answer that the chunks add up to; marked where the stream was cut [GEM-21]."""
        return fold_events(events)

    @locating_errors
    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """Chunks that fold to the body of `to_wire_response`."""
        if is_unrecognized(response, FORMAT):
            return [{"data": {"error": {"message": error_text(response)}}}]
        return wire_events(encode_response(response))

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        return drive(self, events, context, LiveDecoder())


ADAPTER = GeminiAdapter()
