"""What a generation costs."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cmf import CompletionExtension, Extensions, LLMExtension, Message, ShapeError, TextPart, TokenUsage
from cmf.errors import UnknownPriceError
from cmf.models.pricing import parse_table, shipped_table

TABLE = """
pricing_version: v9
models:
  a:full: {input_per_mtok_usd: 1.10, output_per_mtok_usd: 2, cached_read_per_mtok_usd: 0.1, cache_write_per_mtok_usd: 3}
  a:bare: {input_per_mtok_usd: 0.1, output_per_mtok_usd: 0.2}
"""
USAGE = TokenUsage(input_tokens=1, output_tokens=10, cached_input_tokens=100, cache_creation_input_tokens=1000)


@pytest.mark.spec("PRICE-1")
def test_cost_is_exact() -> None:
    assert shipped_table().cost("anthropic:claude-sonnet-4-6", TokenUsage(input_tokens=8, output_tokens=42)) == Decimal(
        "0.000654"
    )
    assert parse_table(TABLE).cost("a:full", USAGE) == Decimal("0.00303110")
    assert str(parse_table(TABLE).cost("a:bare", TokenUsage(input_tokens=3))) == "3E-7"


@pytest.mark.spec("PRICE-3")
@pytest.mark.parametrize(
    ("model", "of_each"),
    [
        ("anthropic:claude-sonnet-4-6", "22.05"),
        ("anthropic:claude-opus-4-7", "36.75"),
        ("anthropic:claude-haiku-4-5", "7.35"),
        ("openai:gpt-5", "12.625"),
        ("openai:gpt-5-mini", "2.525"),
        ("ollama:llama-3.3-70b", "0"),
        ("openrouter:deepseek/deepseek-v3", None),  # no one price: that of whichever host it is routed to
    ],
)
def test_the_models_that_the_format_names_have_a_price_where_there_is_one(model: str, of_each: str | None) -> None:
    million = 1_000_000
    usage = TokenUsage(
        input_tokens=million, output_tokens=million, cached_input_tokens=million, cache_creation_input_tokens=million
    )
    if of_each is None:
        with pytest.raises(UnknownPriceError):
            shipped_table().cost(model, usage)
    else:
        assert shipped_table().cost(model, usage) == Decimal(of_each)


@pytest.mark.spec("PRICE-2")
def test_a_missing_cached_rate_is_the_input_rate() -> None:
    assert parse_table(TABLE).cost("a:bare", USAGE) == (Decimal("0.1") * 1101 + Decimal("0.2") * 10) / 1_000_000


@pytest.mark.spec("PRICE-3")
def test_a_model_without_a_price_is_an_error() -> None:
    with pytest.raises(UnknownPriceError, match="v9"):
        parse_table(TABLE).cost("a:other", USAGE)


def priced(model: str | None = "a:bare", tokens: TokenUsage | None = USAGE) -> Message:
    extensions = Extensions(llm=LLMExtension(model_id=model), completion=CompletionExtension(tokens=tokens))
    return Message(role="assistant", content=[TextPart(text="x")], extensions=extensions)


@pytest.mark.spec("PRICE-4")
def test_a_cost_names_its_table_and_can_be_computed_again() -> None:
    old = parse_table(TABLE).price(priced())
    new = parse_table(TABLE.replace("v9", "v10").replace("0.2", "0.4")).price(old)

    assert old.extensions is not None
    assert new.extensions is not None
    assert old.extensions.completion is not None
    assert new.extensions.completion is not None
    assert (old.extensions.completion.pricing_version, new.extensions.completion.pricing_version) == ("v9", "v10")
    assert new.extensions.completion.cost_usd == old.extensions.completion.cost_usd + Decimal("0.000002")
    assert Message.model_validate_json(new.model_dump_json()) == new
    for message in (priced(None), priced(tokens=None), Message(role="user", content=[TextPart(text="x")])):
        assert parse_table(TABLE).price(message) is message


@pytest.mark.spec("PRICE-5")
@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("[", "$"),
        ("models: {}", "$"),
        ("pricing_version: v\nmodels: []", "$"),
        ("pricing_version: v\nmodels: {m: 3}", "$.models.m"),
        ("pricing_version: v\nmodels: {m: {input_per_mtok_usd: 1}}", "$.models.m"),
        ("pricing_version: v\nmodels: {m: {input: 1, output_per_mtok_usd: 1}}", "$.models.m"),
        (
            "pricing_version: v\nmodels: {m: {input_per_mtok_usd: x, output_per_mtok_usd: 1}}",
            "$.models.m.input_per_mtok_usd",
        ),
        (
            "pricing_version: v\nmodels: {m: {input_per_mtok_usd: -1, output_per_mtok_usd: 1}}",
            "$.models.m.input_per_mtok_usd",
        ),
        (
            "pricing_version: v\nmodels: {m: {input_per_mtok_usd: NaN, output_per_mtok_usd: 1}}",
            "$.models.m.input_per_mtok_usd",
        ),
        (
            "pricing_version: v\nmodels: {m: {input_per_mtok_usd: [], output_per_mtok_usd: 1}}",
            "$.models.m.input_per_mtok_usd",
        ),
    ],
)
def test_a_table_that_is_not_well_formed_is_refused_with_the_path(text: str, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        parse_table(text)
    assert caught.value.path == path
