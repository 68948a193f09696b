"""Content in the database that the retention sweep erases: sealed approvals, and the content of runs. Spec: data.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Engine, delete, select

from pipeline.store.contents import Contents
from pipeline.store.engine import snapshot
from pipeline.store.tables import SEALED
from pipeline.store.writer import Writer, waited


class SealedContent:
    """The sealed subjects of approvals [C10]: due when the approval is too old or the data's retention ends."""

    name: Final = "sealed"

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine = engine
        self._writer = writer

    def due(self, now: int, limit: int) -> Sequence[str]:
        """See `pipeline.decisions.retention.Holder`."""
        old = select(SEALED.c.approval_id).where(SEALED.c.expires_at <= now).order_by(SEALED.c.expires_at).limit(limit)
        with snapshot(self._engine) as connection:
            return list(connection.execute(old).scalars())

    def erase(self, items: Sequence[str]) -> None:
        """See `pipeline.decisions.retention.Holder`."""

        def job(connection: Connection) -> None:
            connection.execute(delete(SEALED).where(SEALED.c.approval_id.in_(items)))

        waited(self._writer.call(job))


class JudgedContent:
    """The content of runs, stored apart from their records: due when it is too old and not under a hold."""

    name: Final = "contents"

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def due(self, now: int, limit: int) -> Sequence[str]:
        """See `pipeline.decisions.retention.Holder`."""
        return self._contents.due(now, limit)

    def erase(self, items: Sequence[str]) -> None:
        """See `pipeline.decisions.retention.Holder`; the erasure is recorded."""
        self._contents.erase_due(items)
