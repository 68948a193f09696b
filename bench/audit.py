"""What records cost: written and checked by themselves, and in a gateway beside one that keeps none.

`python -m bench audit`. `python -m bench.audit unrecorded CONFIG` serves a gateway whose records go nowhere.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ulid import ULID

from bench import gateway
from bench.rounds import OWN_PYTHON, Effort, Figure, Ratio, Report
from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.record import Record
from pipeline.audit.verification import verify
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder

WAITING = 256  # records that wait at once, as in a gateway with as many requests in work
RECORD_BYTES = 1_500
NOTES = (
    "Records of 1.5 KB, 256 waiting at once, each durable (`synchronous=FULL`) under a signed head before it is told. "
    "The gateways differ in nothing but where records go; client and upstream run on the same cores."
)


def measure(effort: Effort) -> Report:
    """All of it."""
    report = Report("Records", NOTES)
    count = effort.kept * 2
    rounds = max(3, effort.rounds // 6)
    with tempfile.TemporaryDirectory() as home:
        written, checked = [], []
        for number in range(rounds):
            place = Path(home) / f"{number}.db"
            heads = Path(home) / f"{number}.heads"
            written.append(count / _write(place, heads, count))
            checked.append(count / _check(place, heads))
    report.figures.append(Figure("records written", "records/s", tuple(written)))
    report.figures.append(Figure("records checked", "records/s of CPU", tuple(checked)))
    report.ratios.append(Ratio("records written a second", report.figures[0].median, "≥ 5000"))
    report.ratios.append(Ratio("records checked a second", report.figures[1].median, "≥ 50000"))
    _gateways(report, rounds)
    return report


def _write(place: Path, heads: Path, count: int) -> float:
    made = [_record() for _ in range(count)]
    with Store(f"sqlite:///{place}", heads=HeadFile(heads)) as store:
        recorder = Recorder(store)
        waiting: list[Future[None]] = []
        began = time.perf_counter()
        for record in made:
            waiting.append(recorder.submit(record))
            if len(waiting) == WAITING:
                waiting.pop(0).result()
        for future in waiting:
            future.result()
        return time.perf_counter() - began


def _record() -> Record:
    made = f"dec_{ULID()}"
    body = json.dumps({"decision_id": made, "result": {"verdict": "allow"}, "rest": "x" * RECORD_BYTES}).encode()
    return Record(
        id=made,
        timestamp=datetime.now(UTC),
        subject="ann",
        session="s",
        verdict="allow",
        action="forward",
        revision="r" * 64,
        body=body,
    )


def _check(place: Path, heads: Path) -> float:
    with Store(f"sqlite:///{place}") as store:
        exported = read_heads(heads)
        began = time.process_time()
        report = verify(StoreEvidence(store.engine), exported=exported)
        seconds = time.process_time() - began
    assert report.holds
    return seconds


def _gateways(report: Report, rounds: int) -> None:
    rates: dict[str, list[float]] = {"with records": [], "without": []}
    busy: dict[str, list[float]] = {name: [] for name in rates}
    count = gateway.CONCURRENT * 8
    with ExitStack() as opened:
        upstream = gateway.free_port()
        parts = [OWN_PYTHON, "-m", "bench.gateway_parts", "upstream", upstream]
        opened.enter_context(gateway.process(parts, upstream))
        running = {name: _gateway(opened, upstream, name) for name in rates}
        for side in running.values():
            asyncio.run(gateway.load(side, 64, 8, gateway.body(2_000, stream=False)))  # warm
        for number in range(2 * rounds):
            for name in rates if number % 2 else reversed(rates):
                before = running[name].cpu_seconds()
                seconds = asyncio.run(
                    gateway.load(running[name], count, gateway.CONCURRENT, gateway.body(2_000, stream=False))
                )
                rates[name].append(count / seconds)
                busy[name].append((running[name].cpu_seconds() - before) * 1_000 / count)
    for name, each in rates.items():
        report.figures.append(Figure(f"a gateway {name}, 64 at once", "requests/s", tuple(each)))
    for name, each in busy.items():
        report.figures.append(Figure(f"a gateway {name}, CPU of a request", "ms", tuple(each)))
    # By CPU: whoever waits for the disk is favoured by the scheduler of a busy machine.
    on, off = (Figure("", "", tuple(busy[name])) for name in busy)
    report.ratios.append(Ratio("of a gateway's CPU at 64 at once, records take, %", 100 * (1 - off.over(on)), "≤ 15"))


def _gateway(opened: ExitStack, upstream: int, name: str) -> gateway.Side:
    home = Path(opened.enter_context(tempfile.TemporaryDirectory()))
    port = gateway.free_port()
    settings: dict[str, Any] = {
        "listen": {"port": port},
        "anonymous": True,
        "upstreams": {"up": {"dialect": "openai_chat", "base_url": f"http://127.0.0.1:{upstream}"}},
        "routes": [{"name": "all", "upstream": "up"}],
        "audit": {"heads_file": "heads.jsonl"},
    }
    (home / "cmf.yaml").write_text(json.dumps(settings))
    command: list[Any] = [OWN_PYTHON.parent / "cmf", "serve", "--quiet", "--config", home / "cmf.yaml"]
    if name == "without":
        command = [OWN_PYTHON, "-m", "bench.audit", "unrecorded", home / "cmf.yaml"]
    return gateway.Side(name, port, opened.enter_context(gateway.process(command, port)).pid)


class _Nowhere:
    """A recorder that keeps nothing; whatever else a record costs is not paid either."""

    def __init__(self, store: Store) -> None:
        pass

    def record(self, record: Record) -> None:
        pass

    async def arecord(self, record: Record) -> None:
        pass


def _unrecorded(config: str) -> None:
    from pipeline.cli import main
    from pipeline.gateway import service

    service.Recorder = _Nowhere  # type: ignore[assignment,misc]
    sys.argv = ["cmf", "serve", "--quiet", "--config", config]
    main()


if __name__ == "__main__":
    _unrecorded(sys.argv[2])
