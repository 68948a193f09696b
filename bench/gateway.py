"""The gateway under load, beside a bare pass-through on the same server and client, and LiteLLM's proxy.

`python -m bench gateway`, or `python -m bench.gateway SECONDS` for one long run that shows what grows. Loopback only.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gateway_parts import MARK, numbered
from bench.rounds import OWN_PYTHON, ROOT, TOOLS, Effort, Figure, Ratio, Report

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
PARTS = (OWN_PYTHON, "-m", "bench.gateway_parts")
CONCURRENT = 64
SIZES = {"2 KB": 2_000, "40 KB": 40_000}
MODES = [("2 KB", False), ("40 KB", False), ("2 KB", True)]
NOTES = (
    "Requests with a reply of 1 KB, or 100 chunks paced by 2 ms; client and upstream run on the same cores. No message "
    "is like one before, so that all are judged anew. "
    "The shipped policies judge request and reply; both are on record, durably, before they go on. "
    "LiteLLM's proxy judges nothing. Two workers: two processes on one socket, for each of the three, started anew; "
    "memory is that of all processes, a page that several have counted once in all (PSS)."
)


@dataclass(frozen=True)
class Side:
    """A server that is measured."""

    name: str
    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """What the process, and those that it has begun, have used."""
        return sum(map(_cpu_seconds, _family(self.pid)))

    def resident_mb(self) -> float:
        """What it holds in memory."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def proportional_mb(self) -> float:
        """What it and those that it has begun hold, a page of several counted once in all (PSS)."""
        return sum(map(_proportional_mb, _family(self.pid)))

    def descriptors(self) -> int:
        """How many files and sockets it has open."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))


def _family(pid: int) -> list[int]:
    begun = [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in _read(task).split()]
    return [pid, *(each for one in begun for each in _family(one))]


def _cpu_seconds(pid: int) -> float:
    fields = _read(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split() or ["0"] * 13
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _proportional_mb(pid: int) -> float:
    lines = _read(Path(f"/proc/{pid}/smaps_rollup")).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process or thread has ended since it was named
        return ""


def measure(effort: Effort) -> Report:
    """All of it."""
    rounds = max(2, effort.rounds // 6)
    report = Report("The gateway", NOTES)
    with sides() as running:
        rates: dict[tuple[str, str, bool], list[float]] = {}
        busy: dict[str, list[float]] = {}
        for side in running:
            asyncio.run(load(side, 32, 8, body(2_000, stream=False)))  # warm
        for number in range(rounds):
            for side in running if number % 2 else running[::-1]:
                for size, stream in MODES:
                    count = CONCURRENT * (2 if side.name == "LiteLLM's proxy" else 8)
                    seconds = asyncio.run(load(side, count, CONCURRENT, body(SIZES[size], stream=stream)))
                    rates.setdefault((side.name, size, stream), []).append(count / seconds)
                before = side.cpu_seconds()
                asyncio.run(load(side, 100, 1, body(2_000, stream=False)))
                busy.setdefault(side.name, []).append((side.cpu_seconds() - before) * 10)
        for (name, size, stream), each in rates.items():
            report.figures.append(Figure(f"{name}, {_said(size, stream)}", "requests/s", tuple(each)))
        for name, each in busy.items():
            report.figures.append(Figure(f"{name}, CPU of a request alone", "ms", tuple(each)))
        resident = {side.name: side.resident_mb() for side in running}
    report.figures += [Figure(f"{name}, memory", "MB", (mb,)) for name, mb in resident.items()]
    report.figures.append(Figure("two fsyncs", "ms", (_fsyncs(),)))
    report.ratios += list(_ratios(rates, busy, resident))
    _two_workers(report)
    return report


def _two_workers(report: Report) -> None:
    """The same load once more, where each side has two processes."""
    size, stream = MODES[0]
    rates: dict[str, list[float]] = {}
    with sides(workers=2) as running:
        for side in running:
            _settled(side)
            asyncio.run(load(side, 64, 16, body(SIZES[size], stream=stream)))  # warm
        for number in range(3):
            for side in running if number % 2 else running[::-1]:
                count = CONCURRENT * (2 if side.name == "LiteLLM's proxy" else 8)
                seconds = asyncio.run(load(side, count, CONCURRENT, body(SIZES[size], stream=stream)))
                rates.setdefault(side.name, []).append(count / seconds)
        for side in running:
            name = f"{side.name}, two workers"
            report.figures.append(Figure(f"{name}, {_said(size, stream)}", "requests/s", tuple(rates[side.name])))
            report.figures.append(Figure(f"{name}, memory of all", "MB", (side.proportional_mb(),)))


def _settled(side: Side) -> None:
    """Return once the side does nothing: its socket may listen before all of its processes serve."""
    end, used = time.monotonic() + 30, -1.0
    while time.monotonic() < end and abs((now := side.cpu_seconds()) - used) > 0.2:
        used = now
        time.sleep(1)


def _ratios(
    rates: dict[tuple[str, str, bool], list[float]], busy: dict[str, list[float]], resident: dict[str, float]
) -> Iterator[Ratio]:
    def middle(each: Sequence[float]) -> float:
        return Figure("", "", tuple(each)).median

    for other, target in (("a bare pass-through", "≥ 0.5"), ("LiteLLM's proxy", "≥ 25")):
        for size, stream in MODES:
            if (other, size, stream) in rates:
                own, its = (Figure("", "", tuple(rates[name, size, stream])) for name in ("the gateway", other))
                yield Ratio(f"requests/s, {_said(size, stream)}, over {other}", own.over(its), target)
    yield Ratio("CPU of a request alone, ms", middle(busy["the gateway"]), "≤ 2")
    yield Ratio("memory, MB", resident["the gateway"], "< 150")


def _said(size: str, stream: bool) -> str:
    return f"{size} {'streamed' if stream else 'whole'}"


# -- the servers -------------------------------------------------------------------------------------------------------


@contextmanager
def sides(workers: int = 1) -> Iterator[list[Side]]:
    """The gateway, the pass-through and, where it is installed, LiteLLM's proxy; all before one upstream.

    Each serves with that many processes.
    """
    with ExitStack() as opened:
        home = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        upstream = free_port()
        opened.enter_context(process([*PARTS, "upstream", upstream], upstream))
        running = [
            cmf(opened, home, upstream, workers=workers),
            _side(opened, "a bare pass-through", [*PARTS, "pass"], [upstream, workers]),
        ]
        peer = TOOLS / "litellm_proxy" / "bin" / "litellm"
        if peer.exists():
            running.append(_litellm(opened, home, peer, upstream, workers))
        yield running


def cmf(opened: ExitStack, home: Path, upstream: int, *, workers: int = 1, **route: Any) -> Side:
    """The gateway with its store, `cmf.db`, in that folder, before the upstream at that port."""
    port = free_port()
    settings = {
        "listen": {"port": port},
        "anonymous": True,
        "upstreams": {"up": {"dialect": "openai_chat", "base_url": f"http://127.0.0.1:{upstream}"}},
        "routes": [{"name": "all", "upstream": "up", **route}],
        "store": "cmf.db",
        "workers": workers,
    }
    (home / "cmf.yaml").write_text(json.dumps(settings))
    command = [OWN_PYTHON.parent / "cmf", "serve", "--config", home / "cmf.yaml", "--quiet"]
    return Side("the gateway", port, opened.enter_context(process(command, port)).pid)


def _litellm(opened: ExitStack, home: Path, program: Path, upstream: int, workers: int) -> Side:
    parameters = {"model": "openai/m", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
    settings = {
        "model_list": [{"model_name": "m", "litellm_params": parameters}],
        "general_settings": {"dangerously_permit_weak_or_unset_master_key": True},  # it would not start without a key
    }
    (home / "litellm.yaml").write_text(json.dumps(settings))
    port = free_port()
    command = [program, "--config", home / "litellm.yaml", "--host", "127.0.0.1", "--port", port]
    command += ["--num_workers", workers]
    return Side("LiteLLM's proxy", port, opened.enter_context(process(command, port)).pid)


def _side(opened: ExitStack, name: str, command: Sequence[Any], more: Sequence[Any]) -> Side:
    port = free_port()
    return Side(name, port, opened.enter_context(process([*command, port, *more], port)).pid)


@contextmanager
def process(command: Sequence[Any], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that listens on that port; ended with the block."""
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    process = subprocess.Popen(
        [str(each) for each in command], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(port, process)
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise RuntimeError("a server did not begin")


def free_port() -> int:
    """A port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# -- the client --------------------------------------------------------------------------------------------------------


def body(size: int, *, stream: bool) -> bytes:
    """A chat request of about that size; a number in each message is to be another in each request."""
    turns = 5
    words = (f"{MARK}: " + "Tell me about bridges and how they were built over time. " * (size // 50))[: size // turns]
    messages = [{"role": ("user", "assistant")[at % 2], "content": words} for at in range(turns)]
    return json.dumps({"model": "m", "messages": messages, "stream": stream}).encode()


async def load(side: Side, count: int, concurrent: int, asked: bytes) -> float:
    """Seconds for `count` requests over that many connections."""

    async def client(times: int) -> None:
        connection = await asyncio.open_connection("127.0.0.1", side.port)
        for _ in range(times):
            await exchange(connection, asked)
        connection[1].close()

    began = time.perf_counter()
    await asyncio.gather(*(client(count // concurrent) for _ in range(concurrent)))
    return time.perf_counter() - began


async def exchange(connection: Connection, asked: bytes) -> None:
    """One request with that body and new numbers, and its answer, on a connection that is free."""
    reader, writer = connection
    asked = numbered(asked)
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    writer.write(head + b"content-length: %d\r\n\r\n" % len(asked) + asked)
    await _answer(reader)


async def _answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if not head.startswith(b"http/1.1 200"):
        raise RuntimeError(head.decode())
    if b"transfer-encoding: chunked" not in head:
        await reader.readexactly(int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def _fsyncs() -> float:
    """Milliseconds of two of them, of as many bytes as two records have."""
    with tempfile.NamedTemporaryFile() as file:
        began = time.perf_counter()
        for _ in range(200):
            file.write(b"x" * 3_000)
            file.flush()
            os.fdatasync(file.fileno())
        return (time.perf_counter() - began) * 10


def long_run(seconds: float) -> None:
    """One run at full concurrency, half of it streamed; prints memory and open files as it goes."""
    with ExitStack() as opened:
        upstream = free_port()
        opened.enter_context(process([*PARTS, "upstream", upstream], upstream))
        side = cmf(opened, Path(opened.enter_context(tempfile.TemporaryDirectory())), upstream)
        end, served = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            for stream in (False, True):
                asyncio.run(load(side, CONCURRENT * 8, CONCURRENT, body(2_000, stream=stream)))
                served += CONCURRENT * 8
            print(f"{served} served; {side.resident_mb():.0f} MB, {side.descriptors()} files", flush=True)


if __name__ == "__main__":
    long_run(min(float(sys.argv[1]), 3_600))
