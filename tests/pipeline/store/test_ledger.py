"""Conversations on disk: both examples of the seed, forks, calls without answers, crashes, files of version 1."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import pytest
from sqlalchemy import event, inspect, update
from sqlalchemy.exc import OperationalError

from cmf import Message
from pipeline.decisions.errors import LedgerError, StoreError
from pipeline.store.conversations import Ledger
from pipeline.store.database import Store
from pipeline.store.tables import MESSAGES

SCHEMA_OF_SEED = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, workspace_path TEXT NOT NULL, active_model TEXT, routing_policy_json TEXT,
  schema_version INTEGER NOT NULL, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, role TEXT NOT NULL, content_json TEXT NOT NULL,
  metadata_json TEXT NOT NULL, created_at INTEGER NOT NULL, schema_version INTEGER NOT NULL,
  FOREIGN KEY (session_id) REFERENCES sessions(id));
CREATE INDEX idx_messages_session_created ON messages(session_id, created_at);
CREATE TABLE tool_calls (id TEXT PRIMARY KEY, session_id TEXT NOT NULL, message_id TEXT NOT NULL,
  result_message_id TEXT, name TEXT NOT NULL, status TEXT NOT NULL, provider_id TEXT, provider TEXT,
  created_at INTEGER NOT NULL, completed_at INTEGER,
  FOREIGN KEY (session_id) REFERENCES sessions(id), FOREIGN KEY (message_id) REFERENCES messages(id),
  FOREIGN KEY (result_message_id) REFERENCES messages(id));
CREATE INDEX idx_tool_calls_session_status ON tool_calls(session_id, status);
"""


@pytest.fixture
def ledger(database: Store) -> Ledger:
    return database.ledger()


def text(role: str, said: str) -> Message:
    return Message.model_validate({"role": role, "content": [{"content_type": "text", "text": said}]})


def call(call_id: str | None, name: str = "search") -> Message:
    part = {"content_type": "tool_call", "tool_call_id": call_id, "name": name, "arguments": {}}
    return Message.model_validate({"role": "assistant", "content": [part]})


def result(call_id: str | None, *, failed: bool = False, name: str = "search") -> Message:
    part = {"content_type": "tool_result", "tool_call_id": call_id, "tool_name": name, "content": "x"}
    return Message.model_validate({"role": "tool", "content": [part | {"is_error": failed}]})


def said(ledger: Ledger, session: str, run: str | None = None) -> list[str]:
    return [getattr(message.content[0], "text", "") for message in ledger.messages(session, run=run)]


def added(ledger: Ledger, session: str, *messages: Message, **given: Any) -> tuple[Message, ...]:
    """The messages, in a run of their own that was committed."""
    run = ledger.begin(session, **given)
    made = ledger.append(run, messages)
    ledger.commit(run)
    return made


@pytest.mark.spec("LED-10")
@pytest.mark.parametrize("what", ["session", "message", "run", "closed"])
def test_what_is_not_there_or_not_open_is_refused(ledger: Ledger, what: str) -> None:
    session = ledger.open("id:ann", "s")
    (message,) = added(ledger, session, text("user", "M1"))
    run = ledger.begin(session)
    ledger.append(run, [text("assistant", "M2")])
    ledger.abort(run)
    for attempt in {
        "session": [lambda: ledger.begin("sess_other"), lambda: ledger.session("sess_other")],
        "message": [lambda: ledger.begin(session, fork_from="other")],
        "run": [lambda: ledger.append("run_other", []), lambda: ledger.messages(session, run="run_other")],
        "closed": [lambda: ledger.append(run, []), lambda: ledger.commit(run), lambda: ledger.abort(run)],
    }[what]:
        with pytest.raises(LedgerError) as refused:
            attempt()
        assert refused.value.code == ("ledger.closed" if what == "closed" else "ledger.unknown")
    assert [one.id for one in ledger.messages(session)] == [message.id]


@pytest.mark.spec("LED-10")
def test_a_message_is_kept_once(ledger: Ledger) -> None:
    (message,) = added(ledger, ledger.open("id:ann", "s"), text("user", "M1"))
    other = ledger.open("id:ann", "other")
    run = ledger.begin(other)

    with pytest.raises(LedgerError) as refused:
        ledger.append(run, [text("user", "M2"), message])

    assert (refused.value.code, refused.value.path) == ("ledger.known", "messages[1]")
    assert ledger.messages(other, run=run) == ()


@pytest.mark.spec("LED-10")
def test_a_canonical_tool_call_is_kept_once(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    (message,) = added(ledger, session, call(None))

    with pytest.raises(LedgerError) as refused:
        ledger.append(ledger.begin(session), [message.model_copy(update={"id": None})])

    assert (refused.value.code, refused.value.path) == ("ledger.known", "messages[0]")


@pytest.mark.spec("LED-8")
def test_an_id_that_a_provider_uses_again_is_another_call(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    run = ledger.begin(session)
    turns = [call("call_0"), result("call_0"), call("call_0"), result("call_0", failed=True)]

    first, _, _, second = ledger.append(run, turns, provider="openai")
    again, _ = ledger.append(run, turns[2:], provider="openai")

    failed, other = ledger.failed(session)
    assert [failed.result_message_id, other.message_id] == [second.id, again.id]
    assert failed.message_id != first.id
    assert ledger.unanswered(session) == []


@pytest.mark.spec("LED-1")
@pytest.mark.spec("LED-4")
def test_a_linear_conversation_is_a_chain_of_parents(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    first = added(ledger, session, text("user", "M1"), text("assistant", "M2"))
    second = added(ledger, session, text("user", "M3"), text("assistant", "M4"))

    kept = ledger.messages(session)

    assert said(ledger, session) == ["M1", "M2", "M3", "M4"]
    assert [message.parent_id for message in kept] == [None, *(message.id for message in kept[:-1])]
    assert list(kept) == [*first, *second]
    assert ledger.open("id:ann", "s") == session
    assert ledger.open("id:bob", "s") != session


@pytest.mark.spec("LED-4")
def test_what_is_appended_to_a_run_follows_what_was_appended_to_it_before(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    run = ledger.begin(session)

    (first,), (second,) = (ledger.append(run, [text("user", words)]) for words in ("M1", "M2"))
    ledger.commit(run)

    assert (first.parent_id, second.parent_id) == (None, first.id)
    assert said(ledger, session) == ["M1", "M2"]


@pytest.mark.spec("LED-5")
@pytest.mark.spec("LED-6")
def test_a_regenerated_answer_takes_the_place_of_all_that_followed_its_fork_point(ledger: Ledger) -> None:
    """The seed's second example: M3 is regenerated from M2."""
    session = ledger.open("id:ann", "s")
    before = added(ledger, session, text("user", "M1"), text("user", "M2"))
    original = added(ledger, session, text("assistant", "M3"), text("user", "M4"))
    fork = before[-1].id

    run = ledger.begin(session, fork_from=fork)
    (regenerated,) = ledger.append(run, [text("assistant", "M3'")])
    assert said(ledger, session) == ["M1", "M2", "M3", "M4"]  # siblings stand side by side until one is committed
    assert said(ledger, session, run) == ["M1", "M2", "M3'"]
    gone = ledger.commit(run)

    assert said(ledger, session) == ["M1", "M2", "M3'"]
    assert regenerated.parent_id == fork
    assert set(gone) == {message.id for message in original}
    assert [one.status for one in ledger.runs(session)] == ["committed", "superseded", "committed"]


@pytest.mark.spec("LED-6")
def test_a_fork_within_a_run_keeps_what_came_before_it(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    whole = added(ledger, session, *(text("user", f"M{number}") for number in range(1, 5)))
    added(ledger, session, text("user", "N"), fork_from=whole[1].id)
    assert said(ledger, session) == ["M1", "M2", "N"]
    assert [one.status for one in ledger.runs(session)] == ["committed", "committed"]
    added(ledger, session, text("user", "anew"), fork_from=None)
    assert said(ledger, session) == ["anew"]
    assert [one.status for one in ledger.runs(session)] == ["superseded", "superseded", "committed"]


@pytest.mark.spec("LED-7")
def test_an_open_run_that_went_on_from_what_is_gone_is_aborted(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    first = added(ledger, session, text("user", "M1"), text("assistant", "M2"))
    lost, winner = ledger.begin(session), ledger.begin(session, fork_from=first[0].id)
    ledger.append(lost, [text("user", "M3")])
    ledger.append(winner, [text("assistant", "M2'")])
    ledger.commit(winner)
    assert said(ledger, session) == ["M1", "M2'"]
    assert {one.id: one.status for one in ledger.runs(session)}[lost] == "aborted"


@pytest.mark.spec("LED-8")
def test_calls_are_kept_with_their_answers(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    run = ledger.begin(session)
    ledger.append(run, [call("call_1"), call("call_2", "pay"), call("call_3")], provider="openai")
    ledger.append(run, [result("call_1"), result("call_2", failed=True)], provider="openai")
    ledger.commit(run)

    waiting = ledger.unanswered(session)
    failed = ledger.failed(session)

    assert [(one.name, one.provider_id, one.status) for one in waiting] == [("search", "call_3", "pending")]
    assert waiting == ledger.unanswered()
    assert waiting[0].id.startswith("tu_")
    assert [(one.name, one.result_message_id is not None) for one in failed] == [("pay", True)]
    assert ledger.failed_tools() == {session: {"pay": 1}}


@pytest.mark.spec("LED-8")
def test_results_of_a_format_without_ids_answer_the_oldest_call_of_their_name(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    added(ledger, session, call(None), call(None, "pay"), call(None))
    added(ledger, session, result(None, name="pay"), result(None))
    assert [one.name for one in ledger.unanswered(session)] == ["search"]
    added(ledger, session, result(None, name="other"))
    assert len(ledger.unanswered(session)) == 1


@pytest.mark.spec("LED-7")
def test_with_messages_go_their_calls_and_the_answers_that_they_were(ledger: Ledger) -> None:
    session = ledger.open("id:ann", "s")
    asked = added(ledger, session, text("user", "M1"), call("tu_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
    added(ledger, session, result("tu_01ARZ3NDEKTSV4RRFFQ69G5FAV"), call("tu_01ARZ3NDEKTSV4RRFFQ69G5FAW"))
    assert [one.id[-1] for one in ledger.unanswered(session)] == ["W"]
    added(ledger, session, text("user", "never mind"), fork_from=asked[-1].id)
    assert [(one.id[-1], one.result_message_id) for one in ledger.unanswered(session)] == [("V", None)]


@pytest.mark.spec("LED-9")
@pytest.mark.parametrize("name", ["before_cursor_execute", "commit"])
def test_a_commit_that_fails_anywhere_leaves_the_conversation_before_it(database: Store, name: str) -> None:
    ledger = database.ledger()
    session = ledger.open("id:ann", "s")
    first = added(ledger, session, text("user", "M1"), call("call_1"), result("call_1"))
    failed = 0
    run = ledger.begin(session, fork_from=first[0].id)
    ledger.append(run, [text("assistant", "M2'")])
    while True:
        left = [failed]

        def fail(*_: Any, left: list[int] = left, **__: Any) -> None:
            left[0] -= 1
            if left[0] < 0 and threading.current_thread().name == "cmf-store-writer":
                raise OperationalError("", {}, Exception())

        event.listen(database.engine, name, fail, named=True)
        try:
            ledger.commit(run)
            done = True
        except StoreError:
            done = False
        event.remove(database.engine, name, fail)
        if done:
            break
        assert said(ledger, session) == ["M1", "", ""]
        failed += 1
    assert failed > 0
    assert said(ledger, session) == ["M1", "M2'"]


@pytest.mark.spec("LED-3")
def test_a_row_that_holds_no_message_is_named_and_not_shown(database: Store) -> None:
    ledger = database.ledger()
    session = ledger.open("id:ann", "s")
    (message,) = added(ledger, session, text("user", "SECRET"))
    for content in ("{", "[{}]", "null"):
        with database.engine.begin() as connection:
            connection.execute(update(MESSAGES).values(content_json=content))
        with pytest.raises(LedgerError) as refused:
            ledger.messages(session)
        assert refused.value.path == f"messages[{message.id}]"
        assert "SECRET" not in str(refused.value)


@pytest.mark.spec("LED-2")
def test_the_tables_are_those_of_the_seed_and_more(database: Store) -> None:
    reference = sqlite3.connect(":memory:")
    reference.executescript(SCHEMA_OF_SEED)
    ours = inspect(database.engine)
    for table in ("sessions", "messages", "tool_calls"):
        columns = {column["name"]: column for column in ours.get_columns(table)}
        keys = ours.get_pk_constraint(table)["constrained_columns"]
        for _, name, kind, required, _, key in reference.execute(f"PRAGMA table_info({table})"):
            assert str(columns[name]["type"]).replace("BIGINT", "INTEGER") == kind, name
            assert (not columns[name]["nullable"] or name in keys) == bool(required or key), name
            assert (name in keys) == bool(key), name
    reference.close()
    indexes = {index["name"] for table in ("messages", "tool_calls") for index in ours.get_indexes(table)}
    assert indexes >= {"idx_messages_session_created", "idx_tool_calls_session_status"}
