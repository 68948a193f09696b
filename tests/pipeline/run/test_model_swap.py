"""Another model in the middle of a session: the examples of seed 000, §8.3 and §8.4, against every store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.house.tree import ROOT
from tests.pipeline.session_stores import who

from cmf import Message, Request, TextPart, adapters
from cmf.errors import ModelIdError, UnsupportedError
from cmf.message.ids import IdMap, unstamp
from cmf.message.model_ids import ModelId
from cmf.models.capabilities import NONE, ModelCapabilities
from pipeline import Context, Guard
from pipeline.decisions.errors import SessionError
from pipeline.decisions.events import Event, Events, RoutingConstraintFailure
from pipeline.run.model_swap import ModelSession, declared, swap_model
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes

ANN = who("ann")
PLAIN = [Message(role="user", content=[TextPart(text="hi")])]


def example(name: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads((ROOT / "examples" / "spec" / name).read_text(encoding="utf-8"))
    return shown


def session(store: SessionStore, messages: list[Message], events: Events | None = None) -> ModelSession:
    return ModelSession(context=ANN, messages=messages, sessions=store, events=events or Events())


@pytest.mark.spec("CAP-8")
def test_a_swap_that_cannot_be_leaves_the_model_and_says_what_is_missing_in_the_seed_s_words(
    store: SessionStore,
) -> None:
    shown = example("metis_8_4.json")
    offered = ModelCapabilities.model_validate(shown["capabilities"])
    messages = [Message.model_validate(message) for message in shown["messages"]]
    events = Events()
    seen: list[Event] = []
    events.subscribe(seen.append)
    store.commit(ANN, None, Changes(active_model="anthropic:claude-sonnet-4-6"))

    with pytest.raises(UnsupportedError) as caught:
        swap_model(
            session(store, messages, events),
            "anthropic:claude-haiku-4-5-text-only",
            capabilities=lambda _: offered,
            name=shown["target"],
        )

    error = caught.value
    assert (error.message, error.code, error.path) == (shown["refused"], shown["code"], shown["path"])
    assert store.read(ANN).active_model == "anthropic:claude-sonnet-4-6"
    model = "anthropic:claude-haiku-4-5-text-only"
    assert seen == [RoutingConstraintFailure(session="s1", model=model, capability="supports_images")]


@pytest.mark.spec("CAP-8")
def test_an_undeclared_model_cannot_take_over_a_session_that_needs_capabilities(store: SessionStore) -> None:
    system = [Message(role="system", content=[TextPart(text="x")]), *PLAIN]

    with pytest.raises(UnsupportedError, match="Cannot swap to x:1: session contains a system prompt") as caught:
        swap_model(session(store, system), "nobody:x:1")

    assert caught.value.code == "swap.supports-system-prompt"
    assert store.read(ANN).active_model is None
    assert declared(ModelId("nobody", "x")) == NONE


@pytest.mark.spec("CAP-8")
def test_a_session_that_is_too_long_for_the_model_is_refused(store: SessionStore) -> None:
    long = [Message(role="user", content=[TextPart(text="word " * 100)])]
    small = ModelCapabilities(max_context_tokens=20)

    with pytest.raises(UnsupportedError) as caught:
        swap_model(session(store, long), "openai:gpt-4o-mini", capabilities=lambda _: small)

    assert caught.value.code == "swap.max-context-tokens"


def test_what_is_no_model_id_and_no_session_is_refused(store: SessionStore) -> None:
    alone = ModelSession(context=Context(), messages=PLAIN, sessions=store, events=Events())

    with pytest.raises(ModelIdError):
        swap_model(session(store, PLAIN), "gpt-5")
    with pytest.raises(SessionError) as caught:
        swap_model(alone, "openai:gpt-4o-mini", capabilities=lambda _: ModelCapabilities(max_context_tokens=100))

    assert caught.value.code == "session.none"


@pytest.mark.spec("CAP-9")
def test_after_a_swap_the_session_has_the_model_and_every_call_its_name(store: SessionStore) -> None:
    shown = example("metis_8_3.json")
    messages = [
        Message.model_validate(message) for message in [*example(shown["before"])["version_1"], *shown["version_1"]]
    ]
    store.commit(ANN, None, Changes(active_model="anthropic:claude-sonnet-4-6", tool_ids=shown["id_map"]))

    offered = swap_model(session(store, messages), "openai:gpt-5")

    facts = store.read(ANN)
    assert facts.active_model == "openai:gpt-5"
    assert offered.supports_tools is True
    request = unstamp(
        Request(model="gpt-5", messages=messages), IdMap.from_json(facts.tool_ids), provider="openai_chat"
    )
    assert adapters.get("openai_chat").to_wire(request)["messages"] == shown["openai_messages"]
    assert store.read(who("bob")).active_model is None


@pytest.mark.spec("CAP-9")
def test_a_guard_swaps_the_model_of_the_block_s_session(lenient: Path) -> None:
    guard = Guard(lenient)
    seen: list[Event] = []
    guard.events.subscribe(seen.append)

    with guard.session("s", subject={"id": "ann"}):
        assert guard.active_model() is None
        guard.swap_model("openai:gpt-5", PLAIN)
        with pytest.raises(UnsupportedError):
            guard.swap_model("nobody:x", PLAIN)
        assert guard.active_model() == "openai:gpt-5"

    assert guard.active_model() is None
    assert guard.active_model(subject={"id": "ann"}, session="s") == "openai:gpt-5"
    assert [event.capability for event in seen if isinstance(event, RoutingConstraintFailure)] == ["max_context_tokens"]
