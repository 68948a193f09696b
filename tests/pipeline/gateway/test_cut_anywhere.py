"""A request that is cancelled wherever it waits: what went out was judged, and everything is on record."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import MASK
from tests.pipeline.gateway.windows import Client, Pieces, aserved
from tests.pipeline.new_store import migrated

from cmf.message.message import ToolCallPart
from cmf.message.request import Request, Response
from cmf.message.security import SubjectExtension
from pipeline.approvals.queue import Approvals
from pipeline.decisions.authority import APPROVE
from pipeline.decisions.context import Context
from pipeline.gateway.upstreams.upstream import StreamObserver
from pipeline.guard import Guard
from pipeline.run.assembly import Config
from pipeline.store.database import Store
from pipeline.store.records import stored_records

_T = TypeVar("_T")
SECRET = "sk-secret"
BOB = SubjectExtension(id="bob", permissions=frozenset({APPROVE}))
PAY = 'require_approval contains {"code": "pay", "reason": "Ask."} if input.name == "pay"'
STREAM = "enforce\n#   stream: {max_match: 12}"


@dataclass
class Cut(Generic[_T]):
    """`work`, cancelled when it waits for the `at`-th time; `waits` counts how often it waited."""

    work: Awaitable[_T]
    at: int
    waits: int = 0

    def __await__(self) -> Generator[Any, Any, _T]:
        steps: Any = self.work.__await__()
        step = partial(steps.send, None)
        while True:
            try:
                waited = step()
            except StopIteration as end:
                found: _T = end.value
                return found
            if self.waits == self.at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            self.waits += 1
            try:
                step = partial(steps.send, (yield waited))
            except BaseException as error:  # noqa: BLE001  (as `yield from` does)
                step = partial(steps.throw, error)


@dataclass
class Watched(Pieces):
    """An upstream that notes how many runs are on record when it is asked."""

    store: Any = None
    known: list[int] = field(default_factory=list)

    async def ask(self, request: Request, body: Any, live: StreamObserver | None, /) -> Response:
        self.known.append(len(decisions(self.store)))
        return await super().ask(request, body, live)


def decisions(store: Store) -> list[dict[str, Any]]:
    return [json.loads(record.body) for record in stored_records(store.engine, kind="decision")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.at(migrated(tmp_path / "s.sqlite3")) as store:
        yield store


@pytest.fixture
def guard(tmp_path: Path, store: Store) -> Iterator[Guard]:
    policies = write_rules(tmp_path / "text", {"key": MASK}, kinds="text", mode=STREAM)
    write_rules(policies, {"pay": PAY}, kinds="tool_call")
    with Guard(policies, store=store, config=Config(seal_key=bytes(32))) as guard:
        yield guard


async def cut(work: Awaitable[Any], at: int) -> bool:
    """Whether `work` waited so often that it was cut. Nothing of it goes on afterwards."""
    cutting = Cut(work, at)

    async def run() -> None:
        await cutting

    with suppress(asyncio.CancelledError):
        await asyncio.ensure_future(run())
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left:  # what is judged, or changes a session, is brought to its end
        done, endless = await asyncio.wait(left, timeout=10)
        assert not endless
        assert all(task.cancelled() or task.exception() is None for task in done)
    return cutting.waits > at


@pytest.mark.spec("GW-15", "GW-17", "REC-16", "REC-22")
@pytest.mark.native
@pytest.mark.parametrize("window", [None, 1])
async def test_what_a_request_did_before_it_was_cut_is_on_record(
    guard: Guard, store: Store, window: int | None
) -> None:
    pieces = [f"It is {SECRET}, ", "as you said. ", "and so on " * 9, ToolCallPart(tool_call_id="c", name="look")]
    sessions, at, is_cut = store.sessions(), 0, True
    while is_cut:
        before, client, session = len(decisions(store)), Client(), f"s{at}"
        upstream = Watched(pieces, store=store)

        is_cut = await cut(aserved(guard, upstream, client=client, session=session, window=window), at)

        made = decisions(store)[before:]
        assert [count - before for count in upstream.known] == [1] * len(upstream.known)
        assert SECRET.encode() not in client.raw
        assert not client.raw or len(made) > 1
        counted = dict(sessions.read(Context(session=session)).counters)
        ended = [one for one in made[1:] if any(view["kind"] == "tool_call" for view in one["result"]["views"])]
        assert counted == ({"calls:tool://_/look": 1} if ended else {})
        at += 1

    assert at > 4
    assert b"look" in client.raw  # the last one, which was not cut


@pytest.mark.spec("GW-17", "APR-10", "REC-16")
@pytest.mark.native
async def test_an_approval_that_a_cut_request_used_is_on_record_as_used(guard: Guard, store: Store) -> None:
    upstream = Watched([ToolCallPart(tool_call_id="c", name="pay")], store=store)
    sessions, at, is_cut = store.sessions(), 0, True
    approvals = Approvals(sessions, seal_key=bytes(32))
    while is_cut:
        session, client = f"s{at}", Client()
        held = await aserved(guard, upstream, session=session, window=None)
        assert held.refusal is not None
        approval = held.refusal.headers["x-cmf-approval-id"]
        approvals.approve(approval, BOB)
        before = len(decisions(store))
        headers = {"x-cmf-approval-id": approval}

        is_cut = await cut(aserved(guard, upstream, client=client, session=session, headers=headers, window=None), at)

        made = decisions(store)[before:]
        again = await aserved(guard, upstream, session=session, headers=headers, window=None)
        assert (again.refusal is None) == (not made)  # whoever was cut before it was used can still have it
        assert not client.raw or made
        at += 1

    assert at > 2
    assert b"pay" in client.raw
