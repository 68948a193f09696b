"""Overrides: what they are about, what they lift, and what they never do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from cmf import Request
from pipeline.authoring.case import left_out
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action, Decision, Effect, Hit, Verdict
from pipeline.decisions.override import Override
from pipeline.decisions.policy_input import SessionFacts
from pipeline.replay.replay import Replay, agrees
from pipeline.run.pipeline import Pipeline
from pipeline.run.recorded_input import entry_of, read_entry

__all__ = ["write"]  # a fixture

MOMENT = 1_000_000
ONE = Override(id="ovr_1", rule="test/rule", actor="eve", second="bob", expires_at=2 * MOMENT, subject="ann")
DENIED = Hit(rule="test/rule", code="test.rule", effect=Effect.DENY, reason="No.")
EFFECTS = """\
deny contains {"code": "test.rule", "reason": "No."} if contains(input.content, "marked")

redact contains {"code": "test.rule", "reason": "Cut.", "spans": [[0, 2]]} if contains(input.content, "cut")
"""
RULE = GOOD.partition("deny contains")[0] + EFFECTS
OTHER = RULE.replace("cmf.rules.test.rule", "cmf.rules.test.other").replace('"marked"', '"twice"')
OTHER = OTHER.replace("test.rule", "test.other")


@pytest.mark.spec("EXC-10")
@pytest.mark.parametrize(
    ("change", "subject", "session"),
    [
        ({}, "bob", "s"),
        ({}, "Ann", "s"),
        ({}, None, "s"),
        ({"subject": "*"}, "ann", "s"),
        ({"session": "t"}, "ann", "s"),
        ({"session": "s"}, "ann", None),
        ({"subject": None, "session": "s"}, "ann", "t"),
        ({"subject": None, "session": None}, "ann", "s"),
        ({"expires_at": MOMENT}, "ann", "s"),
    ],
)
def test_it_is_about_exactly_whom_it_names(change: dict[str, Any], subject: str | None, session: str | None) -> None:
    assert not replace(ONE, **change).holds_for(subject, session, MOMENT)


@pytest.mark.spec("EXC-10")
@given(st.integers(-3, 4 * MOMENT))
def test_an_override_holds_until_its_end_and_not_at_an_unknown_time(moment: int) -> None:
    assert ONE.holds_for("ann", None, moment) is (0 < moment < 2 * MOMENT)


@pytest.mark.spec("EXC-11")
@pytest.mark.parametrize("effect", [effect for effect in Effect if effect is not Effect.DENY])
def test_it_lifts_nothing_but_a_denial(effect: Effect) -> None:
    assert not ONE.lifts(replace(DENIED, effect=effect), None)


@pytest.mark.spec("EXC-11")
@pytest.mark.parametrize(
    ("change", "uri", "lifted"),
    [
        ({}, None, True),
        ({"rule": "test/other"}, None, False),
        ({"uri": "tool://_/mail"}, None, False),
        ({"uri": "tool://_/mail"}, "tool://_/pay", False),
        ({"uri": "tool://_/*"}, "tool://_/mail", True),
    ],
)
def test_it_lifts_what_its_rule_denies_of_what_matches(change: dict[str, Any], uri: str | None, lifted: bool) -> None:
    assert replace(ONE, **change).lifts(DENIED, uri) is lifted


class Held:
    """Overrides that are what a test says."""

    def __init__(self, *held: Override, due: bool = False) -> None:
        self.held, self.due = held, due

    def holding(self) -> tuple[Override, ...]:
        self.due = False
        return self.held


FOREVER = replace(ONE, expires_at=4 * 10**15)


def run(write: Write, text: str, *held: Override, **context: Any) -> Decision:
    folder = write({PLACE: RULE, "cmf/rules/test/other/other.rego": OTHER})
    message = {"role": "user", "content": [{"content_type": "text", "text": text}]}
    pipeline = Pipeline(policies=folder, overrides=Held(*held, due=True))
    known = Context.model_validate({"subject": {"id": "ann"}} | context)
    request = Request.model_validate({"messages": [message]})
    try:
        return pipeline.run(request, known).decision
    finally:
        pipeline.close()


@pytest.mark.spec("EXC-10")
@pytest.mark.spec("EXC-11")
def test_what_it_lifts_goes_on_as_a_denial_and_says_under_which_override(write: Write) -> None:
    decision = run(write, "marked", FOREVER)

    assert (decision.verdict, decision.action, decision.excused) == (Verdict.DENY, Action.FORWARD, 1)
    (hit,) = decision.to_json()["views"][-1]["hits"]
    assert hit["excused"].keys() == {"owner", "until", "override"}
    assert (hit["excused"]["owner"], hit["excused"]["override"]) == ("eve", "ovr_1")


@pytest.mark.spec("EXC-11")
@pytest.mark.parametrize(
    ("text", "held", "context"),
    [
        ("marked", (), {}),
        ("marked", (ONE,), {}),
        ("marked", (FOREVER,), {"subject": {"id": "bob"}}),
        ("marked", (replace(FOREVER, rule="test/other"),), {}),
        ("marked twice", (FOREVER,), {}),
    ],
)
def test_everything_else_that_is_denied_stays_refused(write: Write, text: str, held: Any, context: Any) -> None:
    decision = run(write, text, *held, **context)

    assert (decision.verdict, decision.action) == (Verdict.DENY, Action.REFUSE)


@pytest.mark.spec("EXC-11")
def test_what_is_to_be_cut_is_cut_all_the_same(write: Write) -> None:
    decision = run(write, "cut, marked", FOREVER)

    assert (decision.verdict, decision.action, decision.excused) == (Verdict.DENY, Action.FORWARD_MODIFIED, 1)


@pytest.mark.spec("EXC-10")
async def test_overrides_apply_to_runs_without_a_session(write: Write) -> None:
    folder = write({PLACE: RULE})
    request = Request.model_validate(
        {"messages": [{"role": "user", "content": [{"content_type": "text", "text": "marked"}]}]}
    )
    known = Context.model_validate({"subject": {"id": "ann"}})
    held = Held(FOREVER, due=True)
    async with PipelineOf(folder, held) as pipeline:
        assert (await pipeline.arun(request, known)).decision.action is Action.FORWARD
        assert not held.due
        held.held = ()
        assert (await pipeline.arun(request, known)).decision.action is Action.REFUSE


class PipelineOf:
    """A pipeline that is closed at the end of a block."""

    def __init__(self, folder: Any, held: Held) -> None:
        self._pipeline = Pipeline(policies=folder, overrides=held)

    async def __aenter__(self) -> Pipeline:
        return self._pipeline

    async def __aexit__(self, *_: object) -> None:
        await self._pipeline.aclose()


@pytest.mark.spec("AUD-71")
def test_what_was_let_go_on_under_one_is_judged_again_to_the_same(write: Write) -> None:
    facts = SessionFacts(moment=MOMENT, overrides=(ONE,))
    message = {"role": "user", "content": [{"content_type": "text", "text": "marked"}]}
    request = Request.model_validate({"messages": [message]})
    known = Context.model_validate({"subject": {"id": "ann"}, "session": "s"})
    folder = write({PLACE: RULE})
    decision = run(write, "marked", FOREVER)
    line = json.dumps(entry_of(request, known, facts, decision).to_json()).encode()

    entry = read_entry(line)

    assert entry.session.overrides == (ONE,)
    assert list(left_out(entry)) == ["overrides in force"]
    judged = Replay(folder).judged(entry)
    assert agrees(entry, judged)
    assert judged.action is Action.FORWARD
