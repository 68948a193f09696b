"""The cost of a conversation, as recorded or under another price table. Spec: docs/spec/ledger.md [LED-13]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from cmf.errors import UnknownPriceError
from cmf.message.message import Message
from cmf.models.pricing import PriceTable


@dataclass(frozen=True, slots=True)
class Cost:
    """Exact US dollars. `unpriced` are messages with token usage whose model has no price."""

    total: Decimal
    by_model: dict[str, Decimal]
    unpriced: tuple[str, ...]


def cost_of(messages: Iterable[Message], prices: PriceTable | None = None) -> Cost:
    """The cost of these messages, as recorded in them or recomputed under `prices`."""
    by_model: dict[str, Decimal] = {}
    unpriced: list[str] = []
    for message in messages:
        model, cost = _cost_of_one(message, prices)
        if cost is not None:
            by_model[model] = by_model.get(model, Decimal(0)) + cost
        elif _used_tokens(message):
            unpriced.append(message.id or "")
    return Cost(sum(by_model.values(), Decimal(0)), by_model, tuple(unpriced))


def _cost_of_one(message: Message, prices: PriceTable | None) -> tuple[str, Decimal | None]:
    if prices is not None:
        try:
            message = prices.price(message)
        except UnknownPriceError:
            return "", None
    extensions = message.extensions
    completion = None if extensions is None else extensions.completion
    llm = None if extensions is None else extensions.llm
    model = "" if llm is None or llm.model_id is None else llm.model_id
    return model, None if completion is None else completion.cost_usd


def _used_tokens(message: Message) -> bool:
    completion = None if message.extensions is None else message.extensions.completion
    return completion is not None and completion.tokens is not None
