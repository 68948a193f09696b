"""Policies are replaced while they judge: no decision is lost, and none is made by two sets."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.policy_files import GOOD, PLACE, Write, write

from cmf import Message, Role, TextPart, ToolCallPart
from pipeline import Config, Guard, Pipeline
from pipeline.decisions.engine import Decided, EngineResult
from pipeline.decisions.errors import ConfigError, PolicyError
from pipeline.decisions.events import Event, PoliciesChanged, PoliciesRefused
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.run.assembly import build_engine
from pipeline.run.serving import Serving

__all__ = ["write"]  # a fixture

SWAPS = 100
THREADS = 4


def rules(mark: str) -> dict[str, str]:
    """A set that says of every text and call which set it is."""
    said = f'\nwarn contains {{"code": "test.{mark}", "reason": "{mark}"}} if input.kind\n'
    return {PLACE: GOOD + said}


def message() -> Message:
    parts = [TextPart(text=f"part {number}") for number in range(4)]
    return Message(role=Role.ASSISTANT, content=[*parts, ToolCallPart(tool_call_id="c", name="t", arguments={"a": 1})])


def marks(decision: Any) -> set[str]:
    return {hit.reason for view in decision.views for hit in view.hits}


@pytest.fixture
def sets(write: Write) -> list[PolicySet]:
    return [policy_set.load(write(rules(mark), mark)) for mark in ("one", "two")]


@pytest.mark.spec("POL-49")
def test_no_decision_is_lost_or_mixed_while_sets_are_swapped(sets: list[PolicySet]) -> None:
    pipeline = Pipeline(policies=sets[0])
    expected = {one.revision: {mark} for one, mark in zip(sets, ("one", "two"), strict=True)}
    engines = [build_engine(one, "embedded", Config()) for one in sets]
    done, problems, counts = threading.Event(), [], [0] * THREADS

    def judge(number: int) -> None:
        value = message()
        while not done.is_set():
            decision = pipeline.run(value).decision
            if (
                marks(decision) != expected[decision.revision] or decision.coverage.evaluated != 6
            ):  # five parts, and the joined text
                problems.append(decision)
            counts[number] += 1

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for swap in range(SWAPS):
        at = (swap + 1) % 2
        before = pipeline._serving.swap(sets[at], engines[at])
        assert before == sets[1 - at].revision
        time.sleep(0.005)
    done.set()
    for thread in threads:
        thread.join()

    assert problems == []
    assert min(counts) >= 5
    assert pipeline.revision == sets[0].revision


@pytest.mark.spec("POL-49")
async def test_runs_that_wait_are_not_mixed_either(sets: list[PolicySet]) -> None:
    pipeline = Pipeline(policies=sets[0])
    expected = {one.revision: {mark} for one, mark in zip(sets, ("one", "two"), strict=True)}
    engines = [build_engine(one, "embedded", Config()) for one in sets]

    async def judge() -> None:
        for _ in range(30):
            decision = (await pipeline.arun(message())).decision
            assert marks(decision) == expected[decision.revision]
            await asyncio.sleep(0)

    async def swap() -> None:
        for number in range(50):
            pipeline._serving.swap(sets[number % 2], engines[number % 2])
            await asyncio.sleep(0.001)

    await asyncio.gather(swap(), *(judge() for _ in range(8)))


class Closing:
    """An engine that waits, and knows when it is closed."""

    def __init__(self) -> None:
        self.revision = "r"
        self.closed = 0
        self.go_on = threading.Event()
        self.asked = threading.Event()

    def evaluate(self, entrypoints: Any, shared: Any, views: Any, **_: Any) -> list[EngineResult]:
        self.asked.set()
        assert self.go_on.wait(10)
        names = ("deny", "require_approval", "strip_tool", "redact", "rewrite", "label", "warn")
        return [Decided({name: [] for name in names}) for _ in views]

    async def aevaluate(self, *positional: Any, **named: Any) -> list[EngineResult]:
        return self.evaluate(*positional, **named)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.spec("POL-49")
def test_an_engine_is_closed_when_its_last_run_is_over(sets: list[PolicySet]) -> None:
    first, second = Closing(), Closing()
    pipeline = Pipeline(policies=sets[0], engine=first)
    thread = threading.Thread(target=pipeline.run, args=(message(),))
    thread.start()
    assert first.asked.wait(10)

    pipeline._serving.swap(sets[1], second)
    assert first.closed == 0
    first.go_on.set()
    thread.join()

    assert first.closed == 1
    pipeline._serving.swap(sets[0], first)
    assert second.closed == 1  # it had no run
    assert isinstance(pipeline._serving, Serving)


@pytest.mark.slow
@pytest.mark.spec("POL-49")
def test_a_reload_that_began_earlier_does_not_replace_what_a_later_one_read(write: Write) -> None:
    """As when the watcher tries out one change while an operator asks for the next."""
    names = [f"r{at}" for at in range(150)]
    large = {f"cmf/rules/test/{name}/{name}.rego": GOOD.replace("test.rule", f"test.{name}") for name in names}
    slow, quick = write({**rules("one"), **large}, "slow"), write(rules("two"), "quick")
    with Guard(write(rules("none"), "none")) as guard:
        earlier = threading.Thread(target=guard.reload, args=[slow])
        earlier.start()
        time.sleep(0.1)

        revision = guard.reload(quick)
        earlier.join()

        assert guard.revision == revision
        assert marks(guard.decide(message())) == {"two"}


@pytest.mark.spec("POL-49")
def test_reload_reads_the_same_places_again_and_tells(write: Write) -> None:
    directory = write(rules("one"))
    heard: list[Event] = []
    with Guard(directory) as guard:
        guard.events.subscribe(heard.append)
        before = guard.revision
        (directory / PLACE).write_text(rules("two")[PLACE])

        after = guard.reload()

        assert after != before
        assert guard.revision == after == guard.decide(message()).revision
        assert marks(guard.decide(message())) == {"two"}
        assert heard == [PoliciesChanged(before=before, after=after)]


@pytest.mark.slow
@pytest.mark.spec("POL-49")
def test_a_set_that_is_refused_changes_nothing(write: Write) -> None:
    directory = write(rules("one"))
    heard: list[Event] = []
    with Guard(directory) as guard:
        guard.events.subscribe(heard.append)
        before = guard.revision
        (directory / PLACE).write_text(rules("two")[PLACE] + "\nx := {\n")

        with pytest.raises(PolicyError):
            guard.reload()
        with pytest.raises(PolicyError):
            guard.reload(directory / "none")

        assert guard.revision == before
        assert marks(guard.decide(message())) == {"one"}
        assert [(type(event), getattr(event, "code", "")) for event in heard] == [
            (PoliciesRefused, "policy.parse"),
            (PoliciesRefused, "policy.no-directory"),
        ]
        assert isinstance(heard[0], PoliciesRefused)
        assert heard[0].place.startswith(f"{PLACE}:")


@pytest.mark.slow
@pytest.mark.spec("POL-47", "POL-49")
def test_settings_of_every_shipped_rule_come_into_force_by_a_reload(tmp_path: Path) -> None:
    settings = {
        "data": {
            "egress": {"allowed_hosts": ["api.example.com"], "mail_domains": ["example.com"]},
            "pii": {"redact": ["payment_card"]},
            "ssrf": {"allowed_hosts": ["localhost"]},
            "path_traversal": {"max_steps_up": 1},
        },
        "content": {"markdown_exfiltration": {"allowed_hosts": ["img.shields.io"]}},
        "tools": {
            "tool_allowed": {"allowed": ["tool://_/search"]},
            "destructive_approval": {"destructive_names": ["nuke"]},
        },
        "request": {"overrides": {"allowed": ["mock_response"]}},
    }
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"cmf": {"defaults": settings}}), encoding="utf-8")
    call = Message(role=Role.ASSISTANT, content=[ToolCallPart(tool_call_id="c", name="search", arguments={"q": "x"})])
    with Guard(tmp_path) as guard:
        guard.reload()
        assert guard.decide(call).reasons == ()
        settings["tools"]["tool_allowed"] = {"denied": ["tool://_/search"]}
        data.write_text(json.dumps({"cmf": {"defaults": settings}}), encoding="utf-8")

        guard.reload()

        assert [reason.code for reason in guard.decide(call).reasons] == ["tools.tool-allowed"]


@pytest.mark.slow
@pytest.mark.spec("POL-49")
def test_reload_takes_a_loaded_set(sets: list[PolicySet]) -> None:
    with Guard(sets[0]) as guard:
        assert guard.reload(sets[1]) == sets[1].revision
        assert guard.reload() == sets[1].revision


@pytest.mark.spec("POL-49")
def test_an_engine_of_ones_own_is_not_made_anew(sets: list[PolicySet]) -> None:
    pipeline = Pipeline(policies=sets[0], engine=Closing())

    with pytest.raises(ConfigError) as caught:
        pipeline.reload(sets[1])

    assert caught.value.code == "config.own-engine"


def eventually(holds: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return False


@contextmanager
def _changed(directory: Path) -> Iterator[None]:
    (directory / PLACE).write_text(rules("two")[PLACE])
    yield


@pytest.mark.slow
@pytest.mark.spec("POL-50")
def test_changed_files_are_loaded_again_and_broken_ones_are_not(write: Write) -> None:
    directory = write(rules("one"))
    refused: list[PoliciesRefused] = []
    # The first change is made before anybody looks for one.
    with Guard(directory) as guard, _changed(directory), guard.watch():
        guard.events.subscribe(lambda event: refused.append(event) if isinstance(event, PoliciesRefused) else None)
        first = policy_set.load(write(rules("one"), "again")).revision

        assert eventually(lambda: guard.revision != first)
        second = guard.revision
        (directory / PLACE).write_text("package broken {")
        assert eventually(lambda: bool(refused))
        assert guard.revision == second
        (directory / PLACE).write_text(rules("one")[PLACE])
        assert eventually(lambda: guard.revision == first)


@pytest.mark.slow
@pytest.mark.spec("POL-50")
def test_a_bundle_that_is_replaced_is_loaded_again(sets: list[PolicySet], tmp_path: Path) -> None:
    from tests.pipeline.policy.test_loading import packed

    place, new = tmp_path / "live" / "bundle.tar.gz", tmp_path / "new.tar.gz"
    place.parent.mkdir()
    place.write_bytes(packed(sets[0].bundle()))
    with Guard(place) as guard, guard.watch():
        new.write_bytes(packed(sets[1].bundle()))
        shutil.move(new, place)

        assert eventually(lambda: guard.revision == sets[1].revision)


@pytest.mark.spec("POL-50")
def test_policies_that_came_from_no_files_are_not_watched(sets: list[PolicySet]) -> None:
    for policies in (None, sets[0]):
        with pytest.raises(ConfigError) as caught:
            Guard(policies).watch()
        assert caught.value.code == "config.no-places"
