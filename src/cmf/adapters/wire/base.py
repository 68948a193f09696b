"""What every adapter can do. Adapters are pure: no ids or times are minted [A2], nothing is gated [C6], no SDK is used.

Spec: docs/spec/adapters.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, Protocol, TypeAlias, TypedDict

from cmf.adapters.wire.stream import StreamEvent
from cmf.adapters.wire.tokens import estimate
from cmf.message.request import Request, Response
from cmf.models.capabilities import ModelCapabilities, lookup


class WireEvent(TypedDict):
    """One event of a stream, whatever its framing: `data` is JSON, or a string that is no JSON (`[DONE]`)."""

    data: NotRequired[Any]
    event: NotRequired[str]
    id: NotRequired[str]
    comment: NotRequired[str]


Arriving: TypeAlias = AsyncIterable[WireEvent] | Iterable[WireEvent]
"""The events of a stream as they arrive, or as a list that is there already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """The facts that a format keeps outside its body: method, path (with query) and headers."""

    method: str = "POST"
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Adapter(Protocol):
    """One wire format, both directions, whole and streamed. `body` is a plain JSON value.

    An adapter derives from it: what most formats do alike is done here.
    """

    @property
    def name(self) -> str:
        """The format's name, as in `cmf.adapters.get(name)`."""
        ...

    def from_wire_request(
        self, body: Any, *, model: str | None = None, headers: Mapping[str, str] | None = None
    ) -> Request:
        """The canonical request. `model` where the format keeps it in the path. Raises CmfError with a JSON path."""
        ...

    def to_wire(self, request: Request) -> Any:
        """The request in this format; what it cannot say is dropped with a record, or refused [C8]."""
        ...

    def to_http(self, request: Request) -> HttpCall:
        """Method, path and headers of the call."""
        ...

    def from_wire_response(self, body: Any, context: Request | None = None) -> Response:
        """The canonical response; never refuses for lack of context. An error body is a response with `error`."""
        ...

    def to_wire_response(self, response: Response) -> Any:
        """The response in this format."""
        ...

    def in_one_text(self, response: Response, *, streamed: bool = False) -> Response:
        """The response with one text where this format, or its stream, has one: what is to be judged and written."""
        return response

    def fold_events(self, events: Iterable[WireEvent]) -> Any:
        """The provider's own whole-response body that the events add up to; a cut stream decodes to `partial`."""
        ...

    def to_wire_events(self, response: Response) -> list[WireEvent]:
        """The events that stream the response; they fold to the same body as `to_wire_response`."""
        ...

    def stream_response(self, events: Arriving, context: Request | None = None) -> AsyncIterator[StreamEvent]:
        """The canonical events of a stream as it arrives."""
        ...

    def estimate_input_tokens(self, request: Request) -> int:
        """Roughly how many tokens the request is, before asking."""
        return estimate(request)

    def capabilities(self, model: str) -> ModelCapabilities:
        """What the model can do through this format; an unknown model gets the most restrictive answer [F7]."""
        return lookup(self.name, model)
