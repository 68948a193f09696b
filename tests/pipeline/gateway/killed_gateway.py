"""Gateways that are killed, or run out of disk: `python -m tests.pipeline.gateway.killed_gateway MODE DIRECTORY …`.

    kills DIRECTORY KILLS SEED    a gateway under load, killed at random moments; what was lost
    full DIRECTORY                a gateway whose files may not grow any more, and then may again

It is a process of its own because a process with threads cannot be forked safely.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import random
import resource
import signal
import socket
import sqlite3
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.audit.exporting import read_heads
from pipeline.audit.verification import verify
from pipeline.gateway.config import config_file
from pipeline.gateway.http.server import listening, server_of
from pipeline.gateway.service import built
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.records import stored_records

CLIENTS = 16
CHAT = "/v1/chat/completions"
ROOM = 64 * 1024  # bytes that the files may grow by before the disk is full


def _serve(home: Path, at: socket.socket, *, room: int | None = None) -> None:
    """A gateway until it is killed; SIGUSR1 gives it back its disk, SIGUSR2 takes it."""
    settings = config_file.load(home / "cmf.yaml", {}).settings

    def take(*_: object) -> None:
        sizes = [file.stat().st_size for file in home.iterdir() if file.name.startswith("cmf.db")]
        resource.setrlimit(resource.RLIMIT_FSIZE, (max(sizes) + (room or 0), resource.RLIM_INFINITY))

    def give(*_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    signal.signal(signal.SIGUSR1, give)
    signal.signal(signal.SIGUSR2, take)
    with built(settings, {}) as gateway:
        asyncio.run(server_of(gateway, settings.limits).serve(sockets=[at]))


def _begun(home: Path, at: socket.socket, *, room: int | None = None) -> int:
    child = os.fork()
    if child == 0:
        try:
            _serve(home, at, room=room)
        finally:
            os._exit(3)
    return child


class _Clients:
    """Clients that ask without an end, and note whom they were told: by request, the status."""

    def __init__(self, port: int) -> None:
        self.told: dict[str, int] = {}
        self.first = threading.Event()
        self._port = port
        self._connections: set[http.client.HTTPConnection] = set()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(CLIENTS)]

    def __enter__(self) -> _Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the questions too that wait in the queue of the socket, where nobody takes them up."""
        self._over.set()
        while any(thread.is_alive() for thread in self._threads):
            for connection in tuple(self._connections):
                with contextlib.suppress(OSError, AttributeError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            time.sleep(0.01)

    def _ask(self) -> None:
        while not self._over.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
            self._connections.add(connection)
            try:
                request, status = ask(connection)
            except (OSError, http.client.HTTPException):
                time.sleep(0.005)
                continue
            finally:
                self._connections.discard(connection)
            self.told[request] = status
            self.first.set()


def ask(at: int | http.client.HTTPConnection, text: str = "hello") -> tuple[str, int]:
    """The request's id and status of one question, whose whole answer came; `at` is a port or a connection."""
    connection = http.client.HTTPConnection("127.0.0.1", at, timeout=10) if isinstance(at, int) else at
    try:
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]})
        connection.request("POST", CHAT, body, {"content-type": "application/json", "x-cmf-session-id": "s"})
        reply = connection.getresponse()
        reply.read()
        return reply.headers["x-request-id"], reply.status
    finally:
        connection.close()


def probe(port: int) -> int:
    """Whether it says that it is ready, as a status."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status
    finally:
        connection.close()


def kills(home: Path, count: int, seed: int) -> dict[str, Any]:
    """What was told, what of it is not on record, and whether the log holds."""
    dice = random.Random(seed)
    told: dict[str, int] = {}
    with listening("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        for _ in range(count):
            child = _begun(home, at)
            with _Clients(port) as clients:
                clients.first.wait(60)
                time.sleep(dice.uniform(0.05, 0.25))
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            told |= clients.told
    return {"kills": count} | _found(home, told)


def _found(home: Path, told: dict[str, int]) -> dict[str, Any]:
    heads = read_heads(home / "heads.jsonl")
    with Store.at(home / "cmf.db") as store:
        rows = [one.id for one in stored_records(store.engine, kind="decision")]
        asked = Counter(json.loads(one.body or b"")["req_id"] for one in stored_records(store.engine, kind="decision"))
        report = verify(StoreEvidence(store.engine), exported=heads)
    with sqlite3.connect(home / "cmf.db") as connection:
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
    answered = [request for request, status in told.items() if status == 200]
    return {
        "told": len(answered),
        "records": len(rows),
        # Whoever was answered has two: what he asked was judged, and the answer.
        "lost": sum(asked[request] < 2 for request in answered),
        "twice": len(rows) - len(set(rows)),
        "logs": len(report.logs),
        "problems": [problem.code for problem in report.problems],
        "integrity": integrity,
    }


def full(home: Path) -> dict[str, Any]:
    """What clients were told while the disk was full, and how soon after they were answered again."""
    with listening("127.0.0.1", 0) as at:
        port = at.getsockname()[1]
        child = _begun(home, at, room=ROOM)
        told: dict[str, int] = {}
        request, status = _once(port)
        told[request] = status
        os.kill(child, signal.SIGUSR2)
        statuses: list[int] = []
        while statuses[-30:] != [503] * 30 and len(statuses) < 2_000:
            request, status = ask(port, "x" * 2_000)
            told[request] = status
            statuses.append(status)
        unready = probe(port)
        os.kill(child, signal.SIGUSR1)
        begin = time.monotonic()
        while probe(port) != 200 and time.monotonic() - begin < 30:  # who sends traffic waits for this
            time.sleep(0.02)
        recovered = time.monotonic() - begin
        again = ask(port)[1]
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    refused = statuses[-30:].count(503)
    said = {"unready": unready, "recovered": recovered, "again": again}
    return {"statuses": dict(Counter(statuses)), "refused": refused, **said} | _found(home, told)


def _once(port: int) -> tuple[str, int]:
    end = time.monotonic() + 60
    while True:
        try:
            return ask(port)
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < end
            time.sleep(0.02)


if __name__ == "__main__":
    place = Path(sys.argv[2])
    if sys.argv[1] == "kills":
        print(json.dumps(kills(place, int(sys.argv[3]), int(sys.argv[4]))))
    else:
        print(json.dumps(full(place)))
