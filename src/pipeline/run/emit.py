"""The only door outward: what was not judged in full, exactly as it is, does not pass [C6]. Spec: [PIPE-6]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from cmf import adapters
from cmf.adapters.wire.base import Adapter, WireEvent
from cmf.errors import UnsupportedError
from cmf.json.value import replace
from cmf.message.message import Message
from cmf.message.model_ids import provider_and_name
from cmf.message.request import Request, Response
from pipeline.decisions.certificate import problem_with, spend
from pipeline.decisions.errors import EmissionError
from pipeline.run.outcome import Outcome, bound

_Named = TypeVar("_Named", Request, Response)


def emit(outcome: Outcome, target: str) -> Any:
    """What the outcome lets out, as plain JSON in the wire format `target`. An outcome can be emitted once.

    Raises:
        EmissionError: nothing may go out, or not under this certificate; the code says why.
        CmfError: the target cannot express it, or would join texts of an answer that were judged apart.
    """
    return _emitted(outcome, lambda value: _encode(value, target))


def emit_events(outcome: Outcome, target: str) -> list[WireEvent]:
    """What the outcome lets out of a response, as the events of a stream: made anew from what was judged.

    Raises:
        EmissionError: as `emit` does; also for what is no response.
    """
    if _checked(outcome).value is not None and outcome.response is None:
        raise EmissionError("only a response is streamed", code="emit.no-stream", hint="use emit")
    adapter = adapters.get(target)

    def encode(value: Response) -> list[WireEvent]:
        return adapter.to_wire_events(with_wire_model(_in_one_piece(value, adapter, streamed=True)))

    events: list[WireEvent] = _emitted(outcome, encode)
    return events


def _emitted(outcome: Outcome, encode: Callable[[Any], Any]) -> Any:
    value = _checked(outcome).value
    if value is None:
        raise EmissionError("policy let nothing through", code="emit.refused", hint="read the decision")
    problem = problem_with(outcome.certificate, bound(outcome), value)
    if problem or outcome.certificate is None:
        raise _unfit(problem)
    body = encode(value)
    if not spend(outcome.certificate):
        raise _unfit("emit.spent-certificate")
    return body


def _checked(outcome: object) -> Outcome:
    if not isinstance(outcome, Outcome):
        hint = "give what guard.check or guard.run returned"
        raise EmissionError("only an outcome goes out", code="emit.no-outcome", hint=hint)
    return outcome


def _unfit(code: str) -> EmissionError:
    """The error for a certificate that permits no emission; most often it was used before."""
    what = _USED.get(code, "the value was not judged as it stands")
    return EmissionError(what, code=code, hint="run it through the pipeline" + (" again" if code in _USED else ""))


_USED: Final = {
    "emit.spent-certificate": "the value went out already",
    "emit.stale-certificate": "the value was judged too long ago",
}


def _encode(value: Any, target: str) -> Any:
    if target == "canonical":
        return value.model_dump()
    adapter = adapters.get(target)
    if isinstance(value, Request):
        return adapter.to_wire(with_wire_model(value))
    if isinstance(value, Message):
        return adapter.to_wire(Request(messages=(value,)))
    return adapter.to_wire_response(with_wire_model(_in_one_piece(value, adapter, streamed=False)))


def _in_one_piece(response: Response, adapter: Adapter, *, streamed: bool) -> Response:
    """The response; UnsupportedError if the format joins texts that were judged apart: no rule has seen that text."""
    if adapter.in_one_text(response, streamed=streamed) is not response:
        raise UnsupportedError(
            f"{adapter.name} has one text, and several were judged one by one",
            code="emit.joined-texts",
            hint=f'have `cmf.adapters.get("{adapter.name}").in_one_text(response)` judged, and emit that',
        )
    return response


def with_provider(value: _Named, provider: str | None) -> _Named:
    """The request or response under the model id of provider and wire name, if both are there."""
    if value.model is None or provider is None:
        return value
    return replace(value, model=f"{provider}:{value.model}")


def with_wire_model(value: _Named) -> _Named:
    """The same with the provider's key taken off its model id: `anthropic:claude-x` is `claude-x` on the wire."""
    provider, name = provider_and_name(value.model or "")
    return value if provider is None else replace(value, model=name)
