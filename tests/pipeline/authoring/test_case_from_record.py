"""Judged inputs on file as test cases."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.cmf.strategies import values
from tests.pipeline.replaying import KEY, asks, judged, said, shipped

from cmf.message.message import Message
from cmf.message.request import Request, Response
from pipeline import Context
from pipeline.authoring.case import Case, case_text, left_out, read_cases, recorded_case
from pipeline.authoring.run_cases import CaseRunner
from pipeline.run.recorded_input import Entry
from pipeline.sessions.base import MemorySessions


@cache
def runner() -> CaseRunner:
    return CaseRunner(shipped())


def case(entry: Entry, folder: Path) -> Case:
    """The case as `cmf test` reads it."""
    place = folder / "case.yaml"
    place.write_text(case_text(entry), encoding="utf-8")
    (found,) = read_cases(place)
    return found


@pytest.mark.spec("RPL-9")
@settings(max_examples=40)
@given(traffic=values)
def test_every_record_becomes_a_case_that_comes_out_the_same(
    tmp_path_factory: pytest.TempPathFactory, traffic: Any
) -> None:
    entry = judged(traffic, context={"subject": {"id": "ann"}, "environment": "test"})

    result = runner().run(case(entry, tmp_path_factory.mktemp("case")))

    assert result.problems == ()


@pytest.mark.spec("RPL-9")
@pytest.mark.parametrize(
    "traffic",
    [
        asks(KEY),
        Message.model_validate(said(KEY)),
        Response.model_validate({"choices": [{"message": said(KEY, "assistant")}]}),
        Request.model_validate({"messages": [said(KEY)], "model": "a:b", "stream": True}),
    ],
    ids=["request", "message", "response", "request with more"],
)
def test_each_kind_of_traffic_can_be_a_case(tmp_path: Path, traffic: Any) -> None:
    entry = judged(traffic, context={"session": "s"})

    found = case(entry, tmp_path)

    assert found.traffic == traffic
    assert runner().run(found).problems == ()


@pytest.mark.spec("RPL-9")
def test_a_plain_message_is_spelled_shortly() -> None:
    spelled = recorded_case(judged(asks("hello")))

    assert spelled["conversation"] == [{"role": "user", "text": "hello"}]
    assert "subject" not in spelled
    assert "session" not in spelled


@pytest.mark.spec("RPL-9")
def test_labels_and_counters_of_the_session_are_in_it_and_the_rest_is_named(tmp_path: Path) -> None:
    sessions = MemorySessions()
    context = {"subject": {"id": "ann"}, "session": "s"}
    sessions.add_labels(Context.model_validate(context), frozenset({"secret"}))
    entry = judged(asks("hello"), context=context, sessions=sessions)
    facts = dataclasses.replace(entry.session, events=({"a": 1},), lifted=frozenset({("x", "y")}))
    more = dataclasses.replace(entry, session=facts, seen=frozenset({"m"}), history="trusted")

    found = case(more, tmp_path)

    assert found.session.labels == ("secret",)
    assert found.history == "trusted"
    assert list(left_out(entry)) == []
    assert len(list(left_out(more))) == 3
