"""Stages: in which order they run, what they may say, and how they fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.staging import (
    Make,
    calling,
    says,
    stopped,
    text_of,
    with_security,
    with_slot,
)

from cmf import (
    DelegationHop,
    HttpExtension,
    Message,
    TextPart,
)
from cmf.json.value import replace
from pipeline import Ask, Config, ConfigError, Context, Mode, Pipeline, Refuse, as_stage
from pipeline.decisions.decision import Action, Verdict
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes

# -- failing -----------------------------------------------------------------------------------------------------------


def _raise(*_: Any) -> None:
    raise RuntimeError("content canary-4711")


async def _hang(*_: Any) -> None:
    await asyncio.sleep(60)


async def _araise(*_: Any) -> None:
    raise RuntimeError


FAILING = [
    (_raise, "stage.error"),
    (_araise, "stage.error"),
    (_hang, "stage.timeout"),
    (lambda *_: time.sleep(0.05), "stage.timeout"),
    (lambda *_: "garbage", "stage.tier-violation"),
    (lambda *_: 7, "stage.tier-violation"),
    (lambda m, _: {"role": "user"}, "stage.tier-violation"),
    (lambda m, _: replace(m, content=7), "stage.bad-result"),
    (lambda m, _: with_security(m, labels=frozenset({7})), "stage.bad-result"),
    (lambda m, _: with_security(m, labels=frozenset({"\ud800"})), "stage.bad-result"),
]


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize(("call", "code"), FAILING)
async def test_a_failing_stage_denies_whether_called_or_awaited(
    pipe: Make, call: Any, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = pipe(calling(call, timeout_seconds=0.02))

    awaited = stopped(await pipeline.arun(says("hi")))
    called = stopped(await asyncio.to_thread(pipeline.run, says("hi")))

    for record in (awaited, called):
        assert record.hit is not None
        assert record.hit.code in (code, "engine.bad-result")
    assert "canary" not in caplog.text


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("mode", ["audit", "concurrent"])
def test_a_stage_that_only_looks_may_be_allowed_to_fail(pipe: Make, mode: str) -> None:
    outcome = pipe(calling(_raise, mode=mode, on_error="allow")).run(says("hi"))

    assert outcome.decision.action is Action.FORWARD
    assert outcome.decision.to_json()["stages"] == [
        {"stage": "one", "mode": mode, "changed": False, "error": "stage.error"}
    ]


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("mode", ["sequential", "transform"])
def test_a_stage_that_can_change_content_may_not(pipe: Make, mode: str) -> None:
    with pytest.raises(ConfigError, match="cannot be allowed"):
        pipe(calling(_raise, mode=mode, on_error="allow"))
    with pytest.raises(ConfigError, match="same name"):
        pipe(calling(_raise), calling(_raise))


@pytest.mark.spec("STG-12")
def test_who_may_refuse_and_what_it_comes_to(pipe: Make) -> None:
    def no(*_: Any) -> Refuse:
        return Refuse(code="my.no", reason="Because.")

    for mode in ("sequential", "concurrent"):
        record = stopped(pipe(calling(no, mode=mode)).run(says("hi")))
        assert record.hit is not None
        assert (record.hit.code, record.hit.reason) == ("my.no", "Because.")
    for mode in ("transform", "audit"):
        record = stopped(pipe(calling(no, mode=mode)).run(says("hi")))
        assert record.hit is not None
        assert record.hit.code == "stage.may-not-refuse"
    asked = pipe(calling(lambda *_: Ask(code="my.ask", reason="Ask."))).run(says("hi"))
    assert asked.decision.action is Action.SUSPEND
    observed = pipe(calling(no), config=Config(mode=Mode.OBSERVE)).run(says("hi"))
    assert (observed.decision.verdict, observed.decision.action) == (Verdict.DENY, Action.FORWARD)


# -- running -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("STG-1")
@pytest.mark.spec("STG-10")
def test_stages_run_in_order_on_what_came_before(pipe: Make) -> None:
    def adding(text: str) -> Callable[[Message, Context], Message]:
        return lambda m, _: replace(m, content=(*m.content, TextPart(text=text)))

    outcome = pipe(calling(adding("b"), name="x"), calling(adding("c"), name="y", mode="transform")).run(says("a"))

    assert text_of(outcome) == ["a", "b", "c"]
    assert [(record.stage, record.changed) for record in outcome.decision.stages] == [("x", True), ("y", True)]
    assert outcome.decision.to_json()["stages"][0] == {"stage": "x", "mode": "sequential", "changed": True}
    assert "stages" not in pipe().run(says("a")).decision.to_json()


@pytest.mark.spec("STG-10")
async def test_the_first_no_of_concurrent_stages_cancels_the_others(pipe: Make) -> None:
    cancelled = []

    async def slow(*_: Any) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def no(*_: Any) -> Refuse:
        return Refuse(code="my.no", reason="x")

    begin = time.monotonic()
    outcome = await pipe(
        calling(slow, name="a", mode="concurrent", timeout_seconds=30), calling(no, name="b", mode="concurrent")
    ).arun(says("hi"))

    assert stopped(outcome).stage == "b"
    assert cancelled == [True]
    assert time.monotonic() - begin < 5
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.spec("STG-10")
async def test_concurrent_stages_see_the_same_value_and_their_labels_are_united(pipe: Make) -> None:
    def label(text: str) -> Any:
        async def call(message: Message, _: Context) -> Message:
            assert message.extensions is not None
            assert message.extensions.security is not None
            assert message.extensions.security.labels == frozenset()
            return with_security(message, labels=frozenset({text}))

        return call

    outcome = await pipe(*(calling(label(name), name=name, mode="concurrent") for name in "ab")).arun(says("hi"))

    assert outcome.labels == {"pii", "a", "b"}
    called = await asyncio.to_thread(
        pipe(*(calling(label(name), name=name, mode="concurrent") for name in "ab")).run, says("hi")
    )
    assert called.labels == {"pii", "a", "b"}


@pytest.mark.spec("STG-10")
async def test_fire_and_forget_stages_run_afterwards_change_nothing_and_leave_no_task(pipe: Make) -> None:
    seen: list[str] = []

    async def late(message: Message, _: Context) -> Message:
        await asyncio.sleep(0)
        seen.append(message.content[0].text)
        return replace(message, content=())

    async def forever(*_: Any) -> None:
        await asyncio.sleep(60)

    pipeline = pipe(
        calling(late, name="late", mode="fire_and_forget"),
        calling(_raise, name="broken", mode="fire_and_forget"),
        calling(forever, name="forever", mode="fire_and_forget", timeout_seconds=60),
    )

    outcome = await pipeline.arun(says("hi"))
    assert text_of(outcome) == ["hi"]
    await asyncio.sleep(0.01)
    assert seen == ["hi"]
    await pipeline.aclose()
    assert len(asyncio.all_tasks()) == 1
    await asyncio.to_thread(pipe(calling(late, mode="fire_and_forget")).run, says("there"))
    assert seen == ["hi", "there"]


@pytest.mark.spec("STG-13")
async def test_a_plain_stage_costs_no_task(pipe: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    original = asyncio.create_task
    monkeypatch.setattr(asyncio, "create_task", lambda *given, **more: made.append(given) or original(*given, **more))

    await pipe(calling(lambda m, _: m), calling(lambda *_: None, name="b")).arun(says("hi"))

    assert made == []


@pytest.mark.spec("STG-10")
@pytest.mark.spec("STG-13")
async def test_plain_stages_beside_coroutines_cost_no_task_and_their_no_ends_those(pipe: Make) -> None:
    """A coroutine whose task never began is closed, not left behind; the plain one did not wait for it."""
    begun = []

    async def slow(*_: Any) -> None:
        begun.append("slow")
        await asyncio.sleep(30)

    def no(*_: Any) -> Refuse:
        begun.append("no")
        return Refuse(code="my.no", reason="x")

    def never(*_: Any) -> None:
        begun.append("never")

    calls = {"first": lambda *_: begun.append("first"), "slow": slow, "no": no, "never": never}
    pipeline = pipe(*(calling(call, name=name, mode="concurrent") for name, call in calls.items()))

    record = stopped(await asyncio.wait_for(pipeline.arun(says("hi")), 5))

    assert record.stage == "no"
    assert begun == ["first", "no"]
    assert len(asyncio.all_tasks()) == 1


async def test_a_stage_may_return_anything_that_can_be_awaited(pipe: Make) -> None:
    def later(*_: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        return future

    alone = await pipe(calling(later)).arun(says("hi"))
    beside = [calling(later, name=name, mode="concurrent") for name in "ab"]
    together = await pipe(*beside).arun(says("hi"))

    assert (alone.decision.action, together.decision.action) == (Action.FORWARD, Action.FORWARD)


@pytest.mark.spec("STG-2")
def test_an_equal_copy_is_no_change(pipe: Make) -> None:
    outcome = pipe(calling(lambda m, _: replace(m, content=(TextPart(text="a"),)))).run(says("a"))

    assert [record.changed for record in outcome.decision.stages] == [False]


@pytest.mark.spec("STG-2")
def test_neighbours_that_see_the_same_are_given_the_same_object(pipe: Make) -> None:
    seen: list[Message] = []

    def looks(message: Message, _: Context) -> None:
        seen.append(message)

    def changes(message: Message, _: Context) -> Message:
        seen.append(message)
        return replace(message, content=(TextPart(text="b"),))

    some, other = ["read_labels"], ["read_labels", "read_subject"]
    pipe(
        calling(looks, name="a", capabilities=some),
        calling(changes, name="b", capabilities=some),
        calling(looks, name="c", capabilities=some),
        calling(looks, name="d", capabilities=other),
    ).run(says("a"))

    assert seen[0] is seen[1]
    assert [message.content[0] for message in seen] == [TextPart(text=text) for text in "aabb"]
    assert seen[2] is not seen[3]


@pytest.mark.spec("EVT-1")
@pytest.mark.spec("EVT-2")
def test_events_come_in_order_and_a_failing_subscriber_does_not_stop_others(
    pipe: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = pipe(calling(lambda m, _: with_security(m, labels=frozenset({"b", "a"}))))
    seen: list[Any] = []
    pipeline.events.subscribe(_raise)  # type: ignore[arg-type]
    stop = pipeline.events.subscribe(seen.append)

    pipeline.run(says("canary-99"))
    stop()
    pipeline.run(says("hi"))

    assert [(event.label, event.path, event.by) for event in seen] == [
        ("a", "messages[0]", "one"),
        ("b", "messages[0]", "one"),
    ]
    assert "RuntimeError" in caplog.text
    assert "canary" not in caplog.text + str(seen)


# -- what would read as something else ---------------------------------------------------------------------------------


async def _cancels(*_: Any) -> None:
    raise asyncio.CancelledError


async def _cancels_itself(*_: Any) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


def _ends(*_: Any) -> None:
    raise GeneratorExit


class _Panic(BaseException):
    """As native modules raise it."""


def _panics(*_: Any) -> None:
    raise _Panic


async def _panics_later(*_: Any) -> None:
    raise _Panic


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("call", [_cancels, _ends, _panics, _panics_later])
@pytest.mark.parametrize("mode", ["sequential", "concurrent"])
async def test_a_stage_cannot_pass_for_a_caller_that_gave_up(pipe: Make, call: Any, mode: str) -> None:
    stages = [calling(call, name=name, mode=mode) for name in "ab"]

    assert stopped(await pipe(*stages).arun(says("hi"))).hit.code == "stage.error"  # type: ignore[union-attr]
    assert stopped(await asyncio.to_thread(pipe(*stages).run, says("hi"))).hit.code == "stage.error"  # type: ignore[union-attr]


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_is_no_failure_of_a_stage(pipe: Make, error: type[BaseException]) -> None:
    def plain(*_: Any) -> None:
        raise error

    async def awaited(*_: Any) -> None:
        raise error

    for call in (plain, awaited):
        with pytest.raises(error):
            pipe(calling(call)).run(says("hi"))


@pytest.mark.spec("STG-11")
@pytest.mark.parametrize("no", [Refuse(code=7, reason="x"), Ask(code="c", reason=None)])  # type: ignore[arg-type]
def test_a_no_without_words_is_nonsense(pipe: Make, no: Any) -> None:
    assert stopped(pipe(calling(lambda *_: no)).run(says("hi"))).hit.code == "stage.bad-result"  # type: ignore[union-attr]


@pytest.mark.spec("STG-11")
async def test_a_concurrent_stage_that_cancels_its_own_task_failed(pipe: Make) -> None:
    stages = [calling(call, name=name, mode="concurrent") for name, call in [("a", _cancels_itself), ("b", _nothing)]]

    assert stopped(await pipe(*stages).arun(says("hi"))).hit.code == "stage.error"  # type: ignore[union-attr]


async def _nothing(*_: Any) -> None:
    await asyncio.sleep(0)


@pytest.mark.spec("STG-10")
async def test_a_run_that_is_cancelled_is_cancelled(pipe: Make) -> None:
    for stages in ([calling(_hang)], [calling(_hang, name=name, mode="concurrent") for name in "ab"]):
        run = asyncio.create_task(pipe(*stages).arun(says("hi")))
        await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert len(asyncio.all_tasks()) == 1


@pytest.mark.spec("STG-11")
async def test_a_coroutine_stage_fails_in_a_synchronous_run_inside_a_loop(pipe: Make) -> None:
    class Ready:
        def __await__(self) -> Any:
            yield

    for call in (_nothing, lambda *_: Ready()):
        record = stopped(pipe(calling(call)).run(says("hi")))
        assert record.hit is not None
        assert record.hit.code == "stage.not-awaited"


@pytest.mark.spec("STG-10")
async def test_what_concurrent_stages_change_is_all_kept_in_their_order(pipe: Make) -> None:
    def adds(name: str, pause: float) -> Any:
        async def call(message: Message, _: Context) -> Message:
            await asyncio.sleep(pause)
            assert message.extensions is not None
            old = message.extensions
            assert old.http is not None
            assert old.delegation is not None
            assert old.custom is not None
            return with_slot(
                message,
                custom={name: 1, "k": old.custom["k"], "both": name},
                http=HttpExtension(headers={**old.http.headers, f"x-{name}": name, "x-both": name}),
                delegation=replace(
                    old.delegation, chain=(*old.delegation.chain, DelegationHop(delegator=name, delegate=name))
                ),
            )

        granted = ["write_headers", "read_delegation"]
        return calling(call, name=name, mode="concurrent", capabilities=granted)

    async def takes(message: Message, _: Context) -> Message:
        return with_slot(message, custom=None)

    def drops(message: Message, _: Context) -> Message:
        return with_slot(message, http=None)

    slow_first = [adds("a", 0.02), adds("b", 0), calling(takes, name="t", mode="concurrent")]
    outcome = await pipe(*slow_first).arun(says("hi"))
    called = await asyncio.to_thread(pipe(*slow_first).run, says("hi"))
    assert outcome.message is not None
    assert called.message is not None
    found = outcome.message.extensions
    assert found == called.message.extensions
    assert found is not None
    assert found.http is not None
    assert found.delegation is not None
    assert [hop.delegator for hop in found.delegation.chain] == ["ann", "a", "b"]
    assert (found.http.headers["x-a"], found.http.headers["x-b"], found.http.headers["x-both"]) == ("a", "b", "b")
    assert "X-Trace" in found.http.headers  # which nobody touched
    assert found.custom == {"a": 1, "b": 1, "both": "b"}

    granted = ["write_headers"]
    gone = [adds("a", 0), calling(drops, name="d", mode="concurrent", capabilities=granted)]
    outcome = await asyncio.to_thread(pipe(*gone).run, says("hi"))
    assert outcome.message is not None
    assert outcome.message.extensions is not None
    assert outcome.message.extensions.http == HttpExtension(headers={"x-a": "a", "x-both": "a"})


@pytest.mark.spec("STG-10")
@pytest.mark.parametrize("awaited", [False, True])
async def test_stages_of_afterwards_run_once_and_only_for_what_was_given_out(tmp_path: Path, awaited: bool) -> None:
    class Contended(MemorySessions):
        left = 3

        def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
            self.left -= 1
            return self.left < 0 and super().commit(context, expected_version, changes)

    seen: list[str] = []
    late = calling(lambda *_: seen.append("late"), mode="fire_and_forget")
    rule = 'label contains {"code": "l", "reason": "x", "label": "new"}'
    pipeline = Pipeline([late], policies=write_rules(tmp_path, {"label": rule}), sessions=Contended())
    context = Context(session="s")
    if awaited:
        await pipeline.arun(says("hi"), context)
        await asyncio.sleep(0.01)
    else:
        pipeline.run(says("hi"), context)

    assert seen == ["late"]


class Shouting:
    """A callable that is no function: it has no name of its own."""

    def __call__(self, value: Message, context: Context) -> Message:
        return value.model_copy(update={"content": [TextPart(text="HI")]})


@pytest.mark.spec("STG-1")
def test_a_stage_is_any_callable_and_can_still_be_called_where_it_has_rights(pipe: Make) -> None:
    async def refusing(value: Message, context: Context) -> Refuse:
        return Refuse(code="test.no", reason="no")

    shouted = pipe(Shouting()).run(says("hi"), Context())
    refused = asyncio.run(pipe(Shouting(), refusing).arun(says("hi"), Context()))

    assert text_of(shouted) == ["HI"]
    assert [(one.stage, one.hit and one.hit.code) for one in refused.decision.stages] == [
        ("Shouting", None),
        ("refusing", "test.no"),
    ]
    assert as_stage("loud", mode="transform")(Shouting())(says("hi"), Context()) == Shouting()(says("hi"), Context())


@pytest.mark.spec("STG-1")
@pytest.mark.parametrize(
    "made",
    [
        lambda: Pipeline([3]),  # type: ignore[list-item]
        lambda: as_stage("s", mode="sideways"),
        lambda: as_stage("s", capabilities=["read_minds"]),
        lambda: as_stage("s", on_error="shrug"),
        lambda: as_stage(_raise),  # type: ignore[arg-type]
    ],
    ids=["no callable", "mode", "capability", "on_error", "no name"],
)
def test_an_invalid_stage_is_refused_before_anything_runs(made: Callable[[], object]) -> None:
    with pytest.raises(ConfigError):
        made()
