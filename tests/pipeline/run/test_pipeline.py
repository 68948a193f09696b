"""The one way in, and what it keeps of a session."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules

from cmf import Message, Request, SubjectExtension, TextPart, ToolCallPart, ToolResultPart
from pipeline import Config, ConfigError, Context, Guard, Mode, Pipeline, PolicyUnavailable
from pipeline.decisions.context import Context as RunContext
from pipeline.decisions.decision import NO_EFFECTS, Action
from pipeline.decisions.engine import Decided, EngineResult
from pipeline.decisions.errors import ApprovalError, StoreError
from pipeline.decisions.events import LabelAdded
from pipeline.decisions.policy_input import SessionFacts
from pipeline.provenance.profiles import Profiles
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes
from pipeline.sessions.turns import MAX_TRIES

AT_MOST_THREE = """\
deny contains {"code": "test.three", "reason": "Three payments are enough."} if {
\tinput.kind == "tool_call"
\tinput.session.counters["calls:tool://_/pay"] >= 3
}
"""
LABEL = 'label contains {"code": "l", "reason": "x", "label": "seen"} if contains(input.content, "taint")'
HERE = Context(subject=SubjectExtension(id="ann"), session="s")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(
        tmp_path_factory.mktemp("policies"),
        {"three": AT_MOST_THREE, "label": LABEL},
        capabilities="read_labels, read_agent",
    )


def pay(amount: int) -> Message:
    return Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"amount": amount})])


class Contended(MemorySessions):
    """A store in which somebody else commits first, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times
        self.reads = 0

    def read(self, context: RunContext) -> SessionFacts:
        self.reads += 1
        return super().read(context)

    def commit(self, context: RunContext, expected_version: int | None, changes: Changes) -> bool:
        if self.times:
            self.times -= 1
            return False
        return super().commit(context, expected_version, changes)


class Broken(MemorySessions):
    """A store that cannot be reached."""

    def seen(self, context: RunContext, marks: Collection[str]) -> frozenset[str]:
        raise StoreError("gone", code="store.unavailable")

    def read(self, context: RunContext) -> SessionFacts:
        raise StoreError("gone", code="store.unavailable")


@pytest.mark.spec("PIPE-10")
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_session_that_never_rests_is_refused(policies: Path, awaited: bool) -> None:
    store = Contended(10**6)
    pipeline = Pipeline(policies=policies, sessions=store)

    outcome = await pipeline.arun(pay(1), HERE) if awaited else pipeline.run(pay(1), HERE)

    assert (outcome.decision.action, outcome.value) == (Action.REFUSE, None)
    said = [(hit.code, hit.reason) for hit in outcome.decision.hits]
    assert said == [("session.conflict", "Other requests kept changing this session.")]
    assert store.reads == MAX_TRIES


class Working:
    """An engine that works for a while, and allows."""

    revision = "working"

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return [Decided(NO_EFFECTS)] * len(views)

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        return self.evaluate(entrypoints, shared, views, timeout_seconds=timeout_seconds)

    def close(self) -> None:
        """Nothing to let go of."""


@pytest.mark.spec("PIPE-20")
@pytest.mark.parametrize("awaited", [False, True])
async def test_all_tries_of_a_run_have_one_deadline_and_are_no_fault_of_its_input(awaited: bool) -> None:
    store = Contended(10**6)
    call = ToolCallPart(name="pay", arguments={"note": "x" * 20_000})
    guard = Guard(engine=Working(), sessions=store, config=Config(timeout_seconds=0.3))
    value = Message(role="assistant", content=[call])

    with pytest.raises(PolicyUnavailable) as caught:
        await guard.acheck(value, context=HERE) if awaited else guard.check(value, context=HERE)

    assert (caught.value.code, caught.value.retryable) == ("pipeline.deadline", True)
    assert store.reads <= 7


@pytest.mark.spec("PIPE-20")
def test_what_is_between_two_tries_does_not_count(policies: Path) -> None:
    class Waiting(Contended):
        def commit(self, context: RunContext, expected_version: int | None, changes: Changes) -> bool:
            time.sleep(0.5)
            return super().commit(context, expected_version, changes)

    guard = Guard(policies, sessions=Waiting(3), config=Config(timeout_seconds=0.9))

    assert guard.decide(pay(1), context=HERE).verdict == "allow"


@pytest.mark.spec("PIPE-11")
async def test_a_store_that_is_not_there_is_an_outage_and_nothing_goes_out(policies: Path) -> None:
    guard = Guard(policies, sessions=Broken())

    with pytest.raises(PolicyUnavailable) as caught:
        guard.check(pay(1), session="s")
    with pytest.raises(PolicyUnavailable):
        await guard.acheck(pay(1), session="s")

    assert caught.value.code == "store.unavailable"
    assert caught.value.decision.reasons[0].reason == "The session store could not be read or written."
    assert caught.value.decision.coverage.evaluated == 0


@pytest.mark.spec("PIPE-10")
async def test_where_another_run_was_faster_it_is_judged_again(policies: Path) -> None:
    for awaited in (False, True):
        store = Contended(2)
        pipeline = Pipeline(policies=policies, sessions=store)

        outcome = await pipeline.arun(pay(1), HERE) if awaited else pipeline.run(pay(1), HERE)

        assert outcome.decision.action is Action.FORWARD
        assert store.reads == 3
        assert store.read(HERE).counters == {"calls:tool://_/pay": 1}


@pytest.mark.spec("PIPE-10")
def test_at_most_three_of_sixty_four_concurrent_calls_pass(policies: Path) -> None:
    pipeline = Pipeline(policies=policies)

    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(lambda n: pipeline.run(pay(n), HERE), range(64)))

    passed = [outcome for outcome in outcomes if outcome.decision.action is Action.FORWARD]
    assert len(passed) == 3
    assert {hit.code for outcome in outcomes for hit in outcome.decision.hits} == {"test.three"}


@pytest.mark.spec("PIPE-10")
async def test_at_most_three_of_sixty_four_awaited_calls_pass(policies: Path) -> None:
    pipeline = Pipeline(policies=policies)

    outcomes = await asyncio.gather(*(pipeline.arun(pay(n), HERE) for n in range(64)))

    assert sum(outcome.decision.action is Action.FORWARD for outcome in outcomes) == 3


@pytest.mark.spec("PIPE-12")
def test_a_resent_history_counts_nothing_twice(policies: Path) -> None:
    pipeline = Pipeline(policies=policies)
    history: list[Any] = []
    for turn in range(3):
        history += [Message(role="user", content=[TextPart(text=f"turn {turn}")]), pay(turn)]
        assert pipeline.run(Request(messages=history), HERE).decision.action is Action.FORWARD

    assert pipeline.run(Request(messages=history[:2]), HERE).decision.action is Action.REFUSE
    assert pipeline.run(Request(messages=history[:2]), Context(session="s")).decision.action is Action.FORWARD


def test_labels_are_kept_and_a_run_without_a_session_keeps_nothing(policies: Path) -> None:
    store = MemorySessions()
    pipeline = Pipeline(policies=policies, sessions=store)
    taint = Message(role="user", content=[TextPart(text="taint")])

    assert pipeline.run(taint).labels == {"seen"}
    assert store.read(HERE).labels == frozenset()
    pipeline.run(taint, HERE)
    assert store.read(HERE).labels == {"seen"}
    pipeline.close()


@pytest.mark.spec("EVT-3")
def test_labels_of_rules_and_profiles_are_published_once(policies: Path) -> None:
    profiles = Profiles.load({"profiles": {"search": {"data_policy": {"apply_labels": ["web"]}}}})
    pipeline = Pipeline(policies=policies, profiles=profiles)
    told: list[object] = []
    pipeline.events.subscribe(told.append)
    call = ToolCallPart(name="search", arguments={}, tool_call_id="1")
    found = ToolResultPart(tool_name="search", tool_call_id="1", content="taint")
    history = [Message(role="assistant", content=[call]), Message(role="tool", content=[found])]

    pipeline.run(Request(messages=history), HERE)
    first = [event for event in told if isinstance(event, LabelAdded)]
    pipeline.run(Request(messages=history), HERE)

    assert first == [
        LabelAdded(label="seen", path="messages[1].content[0]", by="test/label"),
        LabelAdded(label="web", path="", by="tool://_/search"),
    ]
    assert [event for event in told if isinstance(event, LabelAdded) and event.label == "web"] == first[1:]


@pytest.mark.spec("EVT-3")
def test_what_is_refused_brings_no_label(policies: Path) -> None:
    pipeline = Pipeline(policies=policies)
    told: list[object] = []
    pipeline.events.subscribe(told.append)
    for number in range(3):
        pipeline.run(pay(number), HERE)

    refused = pipeline.run(Message(role="assistant", content=[*pay(4).content, TextPart(text="taint")]), HERE)

    assert refused.value is None
    assert not any(isinstance(event, LabelAdded) for event in told)


@pytest.mark.spec("APR-10")
async def test_a_guard_releases_what_its_pipeline_does(policies: Path) -> None:
    with Guard(policies) as guard:
        with pytest.raises(ApprovalError):
            guard.release("appr_unknown", subject={"id": "ann"}, session="s")
        with pytest.raises(ApprovalError):
            await guard.arelease("appr_unknown", subject={"id": "ann"}, session="s")


@pytest.mark.spec("SES-21")
@pytest.mark.parametrize("remembers", [True, False])
def test_what_went_on_is_an_event_once(policies: Path, remembers: bool) -> None:
    store = MemorySessions()
    history = [Message(role="user", content=[TextPart(text="taint")]), pay(1)]
    pipeline = Pipeline(policies=policies, sessions=store)
    pipeline.run(Request(messages=history), HERE)
    again = pipeline if remembers else Pipeline(policies=policies, sessions=store)
    again.run(Request(messages=[*history, pay(2)]), HERE)

    assert [dict(event) for event in store.read(HERE).events] == [
        {"type": "label", "label": "seen"},
        {"type": "tool_call", "uri": "tool://_/pay"},
        {"type": "tool_call", "uri": "tool://_/pay"},
    ]


@pytest.mark.spec("PIPE-18")
@pytest.mark.parametrize(
    "made",
    [
        lambda: Config(mode=Mode.OFF),
        lambda: Config(mode="watch"),  # type: ignore[arg-type]
        lambda: Config(builtin_errors="loose"),  # type: ignore[arg-type]
        lambda: Config(history="believed"),  # type: ignore[arg-type]
        lambda: Config(sessions="by_luck"),  # type: ignore[arg-type]
        lambda: Config(on_record_failure="shrug"),  # type: ignore[arg-type]
        lambda: Config(content="some"),  # type: ignore[arg-type]
        lambda: Pipeline(config={"mode": "observe"}),  # type: ignore[arg-type]
        lambda: Guard(profiles="profiles.yaml"),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_word_for_a_setting_is_refused_before_anything_runs(made: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        made()

    assert caught.value.code == "config.word"


@pytest.mark.spec("PIPE-18")
@pytest.mark.parametrize(
    "setting",
    [
        {"timeout_seconds": 0},
        {"timeout_seconds": float("nan")},
        {"approval_seconds": "60"},
        {"content_days": -1},
        {"max_verdicts": True},
    ],
)
def test_an_impossible_number_for_a_setting_is_refused_before_anything_runs(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Config(**setting)

    assert (caught.value.code, caught.value.path) == ("config.number", *setting)
    assert Config(max_verdicts=0, content_days=0.5).content_days == 0.5


@pytest.mark.spec("PIPE-18")
def test_a_mode_may_be_given_as_text(policies: Path) -> None:
    session = {"subject": {"id": "ann"}, "session": "s"}
    with Guard(policies, config=Config(mode="observe")) as guard:  # type: ignore[arg-type]
        decisions = [guard.decide(pay(amount), **session) for amount in range(5)]

    assert decisions[-1].verdict == "deny"
    assert {(decision.mode, decision.action) for decision in decisions} == {(Mode.OBSERVE, Action.FORWARD)}
