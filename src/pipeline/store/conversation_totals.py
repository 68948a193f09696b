"""Cost and failures of each conversation in a store. Spec: docs/spec/ledger.md [LED-14]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from cmf.models.pricing import PriceTable
from pipeline.store.conversation_costs import Cost, cost_of
from pipeline.store.conversation_rows import LedgerSession
from pipeline.store.conversations import Ledger


@dataclass(frozen=True, slots=True)
class Tally:
    """A conversation: its cost, its number of unanswered calls, and the failures of each tool."""

    session: LedgerSession
    cost: Cost
    unanswered: int
    failed: Mapping[str, int]


def tallies(ledger: Ledger, *, limit: int = 100, prices: PriceTable | None = None) -> list[Tally]:
    """The tallies of the `limit` conversations changed most recently; with `prices`, their cost under that table.

    Raises:
        LedgerError: a row cannot be read (`ledger.damaged`).
    """
    waiting = Counter(call.session_id for call in ledger.unanswered())
    failed = ledger.failed_tools()
    return [
        Tally(one, cost_of(ledger.messages(one.id), prices), waiting[one.id], failed.get(one.id, {}))
        for one in ledger.sessions(limit=limit)
    ]
