"""Another model in the middle of a session: checked before anything is sent, and refused in plain words [C16].

Spec: docs/spec/capabilities.md [CAP-8], [CAP-9]; seed 000 §8.3, §8.4. What a session holds goes on under its own ids:
the map of tool ids is the session's, and each provider has a name of its own for a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cmf import adapters
from cmf.errors import UnsupportedError
from cmf.message.message import Message
from cmf.message.model_ids import PROVIDER_FORMATS, ModelId, parse_model_id
from cmf.message.request import Request
from cmf.models.capabilities import NONE, ModelCapabilities, check_swap
from pipeline.decisions.context import Context
from pipeline.decisions.events import Events, RoutingConstraintFailure
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes

Declared = Callable[[ModelId], ModelCapabilities]
"""What a model can do; `NONE` for one that nobody declared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSession:
    """A session as a swap needs it: its owner, its store, its content, and its subscribers."""

    context: Context
    messages: Sequence[Message]
    sessions: SessionStore
    events: Events


def declared(model: ModelId) -> ModelCapabilities:
    """The entry of the shipped table for a model through its provider's own format."""
    wire_format = PROVIDER_FORMATS.get(model.provider)
    return NONE if wire_format is None else adapters.get(wire_format).capabilities(model.model)


def swap_model(
    session: ModelSession, model: str, *, capabilities: Declared = declared, name: str | None = None
) -> ModelCapabilities:
    """What the new model can do, once it is the session's active model.

    Args:
        session: what goes on.
        model: `<provider>:<model>`.
        capabilities: what a model declares; by default the shipped table.
        name: what to call the model to the user; by default its id without the provider.

    Raises:
        UnsupportedError: the model cannot take what the session holds; the message names it, `code` is
            `swap.<capability>`. The active model is as it was. ModelIdError: not a model id.
        SessionError, StoreError: there is no session, or it cannot be changed.
    """
    target = parse_model_id(model)
    offered = capabilities(target)
    try:
        check_swap(session.messages, offered, name=name or target.model, input_tokens=_size(session.messages, target))
    except UnsupportedError as error:
        capability = error.code.removeprefix("swap.").replace("-", "_")
        failure = RoutingConstraintFailure(session=session.context.session, model=model, capability=capability)
        session.events.publish(failure)
        raise
    session.sessions.commit(session.context, None, Changes(active_model=model))
    return offered


def _size(messages: Sequence[Message], target: ModelId) -> int:
    wire_format = PROVIDER_FORMATS.get(target.provider, "openai_chat")  # an estimate, whoever will be asked
    return adapters.get(wire_format).estimate_input_tokens(Request(model=target.model, messages=tuple(messages)))
