"""When a gateway says that it can serve: what its store did last counts, and asking leaves nothing behind."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event
from sqlalchemy.exc import OperationalError
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.servers import script, serving
from tests.pipeline.gateway.test_crossing import post
from tests.pipeline.gateway.test_watching import CHAT, get
from tests.pipeline.run_records import made_record

from pipeline.decisions.errors import StoreError
from pipeline.gateway import service
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.operations.operational_records import AGAIN_SECONDS, Readiness
from pipeline.sessions.base import MemorySessions
from pipeline.store.database import Store
from pipeline.store.records import stored_records

DENY = 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")'


@contextmanager
def full(store: Store) -> Iterator[None]:
    """A block in which reading works, and no transaction that writes can begin."""

    def begins(connection: Connection) -> None:
        if "cmf_begin" in connection.get_execution_options():
            error = sqlite3.OperationalError("SECRET")
            error.sqlite_errorname = "SQLITE_FULL"
            raise OperationalError("SECRET", None, error)

    event.listen(store.engine, "begin", begins)
    try:
        yield
    finally:
        event.remove(store.engine, "begin", begins)


@pytest.mark.spec("GW-60")
@pytest.mark.parametrize("setting", ["refuse", "release"])
def test_it_is_not_ready_from_a_write_that_failed_until_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    opened: list[Store] = []
    make = service.store_of

    def noted(settings: Settings) -> Store:
        opened.append(make(settings))
        return opened[-1]

    monkeypatch.setattr(service, "store_of", noted)
    monkeypatch.setattr("pipeline.gateway.operations.operational_records.AGAIN_SECONDS", 0.0)
    policies = write_rules(tmp_path / "policy", {"deny": DENY}, kinds="text")
    body: dict[str, Any] = {"upstreams": {"up": script(tmp_path, {"text": "x"})}, "policies": [str(policies)]}
    body["audit"] = {"on_record_failure": setting}
    with serving(tmp_path, body) as url:
        (store,) = opened

        def ask() -> Any:
            return post(url, CHAT, {"model": "m", "messages": [{"role": "user", "content": "hi"}]}, {})

        before = get(url, "/readyz")
        with full(store):
            ask()
            failed = [get(url, "/readyz") for _ in range(2)]
        again = get(url, "/readyz")
        kept = [one.kind for one in stored_records(store.engine)]

    assert (before[0], again[0]) == (200, 200)
    if setting == "release":
        assert [status for status, _ in failed] == [200, 200]
        return
    for status, text in failed:
        said = json.loads(text)
        assert (status, said["status"]) == (503, "store.unavailable")
        assert said["reason"] == "the database reported SQLITE_FULL: the disk is full"
    assert kept == ["log", "config", "policy"]


@pytest.mark.spec("GW-60")
def test_a_write_is_tried_once_a_second_at_most_and_leaves_nothing(tmp_path: Path) -> None:
    now = [100.0]
    with Store.at(tmp_path / "s.db") as store:
        ready = Readiness(MemorySessions(), store, clock=lambda: now[0])
        ready.check()
        with full(store), pytest.raises(StoreError, match="the disk is full"):
            store.put_on_record(made_record())
        with full(store), pytest.raises(StoreError, match="the disk is full"):
            ready.check()
        with pytest.raises(StoreError, match="the disk is full"):
            ready.check()  # not tried: it would work
        now[0] += AGAIN_SECONDS
        ready.check()
        now[0] -= AGAIN_SECONDS
        ready.check()  # the last write worked

        assert store.audit_state.records == 0
