"""The log of what serves: who does not read it stops nobody."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from pipeline.decisions.json_log import END_SECONDS, JsonLines, UnblockedLog

PIPE_BYTES = 65_536


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reads, writes = os.pipe()
    fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield reads, writes
    os.close(reads)


def entry(text: str, *args: Any) -> logging.LogRecord:
    return logging.LogRecord("pipeline.x", logging.INFO, "", 0, text, args, None)


def log_to(writes: int, max_waiting_bytes: int = 1 << 20) -> UnblockedLog:
    log = UnblockedLog(writes, max_waiting_bytes=max_waiting_bytes)
    log.setFormatter(JsonLines())
    logging.getLogger("pipeline.decisions.json_log").addHandler(log)
    return log


def lines_of(reads: int, until: str) -> list[Any]:
    text = b""
    while until.encode() not in text or not text.endswith(b"\n"):
        text += os.read(reads, PIPE_BYTES)
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.spec("GW-173")
@pytest.mark.parametrize("blocking", [True, False])
def test_lines_that_nobody_reads_are_dropped_and_counted(pipe: tuple[int, int], blocking: bool) -> None:
    reads, writes = pipe
    os.set_blocking(writes, blocking)
    log = log_to(writes, max_waiting_bytes=2 * PIPE_BYTES)
    given = 10_000

    for number in range(given):
        log.handle(entry(f"line {number:06}"))
    lines = lines_of(reads, "log.dropped")

    kept = [line["text"] for line in lines if "text" in line]
    [dropped] = [line["lines"] for line in lines if line["event"] == "log.dropped"]
    assert kept == [f"line {number:06}" for number in range(len(kept))]
    assert dropped > 0
    assert len(kept) + dropped == given


@pytest.mark.spec("GW-173")
def test_an_entry_that_cannot_be_written_down_is_counted_too(pipe: tuple[int, int]) -> None:
    reads, writes = pipe
    log = log_to(writes)

    log.handle(entry("%d", "no number"))
    log.handle(entry("next"))
    log.flush()

    assert [line["text"] for line in lines_of(reads, "log.dropped") if "text" in line] == ["next"]


@pytest.mark.spec("GW-173")
def test_a_closed_log_loses_its_lines_and_nothing_else() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    log = log_to(writes)

    log.handle(entry("lost"))
    begun = monotonic()
    log.flush()

    assert monotonic() - begun < END_SECONDS, "nothing waits to be read"
