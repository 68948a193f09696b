"""What comes with decisions: the road to the engine, the record, windows of a stream, memory, start-up, batches."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench import gateway, medium
from bench.decide import OPA, _await
from bench.rounds import OWN_PYTHON, Effort, Figure, Ratio, Report, Side
from cmf.json.value import to_bytes

PORT = 18_182
ROWS = (2_000, 12_000)
NOTES = (
    f"A message of four parts with rich extensions under {medium.RULES} rules, from JSON to the outcome, by the clock"
    " on the wall:"
    " with the engine in the process, and with the same policies in an OPA server asked over loopback and over a unix"
    " socket, one query a message; and put on record in SQLite before the outcome is given out, one at a time, so each"
    " waits for the disk."
    " Streams: CPU of the gateway for an answer of 100 chunks, judged whole at its end, or by windows."
    " Memory: growth of the process for each session of one turn, and for a pipeline with the shipped policies."
    " Batches: texts of one sentence with a number, shipped policies; rows a second of CPU of all processes together,"
    " starting them taken off; runs of their own share nothing but the machine."
)


def measure(effort: Effort) -> Report:
    """All of it."""
    report = Report("What comes with a decision", NOTES)
    rounds = max(5, effort.rounds // 2)
    with _serving() as (url, socket), Side("cmf_costs", url, socket) as own:
        samples: dict[str, list[float]] = {}
        for _ in range(rounds):
            for name in ("embedded", "opa, loopback", "opa, unix socket", "embedded, on record"):
                samples.setdefault(name, []).append(own.ask(name, call=True) * 1e6)
    figures = {name: Figure(f"a decision, {name}, wall", "µs", tuple(each)) for name, each in samples.items()}
    report.figures += figures.values()
    embedded = figures["embedded"]
    report.ratios += [
        Ratio("OPA over loopback / embedded", figures["opa, loopback"].over(embedded), "≥ 1"),
        Ratio("OPA over a unix socket / embedded", figures["opa, unix socket"].over(embedded), "≥ 1"),
        Ratio("on record, each alone, durable / not", figures["embedded, on record"].over(embedded), "≤ 3"),
    ]
    report.figures.append(Figure("two fsyncs, for comparison", "µs", (gateway._fsyncs() * 1e3,)))
    _memory(report)
    _start(report, effort)
    _windows(report, max(2, effort.rounds // 10))
    _batches(report, max(2, effort.rounds // 10))
    return report


def _memory(report: Report) -> None:
    for name, count, label in (
        ("keep_session", 5_000, "a session of one turn"),
        ("keep_shipped", 3, "shipped policies"),
    ):
        with Side("cmf_costs") as fresh:
            report.figures.append(Figure(f"memory: {label}", "B", (fresh.ask(name, keep=count),)))


def _start(report: Report, effort: Effort) -> None:
    code = "from pipeline import Guard; from cmf import Message\n"
    code += "Guard().run(Message.model_validate({'role': 'user', 'content': [{'content_type': 'text', 'text': 'x'}]}))"
    spent = []
    for _ in range(min(effort.rounds, 9)):
        begin = time.perf_counter()
        subprocess.run([OWN_PYTHON, "-c", code], check=True)
        spent.append((time.perf_counter() - begin) * 1e3)
    report.figures.append(Figure("fresh process to its first decision, shipped policies, wall", "ms", tuple(spent)))


def _windows(report: Report, rounds: int) -> None:
    """CPU of one streamed answer of 100 chunks: buffered, and by windows of two sizes."""
    asked = gateway.body(2_000, stream=True)
    modes: dict[str, object] = {"whole": "buffer", "windows of 500": {"window": 500}, "windows of 100": {"window": 100}}
    with contextlib.ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        upstream = gateway.free_port()
        command = [OWN_PYTHON, "-m", "bench.gateway_parts", "upstream", upstream]
        opened.enter_context(gateway.process(command, upstream))
        sides = {}
        for number, (name, mode) in enumerate(modes.items()):
            place = home / str(number)
            place.mkdir()
            sides[name] = gateway.cmf(opened, place, upstream, stream=mode)
        samples: dict[str, list[float]] = {name: [] for name in modes}
        for number in range(rounds + 1):
            for name, side in sides.items():
                before = side.cpu_seconds()
                asyncio.run(gateway.load(side, 40, 8, asked))
                if number:  # the first one warms
                    samples[name].append((side.cpu_seconds() - before) / 40 * 1e3)
    figures = {
        name: Figure(f"CPU of a streamed answer, judged {name}", "ms", tuple(each)) for name, each in samples.items()
    }
    report.figures += figures.values()
    report.ratios += [
        Ratio(f"CPU of a stream, {name} / whole", figures[name].over(figures["whole"]), "≤ 3")
        for name in list(modes)[1:]
    ]


def _batches(report: Report, rounds: int) -> None:
    """Rows for a second of CPU: one process, and all cores by one run, or by as many runs that share nothing."""
    cores = os.cpu_count() or 2
    sides = {"1 process": (1, 1), f"{cores} processes": (1, cores), f"{cores} runs of their own": (cores, 1)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as folder:
        for count in ROWS:
            with (Path(folder) / f"{count}.jsonl").open("wb") as stream:
                stream.writelines(_row(number) for number in range(count))
        for _ in range(rounds):
            for name, (runs, jobs) in sides.items():
                few, many = (_batch_cpu(Path(folder) / f"{count}.jsonl", runs, jobs) for count in ROWS)
                rates[name].append(runs * (ROWS[1] - ROWS[0]) / (many - few))
    alone, spread, apart = (Figure(f"batch, {name}", "rows/CPU s", tuple(each)) for name, each in rates.items())
    report.figures += [alone, spread, apart]
    report.ratios += [
        Ratio("batch: rows/s per core, all cores / one", spread.over(alone), "≥ 0.9"),
        Ratio("batch: rows/s per core, all cores / as many runs of their own", spread.over(apart), "≥ 0.9"),
    ]


def _batch_cpu(file: Path, runs: int, jobs: int) -> float:
    """Seconds of CPU of that many runs at once, each over the whole file with that many processes."""
    before = os.times()
    started = [subprocess.Popen([OWN_PYTHON, "-m", "bench.batch_rows", file, str(jobs)]) for _ in range(runs)]
    failed = [run.args for run in started if run.wait() != 0]
    if failed:
        raise RuntimeError(f"a run of batches failed: {failed[0]}")
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def _row(number: int) -> bytes:
    from cmf import Message

    part = {"content_type": "text", "text": f"Please look where order no-{number:08d} is, it has not come."}
    return to_bytes(Message.model_validate({"role": "user", "content": [part]})) + b"\n"


@contextlib.contextmanager
def _serving() -> Iterator[tuple[str, str]]:
    """The URL and the socket of an OPA server with the policies of the measurement."""
    with tempfile.TemporaryDirectory() as folder:
        bundle, socket = Path(folder) / "bundle", f"{folder}/opa.sock"
        for name, content in medium.policies().bundle().items():
            place = bundle / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        command = [
            OPA,
            "run",
            "--server",
            "--bundle",
            bundle,
            "--addr",
            f"127.0.0.1:{PORT}",
            "--addr",
            f"unix://{socket}",
        ]
        command += ["--log-level", "error", "--disable-telemetry"]
        process = subprocess.Popen([str(each) for each in command], stdout=subprocess.DEVNULL)
        try:
            _await(PORT)
            yield f"http://127.0.0.1:{PORT}", socket
        finally:
            process.terminate()
            process.wait()
