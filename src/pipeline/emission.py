"""The only door outward: what was not judged in full, exactly as it is, does not pass [C6]. Spec: [PIPE-6]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cmf import adapters
from cmf.adapters.base import WireEvent
from cmf.message import Message
from cmf.request import Request
from cmf.value import replace
from pipeline.certificate import problem_with, spend
from pipeline.errors import EmissionError
from pipeline.outcome import Outcome, bound


def emit(outcome: Outcome, target: str) -> Any:
    """The wire form, in format `target`, of what the outcome allows: a plain JSON value, once.

    Raises:
        EmissionError: nothing may go out, or not under this certificate; the code says why.
        CmfError: the target cannot express it.
    """
    return _emitted(outcome, lambda value: _encode(value, target))


def emit_events(outcome: Outcome, target: str) -> list[WireEvent]:
    """The same for a response that goes out as a stream: its events, made anew from what was judged.

    Raises:
        EmissionError: as `emit` does; also for what is no response.
    """
    if outcome.value is not None and outcome.response is None:
        raise EmissionError("only a response is streamed", code="emit.no-stream", hint="use emit")
    events: list[WireEvent] = _emitted(outcome, adapters.get(target).to_wire_events)
    return events


def _emitted(outcome: Outcome, encode: Callable[[Any], Any]) -> Any:
    value = outcome.value
    if value is None:
        raise EmissionError("policy let nothing through", code="emit.refused", hint="read the decision")
    problem = problem_with(outcome.certificate, bound(outcome), value)
    if problem or outcome.certificate is None:
        raise EmissionError("the value was not judged as it stands", code=problem, hint="run it through the pipeline")
    body = encode(value)
    if not spend(outcome.certificate):
        raise EmissionError(
            "the value went out already", code="emit.spent-certificate", hint="run it through the pipeline again"
        )
    return body


def _encode(value: Any, target: str) -> Any:
    if target == "canonical":
        return value.model_dump()
    adapter = adapters.get(target)
    if isinstance(value, Request):
        return adapter.to_wire(with_wire_model(value))
    if isinstance(value, Message):
        return adapter.to_wire(Request(messages=(value,)))
    return adapter.to_wire_response(value)


def with_wire_model(request: Request) -> Request:
    """The request with the provider's key taken off its model id: `anthropic:claude-x` is `claude-x` on the wire."""
    if request.model is None or ":" not in request.model:
        return request
    return replace(request, model=request.model.partition(":")[2])
