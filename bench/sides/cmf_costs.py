"""This project: what comes with a decision or holds memory; each operation for a process of its own or in rounds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import documents, medium
from bench.wall import wall_seconds
from cmf import Message
from pipeline import Config, Context, Pipeline
from pipeline.engines.opa import OpaServerEngine, _Client
from pipeline.sessions.base import MemorySessions
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder

CALLS = 30


def operations(tcp: str = "", socket: str = "") -> dict[str, Callable[..., Any]]:
    """Wall seconds of a decision by engine and with audit; `keep_session`, `keep_guard` for memory."""
    policies = medium.policies()
    texts = [documents.message_bytes(index) for index in range(50)]
    context = Context.model_validate({"subject": documents.extensions(0)["security"]["subject"]})
    config = Config(max_verdicts=0)
    made: dict[str, Callable[..., Any]] = {}

    def decides(pipeline: Pipeline) -> Callable[[], float]:
        def decide(index: int) -> object:
            return pipeline.run(Message.model_validate_json(texts[index % 50]), context)

        wall_seconds(decide, 10)
        return lambda: wall_seconds(decide, CALLS)

    made["embedded"] = decides(Pipeline(policies=policies, config=config))
    if tcp:
        engine = OpaServerEngine(tcp, revision=policies.revision)
        made["opa, loopback"] = decides(Pipeline(policies=policies, engine=engine, config=config))
        local = OpaServerEngine(tcp, revision=policies.revision)
        new_client = local._new_client
        local._new_client = lambda: _over(socket, new_client())
        made["opa, unix socket"] = decides(Pipeline(policies=policies, engine=local, config=config))
    folder = tempfile.mkdtemp()
    store = Store.at(Path(folder) / "audit.sqlite3").__enter__()
    made["embedded, on record"] = decides(Pipeline(policies=policies, config=config, recorder=Recorder(store)))
    sessions = MemorySessions()
    remembering = Pipeline(policies=policies, config=config, sessions=sessions)

    def session(index: int) -> object:
        held = Context.model_validate({"subject": {"id": "ann"}, "session": f"s-{index}"})
        remembering.run(Message.model_validate_json(texts[index % 50]), held)
        return None  # what is kept is in the store of sessions

    made["keep_session"] = session
    made["keep_shipped"] = lambda index: Pipeline(config=Config(max_verdicts=0)) if index else None
    made["close"] = lambda: store.__exit__(None, None, None)
    return made


def _over(socket: str, client: _Client) -> _Client:
    """The same client, whose connections go over a unix socket."""
    import aiohttp

    connect = client.connect

    def connected() -> None:
        plain = aiohttp.TCPConnector
        aiohttp.TCPConnector = lambda limit, ssl: aiohttp.UnixConnector(socket, limit=limit)  # type: ignore[assignment,misc]
        try:
            connect()
        finally:
            aiohttp.TCPConnector = plain  # type: ignore[misc]

    client.connect = connected  # type: ignore[method-assign]
    return client
