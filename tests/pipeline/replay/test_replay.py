"""What is on file, judged again: the same under the same policies, told apart under others, and never guessed."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.cmf.strategies import values
from tests.pipeline.conftest import write_rules
from tests.pipeline.replaying import KEY, asks, judged, replay, said, shipped

from cmf.json.codec import dumps
from cmf.message.request import Request, Response
from pipeline import Context, Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import ReplayError
from pipeline.policy import policy_set
from pipeline.replay.impact import Change, Compared, Impact, compare, impact_of
from pipeline.replay.measuring import regressions
from pipeline.replay.replay import CHUNK, WORTH_A_PROCESS, Replay, agrees
from pipeline.run.recorded_input import Entry, read_entry
from pipeline.sessions.base import MemorySessions

NO = 'deny contains {"code": "test.no", "reason": "No."} if contains(input.content, "no")'
"""Denies what says so."""


def line(entry: Entry, **fields: Any) -> bytes:
    return dumps({**entry.to_json(), **fields})


def rules(folder: Path, **bodies: str) -> policy_set.PolicySet:
    return policy_set.load(write_rules(folder, bodies, kinds="text"))


# -- what cannot be replayed -------------------------------------------------------------------------------------------


@pytest.mark.spec("RPL-6")
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"stages": ["own"]}, "replay.stages"),
        ({"complete": False}, "replay.incomplete"),
        ({"verdict": "deny"}, "replay.differs"),
        ({"views": []}, "replay.differs"),
    ],
)
def test_an_entry_that_cannot_be_replayed_is_reported_with_the_reason(changed: dict[str, Any], code: str) -> None:
    entry = judged(asks("hello"))

    compared = compare(line(entry, decision={**entry.decision, **changed}), replay(), replay())

    assert (compared.change, compared.id) == (Change.NOT_REPLAYABLE, entry.id)
    assert compared.reason.endswith(f"[{code}]")


@pytest.mark.spec("RPL-6")
def test_a_line_that_does_not_read_is_counted_and_not_quoted() -> None:
    compared = compare(b"CONTENT", replay(), replay())

    assert compared.change is Change.NOT_REPLAYABLE
    assert "CONTENT" not in compared.reason
    assert "[replay.invalid]" in compared.reason


@pytest.mark.spec("RPL-6")
def test_an_engine_that_runs_out_of_time_says_nothing_of_an_entry() -> None:
    late = Replay(shipped(), timeout_seconds=1e-9)

    with pytest.raises(ReplayError) as caught:
        late.judged(judged(asks("hello")))

    assert caught.value.code == "replay.failed"


@pytest.mark.spec("RPL-6")
def test_other_policies_than_the_recorded_ones_need_not_repeat_the_decision(tmp_path: Path) -> None:
    lenient = Replay(rules(tmp_path, never='deny contains {"code": "n", "reason": "x"} if input.content == "never"'))
    entry = judged(asks(KEY))

    assert compare(line(entry), lenient, lenient).change is Change.UNCHANGED


# -- the same again ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("RPL-1")
@pytest.mark.spec("RPL-5")
@settings(max_examples=60)
@given(values)
def test_whatever_was_judged_comes_out_the_same_again(traffic: Any) -> None:
    entry = judged(traffic, context={"subject": {"id": "ann"}, "session": "s"})

    failed = any(hit["rule"] == "engine" for view in entry.decision["views"] for hit in view["hits"])
    with pytest.raises(ReplayError) if failed else nullcontext():  # numbers that no engine reads, say
        again = replay().judged(read_entry(line(entry)))
        assert agrees(entry, again)


@pytest.mark.spec("RPL-5")
def test_what_is_refused_because_it_is_only_referred_to_comes_out_the_same_again() -> None:
    part = {"content_type": "image", "type": "file_ref", "data": "file-1"}
    entry = judged(Request.model_validate({"messages": [{"role": "user", "content": [part]}]}))

    again = replay().judged(entry)

    assert (entry.decision["verdict"], "stages" in entry.decision) == ("deny", False)
    assert {hit.rule for hit in again.hits} == {"by_reference"}
    assert compare(line(entry), replay(), replay()).change is Change.UNCHANGED


@pytest.mark.spec("RPL-5")
def test_the_session_is_that_on_file_and_no_entry_changes_what_another_gives() -> None:
    sessions = MemorySessions()
    context = {"subject": {"id": "ann"}, "session": "s"}
    sessions.add_labels(Context.model_validate(context), frozenset({"secret"}))
    call = {"content_type": "tool_call", "tool_call_id": "t", "name": "send_email", "arguments": {}}
    reply = Response.model_validate({"choices": [{"message": {"role": "assistant", "content": [call]}}]})
    tainted = judged(reply, context=context, sessions=sessions)
    clean = judged(reply, context=context)

    order = [tainted, clean, tainted, clean]
    found = [{hit.code for hit in replay().judged(entry).hits} for entry in order]

    assert ["data.label-to-sink" in codes for codes in found] == [True, False, True, False]


@pytest.mark.spec("RPL-5")
def test_what_a_person_approved_is_approved_under_other_policies_too(tmp_path: Path) -> None:
    ask = 'require_approval contains {"code": "test.ask", "reason": "Ask."} if contains(input.content, "ask")'
    old, new = rules(tmp_path / "old", ask=ask), rules(tmp_path / "new", ask=ask, deny=NO)
    sessions = MemorySessions()
    context = Context.model_validate({"subject": {"id": "ann"}, "session": "s"})
    with Guard(old, sessions=sessions) as guard:
        waiting = guard.run(asks("ask"), context=context).decision
    boss = Context.model_validate({"subject": {"id": "boss", "permissions": ["cmf:approve"]}})
    Approvals(sessions).approve(waiting.approval_ids[0], boss.subject)  # type: ignore[arg-type]
    entry = judged(asks("ask"), old, context={"subject": {"id": "ann"}, "session": "s"}, sessions=sessions)

    assert entry.decision["action"] == "forward"
    assert compare(line(entry), Replay(old), Replay(new)).change is Change.UNCHANGED


# -- told apart --------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RPL-7")
def test_changes_are_classified_by_what_goes_out(tmp_path: Path) -> None:
    base = Replay(rules(tmp_path / "a", deny=NO, mask=_mask(1), words='warn contains {"code": "w", "reason": "a"}'))
    head = Replay(
        rules(
            tmp_path / "b",
            ask=NO.replace("deny", "require_approval").replace('"no"', '"hey"'),
            mask=_mask(2),
            words='warn contains {"code": "w", "reason": "b"}',
        )
    )

    found = {
        text: compare(line(judged(asks(text), base.policies)), base, head) for text in ("hey", "no", "mask", "other")
    }

    assert {text: (one.change.value, one.rules) for text, one in found.items()} == {
        "hey": ("newly_denied", ("test/ask",)),
        "no": ("newly_allowed", ("test/deny",)),
        "mask": ("changed_effect", ("test/mask",)),
        "other": ("unchanged", ()),
    }


def _mask(length: int) -> str:
    span = f'"spans": [[0, {length}]]'
    return f'redact contains {{"code": "m", "reason": "M.", {span}}} if startswith(input.content, "mask")'


@pytest.mark.spec("RPL-7")
def test_rules_that_only_observe_change_an_effect_and_deny_nothing(tmp_path: Path) -> None:
    base = policy_set.load(write_rules(tmp_path, {"deny": NO}, kinds="text"))
    watched = policy_set.load(write_rules(tmp_path, {"deny": NO}, kinds="text", mode="observe"))
    entry = judged(asks("no"), base)

    there, back = Replay(base), Replay(watched)

    assert compare(line(entry), there, back).change is Change.NEWLY_ALLOWED
    assert compare(line(entry), back, there).change is Change.NEWLY_DENIED


# -- on all cores ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RPL-8")
@pytest.mark.slow
def test_many_entries_come_to_the_same_on_one_core_as_on_two(tmp_path: Path) -> None:
    base, head = rules(tmp_path / "a", deny=NO), rules(tmp_path / "b", deny=NO.replace('"no"', '"yes"'))
    own = [line(judged(asks(text), base)) for text in ("yes", "no", "other")]
    many = [*(own * WORTH_A_PROCESS)[: 2 * WORTH_A_PROCESS + CHUNK // 2], b"broken"]
    counted: list[int] = []

    alone = impact_of(many, base, head, expected=len(many), jobs=1)
    spread = impact_of(many, base, head, expected=len(many), jobs=2, on_progress=counted.append)

    assert spread == alone
    assert sum(counted) == len(many) == spread.entries
    assert spread.counts[Change.NEWLY_DENIED] == sum(one == own[0] for one in many)


@pytest.mark.spec("RPL-7")
def test_of_ids_not_all_are_named_and_all_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.replay.impact.MAX_IDS", 2)
    impact = Impact()
    for at in range(5):
        impact.add(Compared(id=f"d{at}", change=Change.NEWLY_DENIED, subject="ann", rules=("a", "b"), views=3))

    shown = impact.to_json()

    assert (shown["entries"], shown["views"]) == (5, 15)
    assert shown["newly_denied"] == {
        "count": 5,
        "rules": {"a": 5, "b": 5},
        "subjects": {"ann": 5},
        "ids": ["d0", "d1"],
    }


# -- figures -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-55")
def test_only_more_than_what_is_allowed_is_a_regression() -> None:
    before = {"decision_us": {"p50": 100.0, "p95": 200.0}}

    assert regressions({"decision_us": {"p50": 110.0, "p95": 220.0}}, before, 0.1) == []
    (one,) = regressions({"decision_us": {"p50": 90.0, "p95": 221.0}}, before, 0.1)
    assert one.startswith("p95 221.0 µs, was 200.0 µs")


def test_an_entry_of_an_observing_pipeline_is_not_held_to_its_passes(tmp_path: Path) -> None:
    entry = dataclasses.replace(judged(asks("hello")), mode="observe")

    assert compare(line(entry, decision={**entry.decision, "views": []}), replay(), replay()).change is Change.UNCHANGED
    assert said("x")["role"] == "user"
