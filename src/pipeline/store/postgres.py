"""A PostgreSQL connection that fails if the server does not answer: it stopped, or is cut off. Spec: recorder.md."""

from __future__ import annotations

from time import monotonic
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from sqlalchemy import Engine, event

SILENT_SECONDS: Final = 5.0  # for one statement; above how long a transaction waits for another one's lock
_T = TypeVar("_T")


def bound(engine: Engine) -> None:
    """Have statements on new connections of `engine` fail after `SILENT_SECONDS` without an answer."""
    event.listen(engine, "do_connect", _connect)


def _connect(_dialect: Any, _record: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return _Connection.connect(*arguments, **options)


class _Connection(psycopg.Connection[Any]):
    def wait(self, gen: PQGen[_T], interval: float = 0.1, timeout: float | None = None) -> _T:
        """As for any connection. After a timeout its state is unknown, and it is closed."""
        limit = SILENT_SECONDS if timeout is None else timeout
        began = monotonic()
        try:
            return super().wait(gen, interval, limit)
        except psycopg.OperationalError:
            if monotonic() - began >= limit:
                self.pgconn.finish()
            raise
