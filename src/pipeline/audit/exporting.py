"""Exporting heads to a second place that writers of the database cannot change [E3]. Spec: docs/spec/audit.md [AUD-20].

Without it, truncating the newest records, or restoring an older copy of the database, would go unnoticed.
"""

from __future__ import annotations

import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol

from cmf.json.codec import dumps, loads
from pipeline.audit.heads import Head
from pipeline.decisions.errors import ConfigError

EVERY_SECONDS: Final = 1.0
_log: Final = logging.getLogger("pipeline.audit")


class HeadSink(Protocol):
    """A destination of heads."""

    def put(self, heads: list[Head]) -> None:
        """Store these durably; after any exception they are put again."""
        ...


@dataclass(frozen=True, slots=True)
class HeadFile:
    """An append-only file of heads, a line of JSON each. Best on another disk, or owned by another user."""

    file: Path

    def put(self, heads: list[Head]) -> None:
        """Append the lines and sync them to disk."""
        lines = b"".join(dumps(head.to_json()) + b"\n" for head in heads)
        with open(os.open(self.file, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o644), "a+b") as opened:
            if opened.tell() and not _ends_line(opened):  # an earlier write was interrupted, as by a full disk
                lines = b"\n" + lines
            opened.write(lines)
            opened.flush()
            os.fsync(opened.fileno())


def _ends_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def read_heads(file: Path) -> list[Head]:
    """The heads of a file that `HeadFile` wrote.

    A line that is only the beginning of a head is left out, with a warning: an interrupted write leaves it, and its
    head was exported again. Whoever could cut it short could as well have removed it.

    Raises:
        ConfigError: it cannot be read, has no head, or a line is not a head.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(
            f"the exported heads cannot be read: {error.strerror}",
            path=str(file),
            hint="give the file that heads are exported to",
        ) from None
    heads = []
    for number, line in enumerate(lines, start=1):
        try:
            heads.append(Head.from_json(loads(line)))
        except ValueError:
            if _is_begun(line):
                _log.warning("%s:%d: an incomplete line was left out: its write was interrupted", file, number)
                continue
            raise _no_heads("a line is not a tree head", f"{file}:{number}") from None
    if not heads:
        raise _no_heads("there are no heads in this file", str(file))
    return heads


def _is_begun(line: bytes) -> bool:
    """Whether the line is the beginning of a JSON object, at whichever byte it was cut."""
    if not line.startswith(b"{") or line.endswith(b"}"):
        return False
    for rest in (b"}", b'"}', b'":0}', b":0}", b"0}", b'"":0}'):
        with suppress(ValueError):
            loads(line + rest)
            return True
    return False


def _no_heads(problem: str, path: str) -> ConfigError:
    return ConfigError(problem, path=path, hint="give the file that heads are exported to, unchanged")


class Exporter:
    """Puts the newest head of each log to a sink, at most once per `every_seconds`, in its own thread.

    Failed heads are put again; `failures` counts them, and each is logged once.
    """

    def __init__(self, sink: HeadSink, *, every_seconds: float = EVERY_SECONDS) -> None:
        self._sink = sink
        self._every = every_seconds
        self._newest: dict[str, Head] = {}
        self._gate = threading.Condition()
        self._closed = False
        self._asked = self._served = 0  # calls of `flush`
        self.failures = 0
        self.exported: dict[str, int] = {}  # log → the size of its newest exported head
        self._thread = threading.Thread(target=self._run, name="cmf-head-exporter", daemon=True)
        self._thread.start()

    def offer(self, head: Head) -> None:
        """Export this head soon; a newer one of its log replaces it."""
        with self._gate:
            is_first = not self._newest
            self._newest[head.log] = head
            if is_first:  # wake the thread once: a writer commits many times between two exports
                self._gate.notify_all()

    def flush(self) -> None:
        """Export what was offered; return once that was done, or failed."""
        with self._gate:
            self._asked = asked = self._asked + 1
            self._gate.notify_all()
            self._gate.wait_for(lambda: self._closed or self._served >= asked)

    def close(self) -> None:
        """Export what is left, and stop."""
        with self._gate:
            self._closed = True
            self._gate.notify_all()
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            with self._gate:
                self._gate.wait_for(lambda: self._newest or self._hurries())
                self._gate.wait_for(self._hurries, timeout=self._every)
                closing, asked = self._closed, self._asked
                heads, self._newest = self._newest, {}
            if heads:
                try:
                    self._sink.put(list(heads.values()))
                    self.exported |= {log: head.size for log, head in heads.items()}
                except Exception as error:  # noqa: BLE001 - a sink of the host's; the heads are kept and tried again
                    self.failures += 1
                    _log.error("the heads could not be exported: %s", type(error).__name__)
                    with self._gate:
                        self._newest = {**heads, **self._newest}
            with self._gate:
                self._served = asked
                self._gate.notify_all()

    def _hurries(self) -> bool:
        return self._closed or self._asked > self._served
