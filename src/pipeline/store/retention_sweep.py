"""The sweep that erases what may not be kept any longer [C13]. Spec: docs/spec/data.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pipeline.audit.record import act_of
from pipeline.decisions.errors import StoreError
from pipeline.decisions.retention import Holder
from pipeline.decisions.timestamps import instant_of
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder
from pipeline.store.retained_content import JudgedContent, SealedContent

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
