"""What hosts bring along (stores, recorders, engines) may raise anything: nothing goes out, and nothing is raised."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.staging import calling

from cmf import Message, Request, SubjectExtension, TextPart, ToolCallPart
from pipeline import Config, Context, Guard, Pipeline, PolicyUnavailable
from pipeline.audit.record import Record
from pipeline.decisions.cancellation import is_cancelled
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import SessionError, where_from
from pipeline.decisions.events import RecordUnavailable
from pipeline.decisions.policy_input import SessionFacts
from pipeline.run.offload import Offload, _forget_all_threads
from pipeline.sessions.base import MemorySessions
from pipeline.sessions.state import Changes

HERE = Context(subject=SubjectExtension(id="ann"), session="s")
LABEL = 'label contains {"code": "l", "reason": "x", "label": input.content} if startswith(input.content, "label")'
ASK = 'require_approval contains {"code": "a", "reason": "Ask."} if startswith(input.name, "pay")'
SECRET = "content canary-4711"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), {"label": LABEL, "ask": ASK}, capabilities="read_labels")


def says(text: str) -> Message:
    return Message(role="user", content=[TextPart(text=text)])


def calls(name: str) -> Message:
    return Message(role="assistant", content=[ToolCallPart(name=name, arguments={"x": 1})])


class Raising:
    """A store, engine and recorder whose method `name` raises."""

    def __init__(self, name: str, error: BaseException) -> None:
        self.name, self.error = name, error

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "name"):
            raise object.__getattribute__(self, "error")
        return object.__getattribute__(self, name)


class Store(Raising, MemorySessions):
    def __init__(self, name: str, error: BaseException) -> None:
        MemorySessions.__init__(self)
        Raising.__init__(self, name, error)


class Engine(Raising):
    revision = "r"

    def close(self) -> None:
        pass


class Records(Raising):
    pass


FOREIGN = [RuntimeError(SECRET), OSError(5, SECRET), TimeoutError(SECRET), KeyError(SECRET)]


async def ran(pipeline: Pipeline, awaited: bool, value: Any, context: Context = HERE) -> Any:
    return await pipeline.arun(value, context) if awaited else await asyncio.to_thread(pipeline.run, value, context)


@pytest.mark.spec("PIPE-5")
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("name", ["read", "commit", "seen"])
async def test_whatever_a_store_raises_is_an_outage(
    policies: Path, name: str, error: Exception, awaited: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        pipeline = Pipeline(policies=policies, sessions=Store(name, error), config=Config(sessions="by_prefix"))
        here = HERE if name != "seen" else Context(subject=HERE.subject)
        outcome = await ran(pipeline, awaited, Request(messages=[says("label")]), here)

    (hit,) = outcome.decision.reasons
    assert (outcome.value, hit.code) == (None, "pipeline.failed")
    assert hit.reason == "Something failed before policy could decide."
    assert "test_foreign_failures" in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.spec("PIPE-5")
@pytest.mark.parametrize("awaited", [False, True])
async def test_whatever_an_engine_raises_is_its_failure(policies: Path, awaited: bool) -> None:
    engine: Any = Engine("aevaluate" if awaited else "evaluate", RuntimeError(SECRET))
    outcome = await ran(Pipeline(policies=policies, engine=engine), awaited, says("hi"))

    assert (outcome.value, [hit.code for hit in outcome.decision.reasons]) == (None, ["engine.failed"])


@pytest.mark.spec("REC-16")
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
async def test_whatever_a_recorder_raises_nothing_goes_out(policies: Path, error: Exception, awaited: bool) -> None:
    recorder: Any = Records("arecord" if awaited else "record", error)
    pipeline = Pipeline(policies=policies, recorder=recorder)
    told: list[object] = []
    pipeline.events.subscribe(told.append)
    outcome = await ran(pipeline, awaited, says("hi"))

    assert (outcome.value, [hit.code for hit in outcome.decision.reasons]) == (None, ["record.unavailable"])
    assert [event.code for event in told if isinstance(event, RecordUnavailable)] == ["record.unavailable"]


# -- what Python does not take for an error ----------------------------------------------------------------------------


class Panic(BaseException):
    """As native modules raise it."""


class Kept:
    """A recorder in memory."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def record(self, record: Record) -> None:
        self.records.append(record)

    async def arecord(self, record: Record) -> None:
        self.record(record)


def failing(policies: Path, part: str, error: BaseException, kept: Any) -> Pipeline:
    """A pipeline one of whose parts raises `error`."""

    def plain(*_: Any) -> None:
        raise error

    async def awaited(*_: Any) -> None:
        raise error

    host: dict[str, Any] = {}
    if part in ("evaluate", "aevaluate"):
        host["engine"] = Engine(part, error)
    elif part in ("sequential", "concurrent"):
        call = plain if part == "sequential" else awaited
        host["stages"] = [calling(call, name=name, mode=part) for name in "ab"]
    else:
        host |= {"sessions": Store(part, error), "config": Config(sessions="by_prefix")}
    return Pipeline(policies=policies, recorder=kept, **host)


def asked_in(part: str) -> Context:
    return HERE if part != "seen" else Context(subject=HERE.subject)


PARTS = [
    ("evaluate", False, "engine.failed"),
    ("aevaluate", True, "engine.failed"),
    ("sequential", False, "stage.error"),
    ("concurrent", True, "stage.error"),
    ("read", False, "pipeline.failed"),
    ("read", True, "pipeline.failed"),
    ("commit", False, "pipeline.failed"),
    ("commit", True, "pipeline.failed"),
    ("seen", False, "pipeline.failed"),
    ("seen", True, "pipeline.failed"),
]


@pytest.mark.spec("PIPE-5")
@pytest.mark.parametrize("error", [Panic, asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize(("part", "awaited", "code"), PARTS)
async def test_a_panic_or_what_poses_as_a_cancellation_is_a_failure_on_record(
    policies: Path, part: str, awaited: bool, code: str, error: type[BaseException]
) -> None:
    kept = Kept()
    pipeline = failing(policies, part, error(SECRET), kept)
    outcome = await ran(pipeline, awaited, Request(messages=[says("label")]), asked_in(part))

    assert (outcome.value, {hit.code for hit in outcome.decision.reasons}) == (None, {code})
    assert [record.id for record in kept.records] == [outcome.decision.id]


@pytest.mark.spec("PIPE-5")
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize(("part", "awaited", "_"), PARTS)
async def test_what_ends_the_process_does_so_once_the_run_is_on_record_as_failed(
    policies: Path, part: str, awaited: bool, _: str, error: type[BaseException]
) -> None:
    kept = Kept()
    pipeline = failing(policies, part, error(SECRET), kept)
    value = Request(messages=[says("label")])
    with pytest.raises(error):
        await pipeline.arun(value, asked_in(part)) if awaited else pipeline.run(value, asked_in(part))

    (record,) = kept.records
    assert (record.verdict, record.action) == ("deny", "refuse")
    assert b"pipeline.failed" in record.body
    assert SECRET.encode() not in record.body


@pytest.mark.spec("REC-16")
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_recorder_that_panics_keeps_nothing_and_one_that_ends_the_process_ends_it(
    policies: Path, awaited: bool
) -> None:
    name = "arecord" if awaited else "record"
    panicking: Any = Records(name, Panic(SECRET))
    outcome = await ran(Pipeline(policies=policies, recorder=panicking), awaited, says("hi"))
    assert (outcome.value, [hit.code for hit in outcome.decision.reasons]) == (None, ["record.unavailable"])

    ending: Any = Records(name, SystemExit(SECRET))
    pipeline = Pipeline(policies=policies, recorder=ending)
    with pytest.raises(SystemExit):
        await pipeline.arun(says("hi")) if awaited else pipeline.run(says("hi"))


class Waiting(Kept):
    """An engine, and a recorder, that never answers."""

    revision = "r"

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def aevaluate(self, *_: Any, **__: Any) -> Any:
        self.asked.set()
        await asyncio.Event().wait()

    async def arecord(self, record: Record) -> None:
        self.asked.set()
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


@pytest.mark.spec("PIPE-5")
@pytest.mark.parametrize("part", ["engine", "recorder"])
async def test_who_gives_up_waiting_is_cancelled_and_nothing_more_is_awaited(policies: Path, part: str) -> None:
    kept = Kept()
    waiting = Waiting()
    host: dict[str, Any] = {"recorder": kept, part: waiting}
    running = asyncio.create_task(Pipeline(policies=policies, **host).arun(says("hi")))
    async with asyncio.timeout(5):
        await waiting.asked.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert kept.records == []


def test_a_coroutine_that_is_closed_has_been_given_up() -> None:
    assert is_cancelled(GeneratorExit())  # nothing runs that it could await


@pytest.mark.spec("PIPE-5")
def test_what_is_a_failure_anywhere_is_one_where_no_loop_runs() -> None:
    assert not is_cancelled(ValueError())


@pytest.mark.spec("GRD-2")
def test_a_guard_says_that_such_a_failure_is_an_outage(policies: Path) -> None:
    guard = Guard(policies, sessions=Store("read", RuntimeError(SECRET)))
    with pytest.raises(PolicyUnavailable) as caught:
        guard.check(says("hi"), subject=HERE.subject, session="s")

    assert caught.value.retryable
    assert SECRET not in str(caught.value)


@pytest.mark.spec("PIPE-5")
def test_what_a_session_refuses_is_no_outage(policies: Path) -> None:
    pipeline = Pipeline(policies=policies, sessions=Store("commit", SessionError("No.", code="session.x", hint="")))
    outcome = pipeline.run(says("label"), HERE)

    assert [(hit.rule, hit.code) for hit in outcome.decision.reasons] == [("pipeline", "session.x")]


@pytest.mark.spec("SES-21")
@pytest.mark.parametrize("name", ["t" * 3_000, "\u0001" * 3_000, "ä" * 3_000])
def test_names_of_any_length_fit_an_event_and_are_not_taken_for_others(policies: Path, name: str) -> None:
    sessions = MemorySessions()
    pipeline = Pipeline(policies=policies, sessions=sessions)
    for value in (calls(name), says(f"label {name}"), Request(messages=[says("hi"), calls(name)])):
        assert pipeline.run(value, HERE).decision.action is Action.FORWARD

    names = [event.get("uri", event.get("label")) for event in sessions.read(HERE).events]
    assert len(names) == 3
    assert all(name.endswith("…") and len(name) == 257 for name in names)


def test_what_is_no_traffic_is_a_mistake_of_the_caller(policies: Path) -> None:
    nothing: Any = "hello"
    with pytest.raises(TypeError, match="not a str"):
        Pipeline(policies=policies).run(nothing)


def test_a_log_names_the_line_that_failed_and_no_text() -> None:
    assert where_from(RuntimeError(SECRET)) == "RuntimeError"
    with pytest.raises(RuntimeError) as caught:
        Raising("x", RuntimeError(SECRET)).x  # noqa: B018
    assert where_from(caught.value).startswith("RuntimeError at tests.pipeline.test_foreign_failures:")
    assert SECRET not in where_from(caught.value)


# -- stores that make their callers wait -------------------------------------------------------------------------------


class Slow(MemorySessions):
    """A store that is far away."""

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()

    def _wait(self) -> None:
        self.threads.add(threading.current_thread().name)
        time.sleep(0.05)

    def read(self, context: Context) -> SessionFacts:
        self._wait()
        return super().read(context)

    def commit(self, context: Context, expected_version: int | None, changes: Changes) -> bool:
        self._wait()
        return super().commit(context, expected_version, changes)

    def seen(self, context: Context, marks: Any) -> frozenset[str]:
        self._wait()
        return super().seen(context, marks)


@pytest.mark.spec("PIPE-15")
async def test_a_store_that_waits_is_never_asked_on_the_loop(policies: Path) -> None:
    store = Slow()
    pipeline = Pipeline(policies=policies, sessions=store, config=Config(sessions="by_prefix"))
    conversation: Sequence[Message] = [says("label"), calls("look"), says("and?")]
    reply = calls("look")

    outcome = await pipeline.arun(Request(messages=conversation), Context(subject=HERE.subject))
    outcome = await pipeline.arun(reply, Context(subject=HERE.subject, session=outcome.session, history=conversation))

    assert outcome.decision.action is Action.FORWARD
    assert store.threads
    assert all(name.startswith("pipeline-store") for name in store.threads)
    await pipeline.aclose()


@pytest.mark.spec("PIPE-15")
async def test_many_runs_wait_together_and_leave_no_thread(policies: Path) -> None:
    store = Slow()
    others = set(threading.enumerate())
    pipeline = Pipeline(policies=policies, sessions=store)
    begin = time.monotonic()
    await asyncio.gather(
        *(pipeline.arun(says(f"label {at}"), Context(subject=HERE.subject, session=str(at))) for at in range(16))
    )
    # One by one, reads and commits would be 16 x 2 x 50 ms.
    assert time.monotonic() - begin < 1.2
    await pipeline.aclose()
    for thread in set(threading.enumerate()) - others:
        if thread.name.startswith("pipeline-store"):
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.spec("PIPE-15")
async def test_a_store_that_does_not_wait_costs_no_thread() -> None:
    here = threading.current_thread()
    assert await Offload(waits=False)(threading.current_thread) is here
    offload = Offload(waits=True)
    assert await offload(threading.current_thread) is not here
    offload.close()
    offload.close()
    assert await offload(threading.current_thread) is not here  # a closed one may be used again
    offload.close()


@pytest.mark.spec("REC-24")
async def test_in_a_child_process_calls_go_to_threads_of_its_own() -> None:
    offload, begun, free = Offload(waits=True), threading.Event(), threading.Event()
    parents = asyncio.ensure_future(offload(lambda: (begun.set(), free.wait(10))))
    await asyncio.to_thread(begun.wait, 10)
    with offload._lock:
        offload._forget_threads()  # as in a child that was forked at this moment

    found = await asyncio.wait_for(offload(threading.current_thread), 10)

    free.set()
    await parents
    assert found.name == "pipeline-store_0"
    offload.close()
    _forget_all_threads()
