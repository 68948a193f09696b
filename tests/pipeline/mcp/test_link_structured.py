"""Structured content that repeats texts of a result says what policy left of them; any other is judged itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.mcp.pairs import READ, Pair, text

from pipeline.guard import Guard
from pipeline.mcp.judging import repeat, unrepeated
from pipeline.run.assembly import Config

RULES = {
    "cards": 'deny contains {"code": "no.card", "reason": "No."} if contains(json.marshal(input), "4111111111111111")',
}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    home = write_rules(tmp_path_factory.mktemp("policy"), RULES)
    with Guard(["shipped", home], config=Config(timeout_seconds=20)) as guard:
        yield guard


@pytest.fixture
def pair(guard: Guard) -> Pair:
    return Pair(guard)


@pytest.mark.spec("MCPX-14")
async def test_structured_content_that_says_a_text_again_says_what_policy_left_of_it(pair: Pair) -> None:
    said = {"content": [text("first"), text('{"k":"AKIAIOSFODNN7EXAMPLE"}')]}
    body = await pair.exchange("tools/call", READ, {**said, "structuredContent": {"k": "AKIAIOSFODNN7EXAMPLE"}})
    other = await pair.exchange("tools/call", READ, {**said, "structuredContent": {"z": "AKIAIOSFODNN7EXAMPLE"}}, 2)

    assert body["result"]["structuredContent"] == {"k": "[MASKED]"}
    assert "AKIA" not in str(other)


@pytest.mark.spec("MCPX-14")
@pytest.mark.parametrize(
    ("said", "structured"),
    [
        ('{"k": "\\u0041KIAIOSFODNN7EXAMPLE"}', {"k": "AKIAIOSFODNN7EXAMPLE"}),
        ('{"k": "x\\nAKIAIOSFODNN7EXAMPLE"}', {"k": "x\nAKIAIOSFODNN7EXAMPLE"}),
        ('{"AKIA\\u0049OSFODNN7EXAMPLE": 1}', {"AKIAIOSFODNN7EXAMPLE": 1}),
        ('{"k": 41111111111111110e-1}', {"k": 4111111111111111}),
    ],
)
async def test_structured_content_that_a_text_says_in_other_characters_is_judged_itself(
    pair: Pair, said: str, structured: Any
) -> None:
    body = await pair.exchange("tools/call", READ, {"content": [text(said)], "structuredContent": structured})

    assert "structuredContent" not in body["result"]
    assert body["result"]["isError"] is True


@pytest.mark.spec("MCPX-14")
@pytest.mark.parametrize(
    ("said", "structured"),
    [
        (("a", "key AKIAIOSFODNN7EXAMPLE"), {"found": ["a", "key AKIAIOSFODNN7EXAMPLE"]}),
        (("a", "key AKIAIOSFODNN7EXAMPLE"), {"result": ["key AKIAIOSFODNN7EXAMPLE", "a"]}),
        (("a", "key AKIAIOSFODNN7EXAMPLE"), {"result": ["a", "key AKIAIOSFODNN7EXAMPLE", "b"]}),
        (("a", "key AKIAIOSFODNN7EXAMPLE"), {"result": ["a", "key AKIAIOSFODNN7EXAMPLE"], "more": 1}),
        (('{"k": "\\u0041KIAIOSFODNN7EXAMPLE"}',), {"result": [{"k": "AKIAIOSFODNN7EXAMPLE"}]}),
        (("key AKIAIOSFODNN7EXAMPLE",), {"AKIAIOSFODNN7EXAMPLE": "key AKIAIOSFODNN7EXAMPLE"}),
    ],
)
async def test_structured_content_that_says_more_than_the_texts_is_judged_itself(
    pair: Pair, said: tuple[str, ...], structured: Any
) -> None:
    result = {"content": [text(one) for one in said], "structuredContent": structured}

    body = await pair.exchange("tools/call", READ, result)

    assert "structuredContent" not in body["result"]
    assert body["result"]["isError"] is True


@pytest.mark.spec("MCPX-14")
@pytest.mark.parametrize(
    ("said", "structured", "left"),
    [
        (("key AKIAIOSFODNN7EXAMPLE\n",), {"content": "key AKIAIOSFODNN7EXAMPLE\n"}, {"content": "key [MASKED]\n"}),
        (
            ("a", "key AKIAIOSFODNN7EXAMPLE"),
            {"result": ["a", "key AKIAIOSFODNN7EXAMPLE"]},
            {"result": ["a", "key [MASKED]"]},
        ),
        (
            ('{\n  "k": "AKIAIOSFODNN7EXAMPLE"\n}', '{"k": 1}'),
            {"result": [{"k": "AKIAIOSFODNN7EXAMPLE"}, {"k": 1}]},
            {"result": [{"k": "[MASKED]"}, {"k": 1}]},
        ),
    ],
)
async def test_structured_content_as_servers_wrap_it_says_what_policy_left_of_the_texts(
    pair: Pair, said: tuple[str, ...], structured: Any, left: Any
) -> None:
    result = {"content": [text(one) for one in said], "structuredContent": structured}

    body = await pair.exchange("tools/call", READ, result)

    assert body["result"]["structuredContent"] == left
    assert "AKIA" not in str(body)


@pytest.mark.spec("MCPX-14")
@pytest.mark.parametrize(
    ("said", "left"),
    [
        ([text('{"k":"a"}')], [text("no JSON any more")]),
        ([text("a"), text("b")], [text("a")]),
    ],
)
def test_structured_content_of_texts_that_policy_took_away_is_left_out(said: Any, left: Any) -> None:
    structured = {"k": "a"} if len(said) == 1 else {"result": ["a", "b"]}
    body, again = unrepeated({"result": {"content": said, "structuredContent": structured}})

    assert again is not None
    assert repeat({**body, "result": {"content": left}}, again) == {"result": {"content": left}}
