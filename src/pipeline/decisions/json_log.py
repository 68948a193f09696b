"""The log of programs that serve: a line of JSON each, on standard error. Spec: gateway.md [GW-172], [GW-173]."""

from __future__ import annotations

import logging
import os
import select
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Final

from cmf.json.codec import dumps

MAX_WAITING_BYTES: Final = 1 << 20  # of lines that nobody has read yet; what comes after them is dropped
END_SECONDS: Final = 1.0  # how long the end of a program waits until its last lines are read


def log_to_standard_error(*, quiet: bool) -> None:
    """Write the log of what is served to standard error, a line of JSON each. Python's warnings are lines of it too."""
    if sys.__stderr__ is None:
        return
    handler = UnblockedLog(sys.__stderr__.fileno())
    handler.setFormatter(JsonLines())
    logging.captureWarnings(capture=True)
    logging.getLogger().addHandler(handler)  # also for libraries: without a handler Python would write and wait
    for name in ("pipeline", "cmf", "uvicorn"):
        logging.getLogger(name).setLevel(logging.WARNING if quiet or name != "pipeline" else logging.INFO)


class UnblockedLog(logging.Handler):
    """Writes to a descriptor in a thread of its own: whoever logs goes on even if nobody reads.

    What waits to be read is bounded. Once there is room again, a line says how many were dropped.
    """

    def __init__(self, descriptor: int, *, max_waiting_bytes: int = MAX_WAITING_BYTES) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._max_waiting_bytes = max_waiting_bytes
        self._lines: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name="cmf-log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`; returns at once."""
        try:
            line = self.format(record).encode(errors="backslashreplace") + b"\n"
        except Exception:  # noqa: BLE001 - an entry that cannot be written down must not stop who makes it
            line = b""
        with self._changed:
            if not line or self._waiting_bytes + len(line) > self._max_waiting_bytes:
                self._dropped += 1
                return
            self._lines.append(line)
            self._waiting_bytes += len(line)
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait, for a limited time, until everything is written; called at the end of the process."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting_bytes, END_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                text = b"".join(self._lines)
                self._lines.clear()
            self._write(text)
            with self._changed:
                self._waiting_bytes -= len(text)
                dropped, self._dropped = self._dropped, 0
                self._changed.notify_all()
            if dropped:
                logging.getLogger(__name__).warning("%s", dumps({"event": "log.dropped", "lines": dropped}).decode())

    def _write(self, text: bytes) -> None:
        while text:
            try:
                text = text[os.write(self._descriptor, text) :]
            except BlockingIOError:  # whoever shares the descriptor made it so
                select.select([], [self._descriptor], [])
            except OSError:  # nobody reads it any more
                return


class JsonLines(logging.Formatter):
    """Each line is an object: time and level, then the entry itself if it is JSON, else its logger and text."""

    def format(self, record: logging.LogRecord) -> str:
        """The line; of an exception its type alone, for its text may quote what a client sent."""
        text = record.getMessage()
        when = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": when, "level": record.levelname.lower()}
        if text.startswith("{"):
            return f"{dumps(head).decode()[:-1]},{text[1:]}"
        line = {**head, "event": "log", "logger": record.name, "text": text}
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if error is not None:
            line["error"] = type(error).__name__
        return dumps(line).decode()
