"""What requests wait in a gateway below full load: they come at random, so many a second, whatever it does to them.

`python -m bench.paced [SECONDS]`, of each rate; prints milliseconds beside the upstream's (p50 / p95 / p99). On a
machine that has other work they say what that does.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from operator import sub
from pathlib import Path

from bench import gateway
from bench.rounds import OWN_PYTHON

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)  # of the requests that it serves at 64 at once
UPSTREAM_SECONDS = (0.0, 0.3)
PARTS = (0.5, 0.95, 0.99)
ROUNDS = 3


def measure(seconds: float) -> None:
    """All of it."""
    asked = gateway.body(2_000, stream=False)
    most = 0.0
    for upstream_seconds in UPSTREAM_SECONDS:
        with ExitStack() as opened:
            home, port = Path(opened.enter_context(tempfile.TemporaryDirectory())), gateway.free_port()
            command = [OWN_PYTHON, "-m", "bench.gateway_parts", "upstream", port, upstream_seconds]
            opened.enter_context(gateway.process(command, port))
            side = gateway.cmf(opened, home, port)
            asyncio.run(gateway.load(side, gateway.CONCURRENT * 8, gateway.CONCURRENT, asked))  # warm
            most = most or _most(side, asked)
            print(f"upstream {upstream_seconds:g} s, of {most:.0f} requests/s", flush=True)
            for share in SHARES * ROUNDS:
                before = _written(home / "cmf.db")
                waited = sorted(asyncio.run(paced(side, most * share, seconds, asked)))
                commits, records = map(sub, _written(home / "cmf.db"), before)
                shown = " / ".join(f"{(_at(waited, part) - upstream_seconds) * 1_000:.0f}" for part in PARTS)
                print(f"  {share:.0%}: {shown} ms, {records / commits:.1f} records to a commit", flush=True)


def _at(waited: list[float], part: float) -> float:
    return waited[int(len(waited) * part)]


def _most(side: gateway.Side, asked: bytes) -> float:
    """Requests a second where it never waits for one."""
    count, concurrent = gateway.CONCURRENT * 8, gateway.CONCURRENT
    return max(count / asyncio.run(gateway.load(side, count, concurrent, asked)) for _ in range(3))


def _written(file: Path) -> tuple[int, int]:
    """How many commits with records there were, and how many records."""
    with closing(sqlite3.connect(file)) as connection:
        found: tuple[int, int] = connection.execute("SELECT count(*), max(size) FROM heads").fetchone()
    return found


async def paced(side: gateway.Side, rate: float, seconds: float, asked: bytes) -> list[float]:
    """Seconds from when each request was to be sent to its answer."""
    idle: list[gateway.Connection] = []
    taken: list[float] = []

    async def send(at: float) -> None:
        connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", side.port)
        await gateway.exchange(connection, asked)
        taken.append(time.perf_counter() - at)
        idle.append(connection)

    chance = random.Random(rate)
    at = time.perf_counter()
    end, sent = at + seconds, []
    while at < end:
        await asyncio.sleep(max(0.0, at - time.perf_counter()))
        sent.append(asyncio.ensure_future(send(at)))
        at += chance.expovariate(rate)
    await asyncio.gather(*sent)
    for _, writer in idle:
        writer.close()
    return taken


if __name__ == "__main__":
    measure(float(sys.argv[1]) if len(sys.argv) > 1 else 10.0)
