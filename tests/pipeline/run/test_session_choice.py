"""Which session a run belongs to where its client names none."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import calls, returns, says
from tests.pipeline.run.test_pipeline import Broken

from cmf.enums import Role
from cmf.json.value import replace
from cmf.message.message import Message, TextPart
from cmf.message.request import Choice, Request, Response
from cmf.message.security import SubjectExtension
from pipeline import Config, Denied, Guard, Pipeline
from pipeline.decisions.context import Context
from pipeline.decisions.errors import SessionError
from pipeline.run.session_choice import SessionChoice, SessionMode
from pipeline.sessions.base import MemorySessions, SessionStore

ANN = Context(subject=SubjectExtension(id="ann"))
BOB = Context(subject=SubjectExtension(id="bob"))


def session(store: SessionStore, messages: Sequence[Message], context: Context = ANN) -> str | None:
    request = Request(messages=messages)
    return SessionChoice("by_prefix", store).of(request, context).session


def told(*words: str) -> list[Message]:
    """User and assistant in turn."""
    return [says("user" if place % 2 == 0 else "assistant", word) for place, word in enumerate(words)]


@pytest.mark.spec("SES-30")
@pytest.mark.parametrize("value", [Request(messages=[says("user", "a")]), says("user", "a")])
def test_where_an_id_is_required_a_run_without_one_is_refused(value: Request | Message) -> None:
    choice = SessionChoice("required", MemorySessions())

    with pytest.raises(SessionError) as caught:
        choice.of(value, ANN)

    assert caught.value.code == "session.required"
    assert choice.of(value, replace(ANN, session="s")).session == "s"


@pytest.mark.spec("SES-30")
@pytest.mark.parametrize("mode", get_args(SessionMode))
def test_no_client_names_the_session_that_keeps_the_beginnings(mode: SessionMode) -> None:
    with pytest.raises(SessionError) as caught:
        SessionChoice(mode, MemorySessions()).of(says("user", "a"), replace(ANN, session="~beginnings"))

    assert caught.value.code == "session.reserved"


@pytest.mark.spec("SES-30")
@pytest.mark.parametrize("context", [Context(), Context(subject=SubjectExtension())])
def test_strangers_are_given_no_session(context: Context) -> None:
    assert session(MemorySessions(), told("a"), context) is None


@pytest.mark.spec("SES-30")
def test_by_id_a_run_without_an_id_has_no_session() -> None:
    request = Request(messages=told("a"))

    assert SessionChoice("by_id", MemorySessions()).of(request, ANN) is ANN


@pytest.mark.spec("SES-31")
def test_two_subjects_with_the_same_words_have_two_sessions(store: SessionStore) -> None:
    session(store, told("a"))

    assert store.seen(replace(BOB, session="~beginnings"), ["x"]) == frozenset()
    longer = told("a", "b", "c")
    session(store, longer, BOB)
    assert session(store, longer, ANN) == session(store, told("a"), ANN)
    assert session(store, longer, BOB) != session(store, longer, ANN)


@pytest.mark.spec("SES-31")
def test_each_turn_of_a_conversation_has_the_session_of_the_first(store: SessionStore) -> None:
    words = ["a", "b", "c", "d", "e"]
    first = session(store, told("a"))

    assert first is not None
    assert first.startswith("sess_")
    assert [session(store, told(*words[: n + 1])) for n in (2, 4, 0, 2)] == [first] * 4
    assert session(store, told("other", "b", "c")) not in (first, None)


@pytest.mark.spec("SES-31")
def test_the_longest_known_beginning_decides(store: SessionStore) -> None:
    late = session(store, told("a", "b", "c"))
    early = session(store, told("a"))

    assert late != early
    assert session(store, told("a", "b", "c", "d", "e")) == late
    assert session(store, told("a", "other", "c")) == early


@pytest.mark.spec("SES-31")
def test_gateways_that_meet_a_conversation_at_once_give_it_one_session() -> None:
    store = MemorySessions()
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda _: session(store, told("a", "b", "c")), range(64)))

    assert len(set(found)) == 1
    assert session(MemorySessions(), told("a", "b", "c")) == found[0]


@pytest.mark.spec("SES-31")
def test_what_an_application_changes_from_turn_to_turn_does_not_matter() -> None:
    store = MemorySessions()
    call, result = calls("t", {"a": 1}, "x1"), returns("r", "x1")
    marked = Message(role=Role.USER, content=[TextPart(text="a", extra={"w": {"cache_control": {}}})])
    renamed = [calls("t", {"a": 1}, "y1"), returns("r", "y1")]

    first = session(store, [says("system", "today is Monday"), *told("a"), call, result])

    assert session(store, [says("system", "it is Tuesday"), marked, *renamed, says("user", "b")]) == first


@pytest.mark.spec("SES-31")
def test_a_reply_belongs_to_the_session_of_its_request() -> None:
    store = MemorySessions()
    request = Request(messages=told("a"))
    first = session(store, request.messages)
    choice = SessionChoice("by_prefix", store)
    reply = Response(choices=[Choice(message=says("assistant", "b"))])

    assert choice.of(reply, replace(ANN, history=request)).session == first
    assert choice.of(reply, replace(ANN, history=tuple(request.messages))).session == first
    assert choice.of(reply, ANN).session is None


@pytest.mark.spec("SES-31")
@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=5), max_size=8))
def test_it_is_the_session_of_the_longest_beginning_that_was_sent_before(sent: list[list[str]]) -> None:
    """Against a plain model: conversation → session."""
    store = MemorySessions()
    model: dict[tuple[str, ...], str | None] = {}
    for words in sent:
        longest = next((model[tuple(words[:n])] for n in range(len(words), 0, -1) if tuple(words[:n]) in model), None)

        found = session(store, told(*words))

        assert found == longest if longest is not None else found not in model.values()
        model[tuple(words)] = found


# -- in the pipeline ---------------------------------------------------------------------------------------------------


@pytest.mark.spec("SES-30")
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_run_without_a_required_id_is_denied_and_a_broken_store_is_an_outage(
    lenient: Path, awaited: bool
) -> None:
    async def hits(**options: Any) -> list[tuple[str, str]]:
        pipeline = Pipeline(policies=lenient, **options)
        run = says("user", "a")
        outcome = await pipeline.arun(run, ANN) if awaited else pipeline.run(run, ANN)
        assert outcome.value is None
        return [(hit.rule, hit.code) for hit in outcome.decision.hits]

    assert await hits(config=Config(sessions="required")) == [("pipeline", "session.required")]
    broken = await hits(config=Config(sessions="by_prefix"), sessions=Broken())
    assert broken == [("session", "store.unavailable")]
    with pytest.raises(Denied, match="session id"):
        Guard(lenient, config=Config(sessions="required")).check(says("user", "a"))


@pytest.mark.spec("SES-31")
async def test_labels_hold_from_turn_to_turn_of_a_client_that_names_no_session(tmp_path: Path) -> None:
    label = 'label contains {"code": "l", "reason": "x", "label": "seen"} if contains(input.content, "taint")'
    policies = write_rules(tmp_path, {"label": label})
    pipeline = Pipeline(policies=policies, config=Config(sessions="by_prefix"))

    first = pipeline.run(Request(messages=told("taint")), ANN)
    later = await pipeline.arun(Request(messages=told("taint", "b", "c")), ANN)
    other = pipeline.run(Request(messages=told("c")), ANN)

    assert first.session == later.session != other.session
    seen = frozenset({"seen"})
    assert (first.labels, later.labels, other.labels) == (seen, seen, frozenset())
