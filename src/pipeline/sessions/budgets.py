"""Tokens and cost: held before a model is asked, settled when it has answered [C5, C14]. Spec: docs/spec/budgets.md.

hold = budgets.reserve(context, request)     # BudgetExceeded: do not ask the model
response = ask(request)
budgets.settle(context, hold, response.usage)

A hold that nobody settles counts in full. It is never given back by itself: a process that died may have asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Final

from cmf.adapters.wire.base import answers
from cmf.message.ids import Clock
from cmf.message.message import TokenUsage
from cmf.message.model_ids import provider_of
from cmf.message.request import Request, other_models
from cmf.models.pricing import Price, PriceTable, shipped_table
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ConfigError, SessionError, UnpricedError
from pipeline.decisions.timestamps import MICROSECOND, new_ulid
from pipeline.sessions.base import Moments, SessionStore, wall_clock
from pipeline.sessions.state import BudgetScope, Changes, Count, Reservation, Settlement

_PREFIX: Final = "hold"


class Unit(StrEnum):
    """What is counted."""

    TOKENS = "tokens"
    COST = "cost"  # US dollars


class Unpriced(StrEnum):
    """What becomes of a request to a model without a price, where a cost budget applies to it."""

    REFUSE = "refuse"
    COUNT_ZERO = "count_zero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The most that may be used: per session, per subject or by everyone; of all models together or of one.

    Attributes:
        amount: tokens (input and output together), or US dollars.
        model: `<provider>:<model>`, also where a request names it as one that may answer instead; None counts every
            model.
    """

    unit: Unit
    amount: Decimal
    scope: BudgetScope
    model: str | None = None

    @property
    def budget(self) -> str:
        """The budget's name in the store."""
        return self.unit.value if self.model is None else f"{self.unit.value}:{self.model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What is held for one request, until it is settled; `expires_at` in microseconds since the epoch.

    `expected` is by unit: the most that the request was taken to use. Cost is absent where it is not known. `priced`
    are the models that may answer and have a price: the dearest of them, rate by rate, is what counts.
    """

    id: str
    priced: tuple[str, ...]
    limits: tuple[Limit, ...]
    expected: Mapping[Unit, Decimal] = field(default_factory=dict)
    expires_at: int

    def amount(self, limit: Limit) -> Decimal:
        """What is held under `limit`."""
        return self.expected.get(limit.unit, Decimal(0))


class Budgets:
    """Holds and settles what requests may use; safe to share between threads and processes.

    Args:
        store: where the budgets are kept: that of the sessions.
        limits: all of them hold at once; a request is refused by the first that it would break.
        estimate: input tokens of a request; `adapters.get(name).estimate_input_tokens`.
        prices: dollars per token; the shipped table where None.
        unpriced: what becomes of a request to a model without a price, where a cost budget applies to it: it is
            refused, or counts as nothing, or is counted by the price that is given here.
        max_output_tokens: how long an answer is taken to be where its request sets no limit.
        expires_in: how long a hold may stay unsettled; then `sweep` counts it as spent.

    Raises:
        ConfigError: two limits of the same budget.
    """

    def __init__(
        self,
        store: SessionStore,
        limits: Sequence[Limit],
        *,
        estimate: Callable[[Request], int],
        prices: PriceTable | None = None,
        unpriced: Unpriced | Price = Unpriced.REFUSE,
        max_output_tokens: int = 8_192,
        expires_in: timedelta = timedelta(minutes=15),
        clock: Clock = wall_clock,
    ) -> None:
        self._store = store
        self._limits = tuple(limits)
        if len({(limit.scope, limit.budget) for limit in self._limits}) < len(self._limits):
            raise ConfigError("two limits of one budget", code="config.budget-twice", hint="keep the smaller")
        self._estimate = estimate
        self._prices = prices or shipped_table()
        self._unpriced = unpriced
        self._max_output_tokens = max_output_tokens
        self._expires_in = expires_in
        self._moments = Moments(clock)

    def reserve(self, context: Context, request: Request) -> Hold:
        """A hold on the most that `request` is taken to use: under every limit that concerns it, or under none.

        Raises:
            BudgetExceeded: a limit does not allow it. UnpricedError: its cost cannot be told, and that is refused.
            SessionError: a limit per session, and no session (`session.none`). StoreError: nothing may be asked.
        """
        models = _models(request)
        limits = tuple(limit for limit in self._limits if limit.model in (None, *models))
        prices = self._prices_of(models, needed=any(limit.unit is Unit.COST for limit in limits))
        expires_at = self._moments.now() + self._expires_in // MICROSECOND
        # The id holds the time when it expires, so no other record of the hold is needed.
        hold = Hold(
            id=f"{_PREFIX}_{expires_at}_{new_ulid()}",
            priced=tuple(prices),
            limits=limits,
            expected=self._expected(request, [*prices.values()]),
            expires_at=expires_at,
        )
        if limits:
            reservations = tuple(
                Reservation(
                    id=hold.id,
                    scope=limit.scope,
                    budget=limit.budget,
                    amount=hold.amount(limit),
                    limit=limit.amount,
                )
                for limit in limits
            )
            self._store.commit(context, None, Changes(reservations=reservations))
        return hold

    def settle(self, context: Context, hold: Hold, usage: TokenUsage) -> bool:
        """Spend what the model reports as used, and count it for the session; the rest of the hold is released.

        Returns:
            False if the hold had expired and was swept: then it is spent in full, and stays so.

        Raises:
            StoreError: nothing was changed; the hold stays.
        """
        return self._spend(context, hold, self._used(hold, usage))

    def release(self, context: Context, hold: Hold) -> bool:
        """Give all of it back, for a request that was never sent; False if it was swept before."""
        return self._spend(context, hold, {Unit.TOKENS: Decimal(0), Unit.COST: Decimal(0)})

    def sweep(self, context: Context) -> int:
        """How many holds had expired in the budgets that apply to `context`; each is spent in full from now on.

        This frees no budget, because a hold counts in full before and after. It keeps the store small.
        """
        now = self._moments.now()
        swept = 0
        for limit in self._limits:
            if limit.scope is BudgetScope.SESSION and context.session is None:
                continue
            for hold_id, amount in self._store.budget(context, limit.scope, limit.budget).held.items():
                if _expired(hold_id, now):
                    spent = Settlement(id=hold_id, scope=limit.scope, budget=limit.budget, amount=amount)
                    swept += self._settled(context, Changes(settlements=(spent,)))
        return swept

    def _spend(self, context: Context, hold: Hold, used: Mapping[Unit, Decimal]) -> bool:
        settlements = tuple(
            Settlement(id=hold.id, scope=limit.scope, budget=limit.budget, amount=used[limit.unit])
            for limit in hold.limits
        )
        counts = tuple(
            Count(name=unit.value, amount=amount, mark=f"{hold.id}:{unit.value}")
            for unit, amount in used.items()
            if amount
        )
        if self._settled(context, Changes(settlements=settlements, counts=counts)):
            return True
        # Swept meanwhile: the budgets have it in full, and the session still counts what was really used.
        self._store.commit(context, None, Changes(counts=counts))
        return False

    def _settled(self, context: Context, changes: Changes) -> bool:
        try:
            return self._store.commit(context, None, changes)
        except SessionError as error:
            if error.code == "session.unknown-reservation":
                return False
            raise

    def _expected(self, request: Request, prices: Sequence[Price]) -> dict[Unit, Decimal]:
        taken = self._estimate(request)
        given = request.sampling.max_output_tokens
        longest = given if given is not None and given > 0 else self._max_output_tokens  # to Ollama 0 is no limit
        output = longest * answers(request)
        expected = {Unit.TOKENS: Decimal(taken + output)}
        if prices:
            price = _dearest(prices)
            dearest = replace(price, input=max(price.input, price.cached_read, price.cache_write))
            expected[Unit.COST] = dearest.cost(TokenUsage(input_tokens=taken, output_tokens=output))
        return expected

    def _used(self, hold: Hold, usage: TokenUsage) -> dict[Unit, Decimal]:
        read = usage.input_tokens + usage.cached_input_tokens + usage.cache_creation_input_tokens
        prices = self._prices_of(hold.priced, needed=False)
        # If a price was removed meanwhile, the hold is the best estimate.
        gone = not prices or len(prices) < len(hold.priced)
        cost = hold.expected.get(Unit.COST, Decimal(0)) if gone else _dearest([*prices.values()]).cost(usage)
        return {Unit.TOKENS: Decimal(read + usage.output_tokens), Unit.COST: cost}

    def _prices_of(self, models: Sequence[str], *, needed: bool) -> dict[str, Price]:
        """The prices of those of `models` that have one. UnpricedError: one has none, it is `needed`, and refused."""
        found: dict[str, Price] = {}
        for model in models:
            price = self._prices.prices.get(model)
            if price is None and isinstance(self._unpriced, Price):
                price = self._unpriced
            if price is not None:
                found[model] = price
            elif needed and self._unpriced is Unpriced.REFUSE:
                hint = f"add it to price table {self._prices.version}, or choose what to do without a price"
                what = "this model has" if model == models[0] else "a model that may answer in its place has"
                raise UnpricedError(f"{what} no price", path="request.model", hint=hint)
        return found


def _models(request: Request) -> tuple[str, ...]:
    """The ids of a request's model and of the others that it names: whichever of them answers has to be paid for."""
    own = request.model or ""
    provider, colon, _ = own.partition(":")
    prefix = f"{provider}:" if colon else ""
    others = (name if provider_of(name) else prefix + name for name in other_models(request))
    return tuple(dict.fromkeys((own, *others)))


def _dearest(prices: Sequence[Price]) -> Price:
    """The highest of each rate."""
    rates = ("input", "output", "cached_read", "cache_write")
    return Price(**{rate: max(getattr(price, rate) for price in prices) for rate in rates})


def _expired(hold_id: str, now: int) -> bool:
    prefix, _, rest = hold_id.partition("_")
    moment = rest.partition("_")[0]
    return prefix == _PREFIX and moment.isdecimal() and int(moment) <= now
