"""Every run is on record before its outcome is given out; what cannot be recorded does not go out."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import PROFILES, calls, says
from tests.pipeline.new_store import migrated
from tests.pipeline.run.test_pipeline import Broken

from cmf import Message, Request, SubjectExtension, ToolCallPart
from pipeline import Config, Context, Guard, Pipeline, PolicyUnavailable, as_stage
from pipeline.approvals.queue import Approvals
from pipeline.audit.record import Record
from pipeline.decisions.certificate import digest_of
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import StoreBusy, StoreError
from pipeline.decisions.events import RecordUnavailable
from pipeline.provenance.profiles import Profiles
from pipeline.run.outcome import Outcome
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.four_eyes import REVEAL
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_records

RULES = {
    "deny": 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")',
    "mask": 'redact contains {"code": "m", "reason": "x", "spans": [[0, 6]]} if startswith(input.content, "secret")',
    "ask": 'require_approval contains {"code": "a", "reason": "Ask."} if input.name == "pay"',
}
HERE = Context(subject=SubjectExtension(id="ann"), session="s")


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), RULES)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.at(migrated(tmp_path / "s.sqlite3")) as store:
        yield store


class Full:
    """A recorder that has no room."""

    def __init__(self, error: StoreError) -> None:
        self.error = error

    def record(self, record: Record) -> None:
        raise self.error

    async def arecord(self, record: Record) -> None:
        raise self.error


async def ran(pipeline: Pipeline, awaited: bool, value: Any, context: Context = HERE) -> Outcome:
    return await pipeline.arun(value, context) if awaited else pipeline.run(value, context)


def bodies(store: Store) -> list[dict[str, Any]]:
    return [json.loads(record.body) for record in stored_records(store.engine, kind="decision")]


@pytest.mark.spec("REC-16")
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize("error", [StoreError("gone"), StoreBusy("full"), StoreError("late", code="store.timeout")])
async def test_what_cannot_be_recorded_does_not_go_out(policies: Path, awaited: bool, error: StoreError) -> None:
    pipeline = Pipeline(policies=policies, recorder=Full(error))
    told: list[Any] = []
    pipeline.events.subscribe(told.append)

    outcome = await ran(pipeline, awaited, says("user", "hi"))

    assert (outcome.value, outcome.certificate, outcome.decision.action) == (None, None, Action.REFUSE)
    assert [(hit.rule, hit.code) for hit in outcome.decision.hits] == [("session", "record.unavailable")]
    (event,) = told
    assert event == RecordUnavailable(decision=event.decision, code=error.code, released=False)


@pytest.mark.spec("REC-1")
@pytest.mark.spec("PRF-7")
@pytest.mark.parametrize("profiles", [PROFILES, Profiles(), None])
def test_a_record_names_the_profiles_that_a_run_was_judged_with(
    policies: Path, store: Store, profiles: Profiles | None
) -> None:
    pipeline = Pipeline(policies=policies, recorder=Recorder(store), profiles=profiles)

    pipeline.run(says("user", "hi"), HERE)

    (body,) = bodies(store)
    known = {"profiles": {"revision": PROFILES.revision}} if profiles is PROFILES else {}
    assert body["bundles"] == {"cmf": {"revision": pipeline.revision}, **known}


@pytest.mark.spec("REC-16")
def test_for_a_guard_that_is_an_outage(policies: Path) -> None:
    with pytest.raises(PolicyUnavailable) as caught:
        Guard(policies, recorder=Full(StoreError("gone"))).check(says("user", "hi"))

    assert caught.value.code == "record.unavailable"


@pytest.mark.spec("REC-17")
@pytest.mark.parametrize("awaited", [False, True])
async def test_where_the_operator_says_so_it_goes_out_unrecorded_and_an_event_says_it(
    policies: Path, awaited: bool
) -> None:
    config = Config(on_record_failure="release")
    pipeline = Pipeline(policies=policies, recorder=Full(StoreError("gone")), config=config)
    told: list[Any] = []
    pipeline.events.subscribe(told.append)

    outcome = await ran(pipeline, awaited, says("user", "hi"))
    refused = await ran(pipeline, awaited, says("user", "forbidden"))

    assert (outcome.decision.action, refused.decision.action) == (Action.FORWARD, Action.REFUSE)
    assert [(event.decision, event.released) for event in told] == [
        (one.decision.id, True) for one in (outcome, refused)
    ]


@pytest.mark.spec("REC-18")
@pytest.mark.parametrize("awaited", [False, True])
async def test_every_run_has_one_record_whatever_came_of_it(policies: Path, store: Store, awaited: bool) -> None:
    pipeline = Pipeline(policies=policies, recorder=Recorder(store), sessions=store.sessions())
    outcomes = []
    for value in (says("user", "hi"), says("user", "secret x"), says("user", "forbidden"), calls("pay", {})):
        outcomes.append(await ran(pipeline, awaited, value))
        assert len(bodies(store)) == len(outcomes)
    broken = Pipeline(policies=policies, recorder=Recorder(store), sessions=Broken())
    outcomes.append(await ran(broken, awaited, says("user", "hi")))

    kept = bodies(store)

    assert [body["decision_id"] for body in kept] == [outcome.decision.id for outcome in outcomes]
    actions = ["forward", "forward_modified", "refuse", "suspend", "refuse"]
    assert [body["result"]["action"] for body in kept] == actions
    assert kept[3]["result"].get("approvals", []) == [one.to_json() for one in outcomes[3].decision.approvals]


@pytest.mark.spec("REC-18")
def test_a_record_has_digests_version_timings_and_what_stages_did(policies: Path, store: Store) -> None:
    @as_stage("mark", mode="transform")
    def mark(value: Message, _: Context) -> Message:
        return value

    pipeline = Pipeline([mark], policies=policies, recorder=Recorder(store))
    pipeline.run(calls("look", {}), HERE)
    second = calls("look", {"again": True})
    outcome = pipeline.run(second, HERE)
    pipeline.run(second)

    _, body, alone = bodies(store)

    assert outcome.certificate is not None
    assert (body["input_digest"], body["output_digest"]) == (digest_of(second), outcome.certificate.digest)
    assert body["session_version"] == outcome.session_version == 1
    assert "session_version" not in alone
    assert body["result"]["stages"] == [{"stage": "mark", "mode": "transform", "changed": False}]
    assert set(body["metrics"]) == {"run_ns", "stages_ns", "evaluate_ns"}
    assert 0 < body["metrics"]["evaluate_ns"] < body["metrics"]["run_ns"]


@pytest.mark.spec("REC-19")
def test_of_origins_a_record_has_counts_and_no_content(policies: Path, store: Store) -> None:
    arguments = {
        "to": "CONTENT@x.com",
        "cc": ["ann@x.com", True],
        "amount": 7,
        "body": "CONTENT",
        "other": {"CONTENT": 1},
    }
    said = says("user", "send to ann@x.com")
    pipeline = Pipeline(policies=policies, recorder=Recorder(store), profiles=PROFILES)

    pipeline.run(Request(messages=[said, calls("send", arguments)]), HERE)

    (record,) = stored_records(store.engine, kind="decision")
    assert b"CONTENT" not in record.body
    (origins,) = [view["origins"] for view in json.loads(record.body)["result"]["views"] if "origins" in view]
    assert origins["control"] == {"nowhere": 3, "trusted": 1}
    assert origins["content"] == {"nowhere": 1}


@pytest.mark.spec("REC-18")
def test_the_record_of_a_stage_that_stopped_a_run_says_which_and_with_what_code(policies: Path, store: Store) -> None:
    @as_stage("failing")
    def failing(value: Message, _: Context) -> Message:
        raise RuntimeError("CONTENT")

    Pipeline([failing], policies=policies, recorder=Recorder(store)).run(
        Message.model_validate({"role": "assistant", "content": [ToolCallPart(name="x")]})
    )

    (record,) = stored_records(store.engine, kind="decision")
    assert b"CONTENT" not in record.body
    (stage,) = json.loads(record.body)["result"]["stages"]
    assert (stage["stage"], stage["hit"]["code"]) == ("failing", "stage.error")


class Fails:
    """A recorder that fails when it is told to."""

    failing = False

    def record(self, record: Record) -> None:
        if self.failing:
            raise StoreError("full", code="store.unavailable", hint="")

    async def arecord(self, record: Record) -> None:
        self.record(record)


@pytest.mark.spec("REC-16")
@pytest.mark.parametrize("awaited", [False, True])
async def test_what_was_committed_before_the_record_failed_is_never_used_again(policies: Path, awaited: bool) -> None:
    recorder, sessions = Fails(), MemorySessions()
    pipeline = Pipeline(policies=policies, sessions=sessions, recorder=recorder)
    call = Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"x": 1})])
    (waiting,) = (await ran(pipeline, awaited, call)).decision.approval_ids
    Approvals(sessions).approve(waiting, SubjectExtension(id="eve", permissions={"cmf:approve"}))

    recorder.failing = True
    assert (await ran(pipeline, awaited, call)).value is None
    recorder.failing = False
    again = await ran(pipeline, awaited, call)
    assert (again.value, again.decision.action) == (None, Action.SUSPEND)
    assert again.decision.approval_ids != (waiting,)


class Slow(MemorySessions):
    """Sessions whose commits are held up, as by a disk."""

    waits = True

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.free = threading.Event(), threading.Event()

    def commit(self, context: Context, version: int | None, changes: Changes) -> bool:
        self.begun.set()
        assert self.free.wait(10)
        return super().commit(context, version, changes)


@pytest.mark.spec("REC-22")
async def test_a_run_that_is_cancelled_while_its_session_changes_is_on_record(policies: Path, store: Store) -> None:
    sessions = Slow()
    pipeline = Pipeline(policies=policies, sessions=sessions, recorder=Recorder(store))
    call = Message(role="assistant", content=[ToolCallPart(tool_call_id="c", name="look")])
    running = asyncio.create_task(pipeline.arun(call, HERE))
    await asyncio.to_thread(sessions.begun.wait, 10)

    running.cancel()
    await asyncio.sleep(0)
    assert not running.done()  # it is brought to its end first
    sessions.free.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert dict(sessions.read(HERE).counters) == {"calls:tool://_/look": 1}
    assert len(bodies(store)) == 1
    await pipeline.aclose()


SET = threading.Event()
SET.set()


class Elsewhere:
    """The sessions of a store, as another database would keep them: nobody can tell that records are beside them."""

    def __init__(self, sessions: SessionStore, begun: threading.Event = SET, free: threading.Event = SET) -> None:
        self._sessions, self._begun, self._free = sessions, begun, free
        self.failing, self.conflicts = False, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sessions, name)

    def hold_up(self) -> None:
        self._begun.set()
        assert self._free.wait(10)

    def commit(self, context: Context, version: int | None, changes: Changes) -> bool:
        self.hold_up()
        if self.failing:
            raise StoreError("gone")
        self.conflicts -= 1
        return self.conflicts < 0 and self._sessions.commit(context, version, changes)


def look() -> Message:
    return Message(role="assistant", content=[ToolCallPart(tool_call_id="c", name="look")])


@pytest.mark.spec("REC-22")
@pytest.mark.parametrize("kind", ["beside", "elsewhere"])
def test_a_run_whose_event_loop_ends_while_its_session_changes_is_on_record(
    policies: Path, database: Store, kind: str
) -> None:
    sessions = database.sessions()
    begun, free = threading.Event(), threading.Event()
    elsewhere = Elsewhere(sessions, begun, free)
    kept = sessions if kind == "beside" else elsewhere
    pipeline = Pipeline(policies=policies, sessions=kept, recorder=Recorder(database))

    async def main() -> None:
        run = asyncio.create_task(pipeline.arun(look(), HERE))
        await asyncio.to_thread(begun.wait, 10)
        while kind == "beside" and not database.writer._waiting.qsize():
            await asyncio.wait([run], timeout=0.001)  # until it is in the queue, behind what holds the writer up
        assert not run.done()

    if kind == "beside":
        database.writer.call(lambda _: elsewhere.hold_up())
    asyncio.run(main())  # ends, and cancels all tasks, while a thread is in the commit
    free.set()
    pipeline.close()
    while not sessions.read(HERE).counters:
        database.writer.call(lambda _: None).result(10)

    assert len(bodies(database)) == 1


@pytest.mark.spec("REC-16", "REC-22")
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_session_beside_its_records_changes_with_the_record_or_not_at_all(
    policies: Path, store: Store, awaited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = store.sessions()
    pipeline = Pipeline(policies=policies, sessions=sessions, recorder=Recorder(store), config=Config(content="whole"))
    commits: list[int] = []
    monkeypatch.setattr(type(store.writer), "_write", _counted(type(store.writer)._write, commits))

    first = await ran(pipeline, awaited, look())
    monkeypatch.setattr("pipeline.store.writer.insert_rows", _fail)
    refused = await ran(pipeline, awaited, Message(role="assistant", content=[ToolCallPart(name="pray")]))

    assert (first.value is not None, refused.value) == (True, None)
    assert [hit.code for hit in refused.decision.hits] == ["record.unavailable"]
    assert dict(sessions.read(HERE).counters) == {"calls:tool://_/look": 1}
    assert commits == [1, 1, 1]  # one for both; then one that failed, and the refusal's, which did too
    (body,) = bodies(store)
    monkeypatch.undo()
    seer = SubjectExtension(id="sue", permissions={REVEAL})
    kept = store.contents().reveal(body["decision_id"], actor=seer, reason="To test.")
    assert len(kept) == body["content"]["bytes"]


def _counted(write: Any, commits: list[int]) -> Any:
    def counting(writer: Any, batch: list[Any]) -> None:
        commits.append(len(batch))
        write(writer, batch)

    return counting


def _fail(*_: object) -> Any:
    raise OSError("no room")


@pytest.mark.spec("REC-23")
@pytest.mark.parametrize("awaited", [False, True])
async def test_a_decision_on_record_that_nothing_came_of_is_named_by_the_one_that_follows(
    policies: Path, store: Store, awaited: bool
) -> None:
    sessions = Elsewhere(store.sessions())
    pipeline = Pipeline(policies=policies, sessions=sessions, recorder=Recorder(store))
    sessions.conflicts = 2
    judged = await ran(pipeline, awaited, look())
    sessions.failing = True
    failed = await ran(pipeline, awaited, Message(role="assistant", content=[ToolCallPart(name="pray")]))

    one, two, last, then, outage = bodies(store)

    assert judged.decision.id == last["decision_id"]
    assert [body.get("overtaken") for body in (one, two)] == [None, [one["decision_id"]]]
    assert last["overtaken"] == [one["decision_id"], two["decision_id"]]
    assert (failed.decision.id, failed.value) == (outage["decision_id"], None)
    assert ("overtaken" in then, outage["overtaken"]) == (False, [then["decision_id"]])
    await pipeline.aclose()


@pytest.mark.spec("REC-16")
@pytest.mark.parametrize("awaited", [False, True])
async def test_what_cannot_be_recorded_first_changes_no_session_elsewhere(
    policies: Path, store: Store, awaited: bool
) -> None:
    sessions = Elsewhere(store.sessions())
    pipeline = Pipeline(policies=policies, sessions=sessions, recorder=Full(StoreError("gone")))

    outcome = await ran(pipeline, awaited, look())

    assert (outcome.value, dict(sessions.read(HERE).counters)) == (None, {})
    await pipeline.aclose()
