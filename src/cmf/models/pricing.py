"""What a generation costs, from a table of our own: exact, versioned, and computable again later [A10].

Spec: docs/spec/pricing.md; seed 000 §6.4.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Any, Final

import yaml

from cmf.errors import ShapeError, UnknownPriceError
from cmf.json.value import replace
from cmf.message.message import CompletionExtension, Extensions, Message, TokenUsage

_PER_MILLION: Final = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens. A missing cached rate is the input rate."""

    input: Decimal
    output: Decimal
    cached_read: Decimal
    cache_write: Decimal

    def cost(self, usage: TokenUsage) -> Decimal:
        """Exact dollars for `usage`; nothing is rounded."""
        return (
            self.input * usage.input_tokens
            + self.output * usage.output_tokens
            + self.cached_read * usage.cached_input_tokens
            + self.cache_write * usage.cache_creation_input_tokens
        ) / _PER_MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """Prices by model id, and the version of the table."""

    version: str
    prices: Mapping[str, Price]

    def cost(self, model_id: str, usage: TokenUsage) -> Decimal:
        """Exact dollars.

        Raises:
            UnknownPriceError: the table does not have the model; a cost of nothing would be a lie.
        """
        price = self.prices.get(model_id)
        if price is None:
            raise UnknownPriceError(f"no price for this model in table {self.version}", hint="add it to the table")
        return price.cost(usage)

    def price(self, message: Message) -> Message:
        """The message with its cost under this table; messages without usage or model are returned as they are.

        Raises:
            UnknownPriceError: as `cost`.
        """
        extensions = message.extensions or Extensions()
        completion, llm = extensions.completion, extensions.llm
        if completion is None or completion.tokens is None or llm is None or llm.model_id is None:
            return message
        priced: CompletionExtension = replace(
            completion, cost_usd=self.cost(llm.model_id, completion.tokens), pricing_version=self.version
        )
        return replace(message, extensions=replace(extensions, completion=priced))


def parse_table(text: str) -> PriceTable:
    """The table that YAML `text` spells. Rates are read as exact decimals, never through a float.

    Raises:
        ShapeError: not such a table; the path says where.
    """
    try:
        body = yaml.load(text, Loader=yaml.BaseLoader)  # noqa: S506  (BaseLoader builds text, lists and dicts only)
    except yaml.YAMLError:
        raise ShapeError("the price table is not YAML", path="$", hint="see cmf/models/prices.yaml for one") from None
    if not isinstance(body, dict) or not isinstance(body.get("models"), dict) or not body.get("pricing_version"):
        raise ShapeError(
            "a price table has `pricing_version` and `models`", path="$", hint="see cmf/models/prices.yaml for one"
        )
    prices = {name: _price(entry, f"$.models.{name}") for name, entry in body["models"].items()}
    return PriceTable(version=body["pricing_version"], prices=prices)


_EXAMPLE: Final = "write US dollars per million tokens: 2.50"
_RATES: Final = {
    "input": "input_per_mtok_usd",
    "output": "output_per_mtok_usd",
    "cached_read": "cached_read_per_mtok_usd",
    "cache_write": "cache_write_per_mtok_usd",
}


def _price(entry: Any, path: str) -> Price:
    if not isinstance(entry, dict) or not set(entry) <= set(_RATES.values()):
        raise ShapeError("not a price entry", path=path, hint=f"use {', '.join(_RATES.values())}")
    rates: dict[str, Decimal] = {}
    for name, key in _RATES.items():
        if key in entry:
            try:
                rates[name] = Decimal(entry[key])
            except (InvalidOperation, TypeError, ValueError):
                raise ShapeError("a rate must be a number", path=f"{path}.{key}", hint=_EXAMPLE) from None
            if not rates[name].is_finite() or rates[name] < 0:
                raise ShapeError("a rate must be a finite number, at least 0", path=f"{path}.{key}", hint=_EXAMPLE)
    if not {"input", "output"} <= set(rates):
        why, hint = "a price needs an input and an output rate", "give both, in US dollars per million tokens"
        raise ShapeError(why, path=path, hint=hint)
    return Price(**{"cached_read": rates["input"], "cache_write": rates["input"], **rates})


@cache
def shipped_table() -> PriceTable:
    """The table that comes with the package."""
    return parse_table(importlib.resources.files("cmf.models").joinpath("prices.yaml").read_text("utf-8"))
