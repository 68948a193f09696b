"""The sweep that erases what may not be kept any longer, and what it erases in the database [C13]. Spec: data.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Engine, delete, select

from pipeline.audit.record import act_of
from pipeline.decisions.errors import StoreError
from pipeline.decisions.retention import Holder
from pipeline.decisions.timestamps import instant_of
from pipeline.store.contents import Contents
from pipeline.store.database import Store
from pipeline.store.engine import snapshot
from pipeline.store.recorder import Recorder
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


MAX_AT_ONCE: Final = 500  # items erased between two records


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep's result at one holder: how many items it erased; `failed` is the code of what stopped it."""

    holder: str
    at: int
    erased: int
    failed: str | None = None

    def to_json(self) -> Mapping[str, Any]:
        """The line of the holder in what is recorded and shown."""
        shown = {"holder": self.holder, "at": self.at, "erased": self.erased}
        return shown if self.failed is None else {**shown, "failed": self.failed}


class Sweep:
    """Erases what is due in a store and in other holders, with a record before and after.

    Args:
        store: whose records it writes, and whose own content it sweeps.
        holders: other holders of content: a ledger.
    """

    def __init__(self, store: Store, *holders: Holder) -> None:
        self._recorder = Recorder(store)
        own = (SealedContent(store.engine, store.writer), JudgedContent(store.contents()))
        self._holders: tuple[Holder, ...] = (*own, *holders)

    def run(self, now: int) -> tuple[Swept, ...]:
        """Erase everything that is due at `now`; one line per holder. A holder that fails does not stop the others.

        Raises:
            StoreError: a record could not be written. What was not announced on record was not erased.
        """
        return tuple(self._sweep(holder, now) for holder in self._holders)

    def _sweep(self, holder: Holder, now: int) -> Swept:
        erased = 0
        failed = None
        announced = False
        try:
            while items := holder.due(now, MAX_AT_ONCE):
                self._record(now, "erase", {"holder": holder.name, "due": len(items)})
                announced = True
                holder.erase(items)
                if set(holder.due(now, MAX_AT_ONCE)) & set(items):
                    raise StoreError(
                        "what was erased is still there", code="retention.not-erased", hint="see the store"
                    )
                erased += len(items)
        except _Unrecorded:
            raise
        except StoreError as error:
            failed = error.code
        except Exception:  # noqa: BLE001  (a holder of the host's; what is still there is not reported as erased)
            failed = "retention.failed"
        swept = Swept(holder=holder.name, at=now, erased=erased, failed=failed)
        if announced or failed is not None:
            self._record(now, "erased", swept.to_json())
        return swept

    def _record(self, now: int, action: str, details: Mapping[str, Any]) -> None:
        try:
            self._recorder.record(act_of("sweep", "swp", action, details, instant_of(now)))
        except StoreError as error:
            raise _Unrecorded(error.message, code=error.code, hint=error.hint) from error


class _Unrecorded(StoreError):
    """The record could not be written: nothing more is erased."""
