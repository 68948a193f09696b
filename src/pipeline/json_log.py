"""The log of programs that serve: a line of JSON each, on standard error. Spec: gateway.md."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from cmf.codec import dumps


def log_to_standard_error(*, quiet: bool) -> None:
    """Write the log of what is served to standard error, a line of JSON each."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("pipeline", "cmf", "uvicorn"):
        log = logging.getLogger(name)
        log.addHandler(handler)
        log.setLevel(logging.WARNING if quiet or name != "pipeline" else logging.INFO)


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


__all__ = ["JsonLines", "log_to_standard_error"]
