"""A Python function guarded as a model: its request and its response are judged. Spec: guard.md [GRD-12] ff."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from cmf import adapters
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import MessageComplete, StreamError, StreamEvent, TextDelta, ThinkingDelta, ending
from cmf.json.frozen import thaw
from cmf.message.message import Message, TextPart, ThinkingPart
from cmf.message.request import Request, Response
from pipeline.decisions.context import Context
from pipeline.decisions.errors import CallError
from pipeline.decisions.events import CallFailed, Events
from pipeline.guarded.python_values import UNKNOWN, Spelled, hints_of, item_of, list_of, spelled
from pipeline.guarded.wrapping import Given, Yielded
from pipeline.run.emit import emit, emit_events
from pipeline.run.outcome import Outcome

_log: Final = logging.getLogger("pipeline.guard")
_EVENT_KEYS: Final = WireEvent.__annotations__.keys()


class ModelFunction:
    """A function that calls a model.

    Args:
        model: the `<provider>:<model>` that it calls, regardless of the request; None to use the request's model.
        dialect: the wire format that it takes and returns; None for `Request` and `Response`.

    Raises:
        UnknownFormatError: unknown `dialect`.
    """

    def __init__(self, function: Callable[..., Any], *, model: str | None = None, dialect: str | None = None) -> None:
        self.model = model
        self.dialect = dialect
        self.adapter = adapters.get(dialect) if dialect is not None else None
        self._function = function

    @cached_property
    def answer(self) -> Any:
        """The declared return type."""
        return hints_of(self._function).get("return", UNKNOWN)


class ModelCall:
    """One call of it; see `pipeline.guarded.wrapping.Call`."""

    def __init__(
        self, asks: ModelFunction, context: Context, events: Events, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        self._asks = asks
        self._events = events
        self._named: tuple[str, ...] | None = None
        self._body: Spelled | None = None
        self._result: Spelled | None = None
        self._streamed = self._bare = False
        self.context = context
        request = self._request(args, kwargs)
        self.asked = request if asks.model is None else request.with_options(model=asks.model)

    # -- before the call -----------------------------------------------------------------------------------------------

    def _request(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Request:
        adapter = self._asks.adapter
        if adapter is None:
            given = [*args, *kwargs.values()]
            if len(given) != 1 or not isinstance(given[0], Request):
                hint, code = "pass nothing else", "guard.not-a-request"
                raise CallError("the function takes exactly one Request", path="$", code=code, hint=hint)
            self._named = tuple(kwargs) or None
            return given[0]
        if len(args) + bool(kwargs) != 1:
            hint = "pass one body, or its fields by name"
            raise CallError("arguments besides the body would not be judged", code="guard.not-a-request", hint=hint)
        self._named = () if kwargs else None
        self._body = spelled(dict(kwargs) if kwargs else args[0], UNKNOWN, "$")
        return adapter.from_wire_request(thaw(self._body.json), model=self._asks.model)

    def admitted(self, outcome: Outcome) -> Given:
        """The request after policy, in its original form."""
        if outcome.request is None:
            raise CallError("a stage replaced the request", code="guard.other-request", hint="check the stages")
        self.asked = outcome.request
        labels = self.context.labels | outcome.labels
        self.context = self.context.model_copy(update={"labels": labels, "history": self.asked})
        if self._asks.dialect is None or self._body is None:
            name = self._named[0] if self._named else None
            return Given((outcome.request,), {}) if name is None else Given((), {name: outcome.request})
        body = emit(outcome, self._asks.dialect)
        return Given((), body) if self._named is not None else Given((self._body.made(body, "$"),), {})

    # -- after the call ------------------------------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """Emit an event and a log line with names and types, without the error's message, which may quote content."""
        kind = type(error).__name__
        _log.warning("the call of model %s failed: %s", self.asked.model, kind)
        self._events.publish(CallFailed(called=self.asked.model or "", error=kind))

    def failure(self, error: BaseException) -> None:
        """Nothing to judge: no model reads what the call of another one failed with."""

    def answered(self, result: Any) -> Response | Message:
        """The response, decoded from its wire form if it has one, and folded if it was a stream."""
        if isinstance(result, Yielded):
            self._streamed = True
            return self._folded(result)
        adapter = self._asks.adapter
        if adapter is None:
            if not isinstance(result, Response | Message):
                raise _no_response("return a Response or a Message")
            return result
        self._result = spelled(result, self._asks.answer, "$")
        return adapter.from_wire_response(thaw(self._result.json), self.asked)

    def _folded(self, result: Yielded) -> Response:
        adapter = self._asks.adapter
        if adapter is None:
            last = result.items[-1] if result.items else None
            response = last.partial if isinstance(last, StreamError) else getattr(last, "response", None)
            if not isinstance(last, MessageComplete | StreamError) or response is None:
                raise _no_response("end with a MessageComplete")
            return response
        self._result = spelled(result.items, list_of(item_of(self._asks.answer)), "$")
        items = thaw(self._result.json)
        self._bare = not all(isinstance(item, dict) and "data" in item and item.keys() <= _EVENT_KEYS for item in items)
        events: list[WireEvent] = items
        if self._bare:
            kinds = [item.get("type") if isinstance(item, dict) else None for item in items]
            events = [
                {"event": kind, "data": item} if isinstance(kind, str) else {"data": item}
                for kind, item in zip(kinds, items, strict=True)
            ]
        return adapter.from_wire_response(adapter.fold_events(events), self.asked)

    def released(self, outcome: Outcome) -> Any:
        """The response after policy, in its original form; a stream is rebuilt from it."""
        if self._streamed:
            return self._released_stream(outcome)
        dialect = self._asks.dialect
        value = outcome.value
        if not isinstance(value, Response | Message):
            raise _no_response("check the stages")
        if self._result is None or dialect is None:
            return value
        return self._result.made(emit(outcome, dialect), "$")

    def _released_stream(self, outcome: Outcome) -> Yielded:
        response = outcome.response
        if response is None:
            raise _no_response("check the stages")
        if self._result is None or self._asks.dialect is None:
            return Yielded(_canonical_events(response))
        events: list[Any] = list(emit_events(outcome, self._asks.dialect))
        if self._bare:
            events = [event["data"] for event in events if isinstance(event.get("data"), dict)]
        return Yielded(self._result.made(events, "$"))


def _canonical_events(response: Response) -> list[StreamEvent]:
    events: list[StreamEvent] = []
    for at, choice in enumerate(response.choices):
        for part in choice.message.content:
            if isinstance(part, TextPart):
                events.append(TextDelta(text=part.text, choice=at))
            elif isinstance(part, ThinkingPart):
                events.append(ThinkingDelta(text=part.text, choice=at))
    return events + ending(response)


def _no_response(hint: str) -> CallError:
    return CallError("the result is not a response", path="$", code="guard.not-a-response", hint=hint)
