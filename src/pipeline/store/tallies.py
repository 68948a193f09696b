"""What the conversations of a store come to, one by one. Spec: docs/spec/ledger.md [LED-14]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cmf.pricing import PriceTable
from pipeline.ledger.costs import Cost, cost_of
from pipeline.ledger.rows import LedgerSession
from pipeline.store.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Tally:
    """A conversation: what it cost, how many calls nobody answered, how often which tool failed."""

    session: LedgerSession
    cost: Cost
    unanswered: int
    failed: Mapping[str, int]


def tallies(ledger: Ledger, *, limit: int = 100, prices: PriceTable | None = None) -> list[Tally]:
    """Those of the conversations that were changed last, at most `limit`; with `prices`, what they would cost under it.

    Raises:
        LedgerError: a row of one cannot be read (`ledger.damaged`).
    """
    waiting = Counter(call.session_id for call in ledger.unanswered())
    failed = ledger.failed_tools()
    return [
        Tally(one, cost_of(ledger.messages(one.id), prices), waiting[one.id], failed.get(one.id, {}))
        for one in ledger.sessions(limit=limit)
    ]


__all__ = ["Tally", "tallies"]
