"""What the tests of sessions share: a clock, who asks, and changes in one line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal

from cmf.message.security import SubjectExtension
from pipeline.decisions.approval import ApprovalRequest, ApprovalUse
from pipeline.decisions.context import Context
from pipeline.sessions.state import BudgetScope, Changes, Count, Grant, Reservation, Settlement, Taint

WRITERS = 64


class Clock:
    """A clock that stands where it is put."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    @property
    def moment(self) -> int:
        """Microseconds since the epoch."""
        return int(self.now.timestamp() * 1_000_000)


def who(subject: str | None, session: str | None = "s1") -> Context:
    return Context(subject=SubjectExtension(id=subject) if subject is not None else None, session=session)


ANN = who("ann")


def taint(label: str, source: str) -> Changes:
    return Changes(taints=frozenset({Taint(label, source)}))


def grant(label: str, *sources: str, expires_at: int, id: str = "g1") -> Changes:
    made = Grant(
        id=id, label=label, sources=frozenset(sources), actor="eve", reason="x", scope="session", expires_at=expires_at
    )
    return Changes(grants=(made,))


def count(name: str, amount: str = "1", mark: str | None = None) -> Changes:
    return Changes(counts=(Count(name=name, amount=Decimal(amount), mark=mark),))


def asked(clock: Clock, id: str = "apr_1", digest: str = "d") -> ApprovalRequest:
    later = clock.moment + 60_000_000
    return ApprovalRequest(id=id, digest=digest, target="tool://_/pay", rules=("a/b",), revision="r1", expires_at=later)


def use(id: str = "apr_1", digest: str = "d", target: str = "tool://_/pay", revision: str = "r1") -> Changes:
    return Changes(used=(ApprovalUse(id=id, digest=digest, target=target, revision=revision),))


def reserve(id: str, amount: str, limit: str = "10", scope: BudgetScope = BudgetScope.SUBJECT) -> Changes:
    held = Reservation(id=id, scope=scope, budget="cost", amount=Decimal(amount), limit=Decimal(limit))
    return Changes(reservations=(held,))


def settled(id: str, amount: str, scope: BudgetScope = BudgetScope.SUBJECT) -> Changes:
    return Changes(settlements=(Settlement(id=id, scope=scope, budget="cost", amount=Decimal(amount)),))


def at_once(job: Callable[[int], bool], writers: int = WRITERS) -> int:
    """How many of `writers` threads, let go together, got True."""
    start = threading.Barrier(writers)

    def run(number: int) -> bool:
        start.wait()
        return job(number)

    with ThreadPoolExecutor(writers) as pool:
        return sum(pool.map(run, range(writers)))
