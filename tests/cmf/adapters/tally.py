"""One body through an adapter, and the count of what held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cmf.adapters import get
from cmf.adapters.wire.base import Adapter
from cmf.errors import CmfError
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views
from tests.cmf.adapters.wiredata import (
    Record,
    Side,
)


@dataclass(slots=True)
class Tally:
    """How many cases held, and which did not, why."""

    claim: str
    checked: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Of the cases checked, the fraction that held."""
        return 1.0 if not self.checked else 1 - len(self.failed) / self.checked

    def count(self, what: str) -> None:
        """One more case of a kind."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def case(self, where: str, problem: str) -> None:
        """One case; `problem` is empty if it held."""
        self.checked += 1
        if problem:
            self.failed.append((where, problem))

    def require(self, share: float = 1.0) -> None:
        """Fail, with the first cases that did not hold, if fewer than `share` of them did."""
        worst = "\n".join(f"  {where}: {problem}" for where, problem in self.failed[:12])
        assert self.share >= share, f"{self.claim}: {len(self.failed)} of {self.checked} failed\n{worst}"


def decoded(adapter: Adapter, side: Side, body: Any, context: Request | None = None) -> Request | Response:
    """The canonical value of a body of any side; a stream is folded first."""
    if side == "request":
        return adapter.from_wire_request(body)
    return adapter.from_wire_response(adapter.fold_events(body) if side == "stream" else body, context)


def emitted(adapter: Adapter, value: Request | Response) -> Any:
    """The whole wire form of a value."""
    return adapter.to_wire(value) if isinstance(value, Request) else adapter.to_wire_response(value)


def inputs(value: Request | Response) -> list[dict[str, Any]]:
    """What policy is shown of a value."""
    return [view.to_opa_input() for view in iter_views(value)]


def context_of(adapter: Adapter, record: Record) -> Request | None:
    """The request that a record's reply answers; None where it was not recorded."""
    return None if record.request is None else adapter.from_wire_request(record.request)


def cases(
    format_name: str, chosen: Iterable[Record], *sides: Side
) -> Iterator[tuple[Adapter, str, Side, Any, Request | None]]:
    """The bodies of the given sides; with the request that a reply answers."""
    adapter = get(format_name)
    for record in chosen:
        for side, body in record.sides:
            if side not in sides:
                continue
            where = f"{record.source} [{side}]"
            try:
                context = context_of(adapter, record) if side != "request" else None
            except CmfError:
                context = None  # counted where the request itself is checked
            yield adapter, where, side, body, context
