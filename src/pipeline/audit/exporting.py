"""Heads taken to a second place, where whoever can write the database cannot [E3]. Spec: docs/spec/audit.md [AUD-20].

Without that, cutting the newest records off, or putting an older copy of the database back, would go unnoticed.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import Final, Protocol

from cmf.codec import dumps, loads
from pipeline.audit.heads import Head
from pipeline.errors import ConfigError

EVERY_SECONDS: Final = 1.0
_log: Final = logging.getLogger("pipeline.audit")


class HeadSink(Protocol):
    """Where heads go."""

    def put(self, heads: list[Head]) -> None:
        """Keep these for good; any exception means that they may not be kept, and they come again."""
        ...


class HeadFile:
    """A file of heads, a line of JSON each, only ever added to. Best on another disk, or one that others own."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def put(self, heads: list[Head]) -> None:
        """Add the lines and see them onto the disk."""
        lines = b"".join(dumps(head.to_json()) + b"\n" for head in heads)
        with open(os.open(self._file, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644), "ab") as opened:
            opened.write(lines)
            opened.flush()
            os.fsync(opened.fileno())


def read_heads(file: Path) -> list[Head]:
    """The heads of a file that `HeadFile` wrote.

    Raises:
        ConfigError: it cannot be read, or a line of it is no head.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"the heads cannot be read: {error.strerror}", path=str(file), hint="give the exported file of heads"
        ) from None
    heads = []
    for number, line in enumerate(lines, start=1):
        try:
            heads.append(Head.from_json(loads(line)))
        except ValueError:
            raise ConfigError("this is no tree head", path=f"{file}:{number}", hint="give the exported file") from None
    return heads


class Exporter:
    """Takes the newest head of each log to a sink, at most once in `every_seconds`, in a thread of its own.

    What could not be put is put again; `failures` counts, and the log says so once for each.
    """

    def __init__(self, sink: HeadSink, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._sink = sink
        self._every = every_seconds
        self._newest: dict[str, Head] = {}
        self._gate = threading.Condition()
        self._closed = False
        self.failures = 0
        self.exported: dict[str, int] = {}  # log → the size up to which its heads are there
        self._thread = threading.Thread(target=self._run, name="cmf-head-exporter", daemon=True)
        self._thread.start()

    def offer(self, head: Head) -> None:
        """Take this head away soon; a newer one of its log replaces it."""
        with self._gate:
            is_first = not self._newest
            self._newest[head.log] = head
            if is_first:  # for the next ones nobody waits: a writer commits many times between two exports
                self._gate.notify()

    def close(self) -> None:
        """Take away what is left, and stop."""
        with self._gate:
            self._closed = True
            self._gate.notify()
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._gate:
                self._gate.wait_for(lambda: self._newest or self._closed)
                if not self._closed:
                    self._gate.wait_for(lambda: self._closed, timeout=self._every)
                closing = self._closed
                heads, self._newest = self._newest, {}
            if heads:
                self._put(heads)

    def _put(self, heads: dict[str, Head]) -> None:
        try:
            self._sink.put(list(heads.values()))
            self.exported |= {log: head.size for log, head in heads.items()}
        except Exception as error:  # noqa: BLE001 - a sink of the host's; the heads are kept and tried again
            self.failures += 1
            _log.error("the heads could not be exported: %s", type(error).__name__)
            with self._gate:
                self._newest = {**heads, **self._newest}


__all__ = ["EVERY_SECONDS", "Exporter", "HeadFile", "HeadSink", "read_heads"]
