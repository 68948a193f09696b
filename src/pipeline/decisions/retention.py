"""How long data may be kept [C13]; `pipeline.store.retention_sweep` carries it out. Spec: docs/spec/data.md.

Code that stores anything made from content calls `keep` first, stores only what may be stored, and is a `Holder`, so
that the sweep can erase it when its time is over. Times are integers: microseconds since the epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from cmf.errors import CmfError
from cmf.message.security import RetentionPolicy
from pipeline.decisions.timestamps import LAST, SECOND, micros


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
