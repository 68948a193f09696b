"""The estimate counts all text once, and media by the piece."""

from __future__ import annotations

import pytest

from cmf.adapters.wire.base import MEDIA_TOKENS, MESSAGE_TOKENS, estimate
from cmf.enums import Role
from cmf.json.frozen import FrozenDict
from cmf.message.message import ImagePart, Message, Part, PromptResultPart, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request

IMAGE = ImagePart(type="base64", data="A" * 4_000, media_type="image/png")


def _estimate(*parts: Part) -> int:
    return estimate(Request(messages=(Message(role=Role.USER, content=parts),))) - MESSAGE_TOKENS


def test_text_is_four_bytes_a_token_rounded_up() -> None:
    assert [_estimate(TextPart(text="x" * size)) for size in (1, 4, 5)] == [1, 1, 2]
    assert _estimate(TextPart(text="é" * 4)) == 2


def test_media_count_by_the_piece_even_inside_a_result() -> None:
    result = ToolResultPart(content=(TextPart(text="x" * 4), IMAGE))

    assert (_estimate(IMAGE), _estimate(result)) == (MEDIA_TOKENS, MEDIA_TOKENS + 1)


def test_the_messages_of_a_rendered_prompt_count() -> None:
    inner = Message(role=Role.USER, content=(TextPart(text="x" * 400),))

    assert _estimate(PromptResultPart(prompt_name="p", messages=(inner,))) == 100


@pytest.mark.parametrize("size", [0, 400])
def test_arguments_and_schemas_count(size: int) -> None:
    call = ToolCallPart(name="f", arguments=FrozenDict({"a": "x" * size}))
    schema = FrozenDict({"description": "x" * size})

    assert _estimate(call) >= size / 4
    assert estimate(Request(response_schema=schema)) >= size / 4
