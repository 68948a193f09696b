"""How long data may be kept, and the sweep that carries it out [C13]. Spec: docs/spec/data.md.

Code that stores anything made from content calls `keep` first, stores only what may be stored, and is a `Holder`, so
that the sweep can erase it when its time is over. Times are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from cmf.errors import CmfError
from cmf.security import RetentionPolicy
from pipeline.audit.record import act_of
from pipeline.errors import StoreError
from pipeline.moments import LAST, SECOND, instant_of, micros

if TYPE_CHECKING:
    from pipeline.store.database import Store

MAX_AT_ONCE: Final = 500  # items erased between two records


class Span(IntEnum):
    """How long data may be kept apart from its age; the strictest first."""

    NONE = 0
    TRANSIENT = 1
    SESSION = 2
    PERSISTENT = 3


_SPANS: Final = {span.name.lower(): span for span in Span}


@dataclass(frozen=True, slots=True)
class Keep:
    """How long data may be kept; `until` is the first moment at which it must be erased."""

    span: Span
    until: int = LAST

    @property
    def after_run(self) -> bool:
        """Whether it may be kept when the run is over, in a store or for the session's next run."""
        return self.span >= Span.SESSION

    def over(self, now: int) -> bool:
        """Whether the data must be erased at `now`."""
        return self.span is Span.NONE or now >= self.until


NEVER: Final = Keep(Span.NONE, 0)
FOREVER: Final = Keep(Span.PERSISTENT)


def keep(policy: object, now: int) -> Keep:
    """How long data that is stored at `now` may be kept; its age counts from `now`.

    `policy` is a `RetentionPolicy`, its JSON, or None for no limit. Anything else gives `NEVER`.
    """
    if policy is None:
        return FOREVER
    try:
        parsed = policy if isinstance(policy, RetentionPolicy) else RetentionPolicy.model_validate(policy)
        ends = [LAST]
        if parsed.max_age_seconds is not None:
            ends.append(now + parsed.max_age_seconds * SECOND)
        if parsed.delete_after is not None:
            ends.append(micros(parsed.delete_after))
        span = _SPANS[parsed.policy]
    except (CmfError, ValueError, TypeError, KeyError, AttributeError):
        return NEVER
    until = min(ends)
    return Keep(span, until) if span is not Span.NONE and now < until else NEVER


def strictest(policies: Iterable[RetentionPolicy | None]) -> RetentionPolicy | None:
    """One policy that meets all of them, for data that is kept together; None if none of them sets a limit."""
    limits = [policy for policy in policies if policy is not None]
    if not limits:
        return None
    ages = [one.max_age_seconds for one in limits if one.max_age_seconds is not None]
    dates = [one.delete_after for one in limits if one.delete_after is not None]
    return RetentionPolicy(
        policy=min((one.policy if one.policy in _SPANS else "none" for one in limits), key=_SPANS.__getitem__),
        max_age_seconds=min(ages, default=None),
        delete_after=min(dates, default=None),
    )


class Holder(Protocol):
    """Something that holds what was made from content, and can let go of it. A ledger is one."""

    @property
    def name(self) -> str:
        """What it is called in records."""
        ...

    def due(self, now: int, limit: int) -> Sequence[str]:
        """Ids of at most `limit` items whose `Keep` is over at `now`."""
        ...

    def erase(self, items: Sequence[str]) -> None:
        """Erase the items, durably; those erased before are no error. StoreError if they may still be there."""
        ...


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
        from pipeline.audit.recorder import Recorder  # these bring SQLAlchemy, which asking what to keep does not need
        from pipeline.store.held import JudgedContent, SealedContent

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


__all__ = ["FOREVER", "NEVER", "Holder", "Keep", "Span", "Sweep", "Swept", "keep", "strictest"]
