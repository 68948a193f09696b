"""Judged inputs on file: written, read back, and refused where they are not what they should be."""

from __future__ import annotations

import dataclasses
import gzip
import json
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.replaying import all_off, asks, judged, said

from cmf.json.codec import dumps
from cmf.message.request import Response
from pipeline import Context
from pipeline.decisions.approval import Approval, ApprovalRequest, ApprovalScope
from pipeline.decisions.context import SessionKey
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.override import Override
from pipeline.decisions.policy_input import SessionFacts
from pipeline.run.recorded_input import Entry, append, find, lines, read_entry
from pipeline.sessions.base import MemorySessions


@cache
def kept() -> Entry:
    return judged(asks("hello"), context={"subject": {"id": "ann"}, "session": "s1"})


def refused(line: bytes) -> ReplayError:
    with pytest.raises(ReplayError) as caught:
        read_entry(line)
    return caught.value


def changed(**fields: Any) -> bytes:
    return dumps({**kept().to_json(), **fields})


@pytest.mark.spec("RPL-2")
@pytest.mark.parametrize("line", [b"CONTENT", b"[]", b"{}", b'{"schema": 1}'])
def test_a_line_that_is_no_entry_is_an_error_without_content(line: bytes) -> None:
    error = refused(line)

    assert error.code == "replay.invalid"
    assert error.hint
    assert "CONTENT" not in str(error)


@pytest.mark.spec("RPL-2")
@pytest.mark.parametrize(
    "fields",
    [
        {"schema": "1"},
        {"kind": "CONTENT"},
        {"traffic": {"messages": "CONTENT"}},
        {"context": {"subject": "CONTENT"}},
        {"session": {"labels": 7}},
        {"history": "CONTENT"},
        {"id": 7},
        {"decision": {}},
    ],
    ids=str,
)
def test_a_field_that_does_not_fit_is_an_error_without_content(fields: dict[str, Any]) -> None:
    error = refused(changed(**fields))

    assert error.code == "replay.invalid"
    assert error.hint
    assert "CONTENT" not in str(error)


@pytest.mark.spec("RPL-2")
@pytest.mark.parametrize("fields", [{"views": [{"path": "", "hits": [{"rule": 7}]}]}, {"revision": None}], ids=str)
def test_a_field_of_the_decision_that_does_not_fit_is_an_error(fields: dict[str, Any]) -> None:
    error = refused(changed(decision={**kept().decision, **fields}))

    assert error.code == "replay.invalid"
    assert error.hint


@pytest.mark.spec("RPL-2")
def test_a_line_of_a_newer_schema_has_its_own_code() -> None:
    assert refused(changed(schema=2)).code == "replay.newer-schema"


@pytest.mark.spec("RPL-2")
def test_a_file_that_is_not_there_or_breaks_off_is_an_error(tmp_path: Path) -> None:
    whole = gzip.compress(dumps(kept().to_json()) + b"\n")
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[:-10])

    for name in ("none.jsonl", "cut.jsonl.gz"):
        with pytest.raises(ReplayError) as caught:
            list(lines(tmp_path / name))
        assert caught.value.code == "replay.unreadable"


@pytest.mark.spec("RPL-3")
def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ReplayError) as caught:
        append(tmp_path / "no" / "such.jsonl", kept())

    assert caught.value.code == "replay.unwritable"


@pytest.mark.spec("RPL-1")
@pytest.mark.spec("RPL-3")
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_what_is_appended_is_read_back_whatever_its_packing(tmp_path: Path, name: str) -> None:
    other = judged(asks("other"))
    for entry in (kept(), other):
        append(tmp_path / name, entry)

    assert [read_entry(line) for line in lines(tmp_path / name)] == [kept(), other]
    assert find(tmp_path / name, other.id) == other
    assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    with pytest.raises(ReplayError, match="unknown-id"):
        find(tmp_path / name, "dec_none")


@pytest.mark.spec("RPL-3")
def test_lines_of_many_writers_stay_whole(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: append(tmp_path / "a.jsonl", kept()), range(64)))

    assert [read_entry(line) for line in lines(tmp_path / "a.jsonl")] == [kept()] * 64


@pytest.mark.spec("RPL-1")
@settings(max_examples=40)
@given(
    text=st.text(max_size=20),
    labels=st.frozensets(st.text(min_size=1, max_size=5), max_size=3),
    subject=st.text(min_size=1, max_size=8),
)
def test_every_run_is_read_back_as_it_was(text: str, labels: frozenset[str], subject: str) -> None:
    sessions = MemorySessions()
    context = Context.model_validate({"subject": {"id": subject}, "session": "s", "labels": sorted(labels)})
    sessions.add_labels(context, labels)
    known = {"subject": {"id": subject}, "session": "s", "labels": sorted(labels)}

    entry = judged(asks(text), all_off(), context=known, sessions=sessions)

    assert entry.session.labels == labels
    assert read_entry(dumps(entry.to_json())) == entry


@pytest.mark.spec("RPL-1")
def test_the_history_before_a_reply_is_on_file() -> None:
    reply = Response.model_validate({"choices": [{"message": said("hi", "assistant")}]})
    context = {"session": "s", "history": {"messages": [said("hello")]}}

    entry = judged(reply, context=context)

    assert json.loads(dumps(entry.to_json()))["context"]["history"]["messages"][0]["role"] == "user"
    assert read_entry(dumps(entry.to_json())) == entry


@pytest.mark.spec("RPL-1")
def test_every_fact_of_a_session_is_on_file() -> None:
    approvals = {"asked", "approvals"}  # one list on file

    known = {field.name for field in dataclasses.fields(SessionFacts)} - approvals | {"approvals"}

    override = Override(id="o", rule="a/b", actor="ann", second="bob", expires_at=1, session="s")
    asked = ApprovalRequest(id="apr_2", digest="d", target="t", rules=("a/b",), revision="r", expires_at=1)
    stands = Approval(
        asked=asked, key=SessionKey("id:ann", "t"), requested_at=0, scope=ApprovalScope.VALUE, scope_until=9
    )
    rare = {"active_model": "a:b", "overrides": (override,), "spent": frozenset({"apr_1"}), "standing": (stands,)}
    full = dataclasses.replace(kept().session, **rare)
    entry = dataclasses.replace(kept(), session=full)
    assert set(entry.to_json()["session"]) == known
    assert read_entry(dumps(entry.to_json())).session == full
