"""A guard over a database."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules

from cmf import Message, TextPart
from pipeline import Guard, PolicyUnavailable
from pipeline.sessions.base import MemorySessions
from pipeline.store.database import Store

TAINT = 'label contains {"code": "l", "reason": "x", "label": "seen"} if contains(input.content, "taint")'
LATE = 'deny contains {"code": "late", "reason": "No."}'
AFTER = f'{LATE} if {{\n\t"seen" in input.session.labels\n\tcontains(input.content, "hello")\n}}'


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_rules(tmp_path, {"taint": TAINT, "after": AFTER})


def says(text: str) -> Message:
    return Message(role="user", content=[TextPart(text=text)])


@pytest.mark.spec("GRD-15")
def test_nothing_is_given_out_that_cannot_be_put_on_record(policy: Path, tmp_path: Path) -> None:
    store = Store.at(tmp_path / "a.db")
    guard = Guard(policy, store=store)
    store.close()

    with pytest.raises(PolicyUnavailable):
        guard.check(says("hello"))


@pytest.mark.spec("GRD-15")
def test_a_second_guard_over_the_same_store_knows_the_session(policy: Path, tmp_path: Path) -> None:
    with Store.at(str(tmp_path / "a.db")) as store:
        Guard(policy, store=store).check(says("taint"), session="s1")
        later = Guard(policy, store=store)

        assert later.decide(says("hello"), session="s1").verdict == "deny"
        assert later.decide(says("hello"), session="s2").verdict == "allow"
        assert store.audit_state.records == 4  # one opens the log


@pytest.mark.spec("GRD-15")
def test_what_is_given_beside_it_comes_first(policy: Path, tmp_path: Path) -> None:
    kept: list[object] = []

    class Kept:
        def record(self, record: object) -> None:
            kept.append(record)

        async def arecord(self, record: object) -> None:
            kept.append(record)

    with Store.at(tmp_path / "a.db") as store:
        own = Guard(policy, store=store, sessions=MemorySessions(), recorder=Kept())
        own.check(says("taint"), session="s1")

        assert Guard(policy, store=store).decide(says("hello"), session="s1").verdict == "allow"
        assert len(kept) == 1
