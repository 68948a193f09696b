"""What may be used is held before it is used: on every store, and by 64 at once."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.pipeline.session_stores import ANN, WRITERS, Clock, at_once, who

from cmf import Message, Request, TextPart
from cmf.json.value import replace, trusted
from cmf.message.message import TokenUsage
from cmf.message.request import Sampling
from cmf.models.pricing import Price, PriceTable
from pipeline.decisions.context import Context
from pipeline.decisions.errors import BudgetExceeded, ConfigError, SessionError, UnpricedError
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.sessions.budgets import Budgets, Limit, Unit, Unpriced
from pipeline.sessions.state import BudgetScope, Changes

PRICE = Price(input=Decimal(1), output=Decimal(10), cached_read=Decimal("0.1"), cache_write=Decimal(2))
PRICES = PriceTable(version="t", prices={"p:m": PRICE})
ASKED = Request(
    model="p:m",
    messages=[Message(role="user", content=[TextPart(text="hello")])],
    sampling=Sampling(max_output_tokens=100),
)


def tokens(amount: int, scope: BudgetScope = BudgetScope.SUBJECT, model: str | None = None) -> Limit:
    return Limit(unit=Unit.TOKENS, amount=Decimal(amount), scope=scope, model=model)


def cost(amount: str, scope: BudgetScope = BudgetScope.SUBJECT) -> Limit:
    return Limit(unit=Unit.COST, amount=Decimal(amount), scope=scope)


def budgets(store: SessionStore, *limits: Limit, clock: Clock | None = None, **options: object) -> Budgets:
    made: dict[str, object] = {"estimate": lambda _: 50, "prices": PRICES, "clock": clock or Clock(), **options}
    return Budgets(store, limits, **made)  # type: ignore[arg-type]


@pytest.mark.spec("BUD-1")
def test_what_a_limit_does_not_allow_is_refused_and_nothing_is_held(store: SessionStore) -> None:
    mine = budgets(store, tokens(1_000), cost("0.001"))

    with pytest.raises(BudgetExceeded) as refused:
        mine.reserve(ANN, ASKED)

    assert refused.value.path == "cost"
    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 0


@pytest.mark.spec("BUD-2")
@pytest.mark.parametrize("scope", list(BudgetScope))
def test_of_64_at_once_only_as_many_reserve_as_the_budget_allows(store: SessionStore, scope: BudgetScope) -> None:
    mine = budgets(store, tokens(10 * 150 + 149, scope))

    def turn(number: int) -> bool:
        try:
            mine.reserve(ANN, ASKED)
        except BudgetExceeded:
            return False
        return True

    assert at_once(turn) == 10
    assert store.budget(ANN, scope, "tokens").committed == 1_500


@pytest.mark.spec("BUD-2")
def test_of_64_turns_at_once_none_spends_beyond_the_budget(store: SessionStore) -> None:
    mine = budgets(store, tokens(2_000, BudgetScope.EVERYONE), cost("1", BudgetScope.EVERYONE))
    used = TokenUsage(input_tokens=40, output_tokens=60)

    def turn(number: int) -> bool:
        context = who(f"u{number % 7}", f"s{number % 5}")
        try:
            return mine.settle(context, mine.reserve(context, ASKED), used)
        except BudgetExceeded:
            return False

    went = at_once(turn)

    left = store.budget(ANN, BudgetScope.EVERYONE, "tokens")
    assert (left.spent, left.held) == (went * 100, {})
    assert left.spent <= 2_000
    assert 13 <= went <= 20 < WRITERS


@pytest.mark.spec("BUD-2")
@pytest.mark.parametrize(
    ("extra", "count"),
    [
        ({"openai_chat": {"n": 8}}, 8),
        ({"gemini": {"generationConfig": {"candidateCount": 4}}}, 4),
        ({"openai_chat": {"n": 2, "best_of": 5}}, 5),
        ({"openai_chat": {"n": 2.5}}, 3),
        ({"openai_chat": {"n": 0}}, 1),
        ({"openai_chat": {"n": "8", "metadata": {"deep": {"n": 8}}}}, 1),
    ],
)
def test_each_answer_that_a_request_asks_for_is_held(store: SessionStore, extra: dict[str, Any], count: int) -> None:
    hold = budgets(store, tokens(5_000)).reserve(ANN, replace(ASKED, extra=extra))

    assert hold.expected[Unit.TOKENS] == 50 + 100 * count


DEAR = Price(input=Decimal(5), output=Decimal(4), cached_read=Decimal(5), cache_write=Decimal(5))
ROUTED = PriceTable(version="t", prices={"openrouter:a/small": PRICE, "openrouter:b/large": DEAR, "openai:gpt-5": DEAR})


def falls_back(*models: str) -> Request:
    return replace(ASKED, model="openrouter:a/small", extra={"openrouter": {"models": list(models)}})


@pytest.mark.spec("BUD-7")
def test_a_dearer_model_that_may_answer_is_what_counts(store: SessionStore) -> None:
    mine = budgets(store, cost("0.0012"), prices=ROUTED)
    most = Decimal("0.00125")  # 50 tokens at the 5 of the one, 100 at the 10 of the other

    with pytest.raises(BudgetExceeded):
        mine.reserve(ANN, falls_back("b/large"))
    wider = budgets(store, cost("0.002"), prices=ROUTED)
    hold = wider.reserve(ANN, falls_back("openai:gpt-5"))
    wider.settle(ANN, hold, TokenUsage(input_tokens=50, output_tokens=100))

    assert hold.expected[Unit.COST] == most
    assert store.budget(ANN, BudgetScope.SUBJECT, "cost").spent == most


@pytest.mark.spec("BUD-4", "BUD-7")
def test_a_model_without_a_price_that_may_answer_is_refused_or_counts_nothing(store: SessionStore) -> None:
    with pytest.raises(UnpricedError, match="in its place"):
        budgets(store, cost("9"), prices=ROUTED).reserve(ANN, falls_back("c/unknown"))
    mine = budgets(store, cost("9"), prices=ROUTED, unpriced=Unpriced.COUNT_ZERO)

    hold = mine.reserve(ANN, falls_back("c/unknown"))

    assert hold.priced == ("openrouter:a/small",)


@pytest.mark.spec("BUD-7")
def test_a_limit_of_a_model_applies_where_it_may_answer(store: SessionStore) -> None:
    mine = budgets(store, tokens(149, model="openrouter:b/large"), prices=ROUTED)

    with pytest.raises(BudgetExceeded):
        mine.reserve(ANN, falls_back("b/large"))
    assert mine.reserve(ANN, falls_back()).limits == ()


@pytest.mark.spec("BUD-2", "BUD-3")
def test_what_was_not_used_is_free_again_and_what_was_is_counted(store: SessionStore) -> None:
    mine = budgets(store, tokens(200), cost("1"))
    usage = TokenUsage(input_tokens=10, output_tokens=20, cached_input_tokens=5, cache_creation_input_tokens=5)

    hold = mine.reserve(ANN, ASKED)
    with pytest.raises(BudgetExceeded):
        mine.reserve(ANN, ASKED)
    assert mine.settle(ANN, hold, usage)

    assert hold.expected == {Unit.TOKENS: 150, Unit.COST: Decimal("0.0011")}
    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 40
    assert store.budget(ANN, BudgetScope.SUBJECT, "cost").committed == Decimal("0.0002205")
    assert store.read(ANN).counters == {"tokens": 40, "cost": 0.0002205}
    assert mine.release(ANN, mine.reserve(ANN, ASKED))
    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 40


@pytest.mark.spec("BUD-3")
def test_settling_twice_counts_once(store: SessionStore) -> None:
    mine = budgets(store, tokens(1_000))
    hold = mine.reserve(ANN, ASKED)
    usage = TokenUsage(input_tokens=10)

    assert mine.settle(ANN, hold, usage)
    assert not mine.settle(ANN, hold, usage)
    assert not mine.release(ANN, hold)

    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 10
    assert store.read(ANN).counters["tokens"] == 10


@pytest.mark.spec("BUD-4")
def test_a_model_without_a_price_is_refused_where_cost_is_limited() -> None:
    store = MemorySessions()
    other = Request(model="p:new", messages=ASKED.messages)

    for nobody in (other, Request(messages=ASKED.messages)):
        with pytest.raises(UnpricedError) as refused:
            budgets(store, cost("9")).reserve(ANN, nobody)
        assert refused.value.code == "budget.unpriced"
    assert budgets(store, tokens(9_000)).reserve(ANN, other).expected == {Unit.TOKENS: 8_242}


@pytest.mark.spec("BUD-4")
def test_a_model_without_a_price_counts_nothing_or_a_price_that_was_chosen_for_it() -> None:
    other = Request(model="p:new", messages=ASKED.messages, sampling=ASKED.sampling)
    usage = TokenUsage(output_tokens=100)
    spent = []
    for choice in (Unpriced.COUNT_ZERO, PRICE):
        store = MemorySessions()
        mine = budgets(store, cost("9"), unpriced=choice)
        assert mine.settle(ANN, mine.reserve(ANN, other), usage)
        spent.append((store.budget(ANN, BudgetScope.SUBJECT, "cost").spent, store.read(ANN).counters))

    assert spent == [(0, {"tokens": 100}), (Decimal("0.001"), {"tokens": 100, "cost": 0.001})]


@pytest.mark.spec("BUD-4")
def test_a_price_that_is_gone_when_it_is_settled_leaves_the_hold_as_the_cost(store: SessionStore) -> None:
    hold = budgets(store, cost("9")).reserve(ANN, ASKED)
    later = budgets(store, cost("9"), prices=PriceTable(version="u", prices={}))

    assert later.settle(ANN, hold, TokenUsage(output_tokens=1))

    assert store.budget(ANN, BudgetScope.SUBJECT, "cost").spent == Decimal("0.0011")


@pytest.mark.spec("BUD-5")
def test_a_hold_that_was_left_behind_counts_in_full_before_and_after_it_is_swept(
    store: SessionStore, clock: Clock
) -> None:
    limits = (tokens(200), tokens(150, BudgetScope.SESSION), tokens(500, BudgetScope.EVERYONE, "p:m"))
    mine = budgets(store, *limits, clock=clock)
    hold = mine.reserve(ANN, ASKED)
    assert mine.sweep(ANN) == 0

    clock.now += timedelta(minutes=15)
    with pytest.raises(BudgetExceeded):
        mine.reserve(ANN, ASKED)
    assert mine.sweep(who("ann", None)) == 2
    assert mine.sweep(ANN) == 1
    assert mine.sweep(ANN) == 0

    left = store.budget(ANN, BudgetScope.SUBJECT, "tokens")
    assert (left.spent, left.held) == (150, {})
    assert not mine.settle(ANN, hold, TokenUsage(input_tokens=1))
    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 150
    assert store.read(ANN).counters == {"tokens": 1, "cost": 0.000001}


@pytest.mark.spec("BUD-5")
def test_a_hold_of_another_origin_is_not_swept(store: SessionStore, clock: Clock) -> None:
    from tests.pipeline.session_stores import reserve

    store.commit(ANN, None, reserve("hold_soon_x", "1"))
    store.commit(ANN, None, reserve("other_1", "1"))

    assert budgets(store, cost("9"), clock=clock).sweep(ANN) == 0


@pytest.mark.spec("BUD-6")
def test_limits_of_a_model_apply_to_that_model_only(store: SessionStore) -> None:
    mine = budgets(store, tokens(150, BudgetScope.EVERYONE, "p:m"), unpriced=Unpriced.COUNT_ZERO)
    other = Request(model="p:other", messages=ASKED.messages)

    mine.reserve(ANN, ASKED)

    with pytest.raises(BudgetExceeded):
        mine.reserve(who("bob"), ASKED)
    assert mine.reserve(who("bob"), other).limits == ()
    assert mine.settle(who("bob"), mine.reserve(who("bob"), other), TokenUsage(input_tokens=3))
    assert store.read(who("bob")).counters == {"tokens": 3}


@pytest.mark.spec("BUD-6")
def test_a_limit_per_session_refuses_a_run_without_one(store: SessionStore) -> None:
    with pytest.raises(SessionError) as refused:
        budgets(store, tokens(9_000, BudgetScope.SESSION)).reserve(Context(), ASKED)

    assert refused.value.code == "session.none"


@pytest.mark.spec("BUD-1")
def test_two_limits_of_one_budget_are_a_mistake() -> None:
    with pytest.raises(ConfigError):
        budgets(MemorySessions(), tokens(1), tokens(2))


@pytest.mark.spec("BUD-2")
@pytest.mark.parametrize("length", [-5_000, 0])
def test_a_length_that_limits_nothing_counts_as_none(length: int) -> None:
    asked = Request(model="p:m", sampling=Sampling(max_output_tokens=length))

    assert budgets(MemorySessions(), max_output_tokens=10).reserve(ANN, asked).expected[Unit.TOKENS] == 60


def test_an_error_of_the_store_at_settlement_is_not_taken_for_a_swept_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemorySessions()
    mine = budgets(store, tokens(1_000))
    hold = mine.reserve(ANN, ASKED)
    strange = trusted(TokenUsage, input_tokens=-5)

    with pytest.raises(SessionError) as refused:
        mine.settle(ANN, hold, strange)

    assert refused.value.code == "session.bad-amount"
    committed: list[Changes] = []

    def once(_: object, __: object, changes: Changes) -> bool:
        committed.append(changes)
        raise SessionError("x", code="session.bad-amount")

    monkeypatch.setattr(store, "commit", once)
    with pytest.raises(SessionError):
        mine.settle(ANN, hold, TokenUsage(input_tokens=5))
    assert len(committed) == 1
    assert store.budget(ANN, BudgetScope.SUBJECT, "tokens").committed == 150
