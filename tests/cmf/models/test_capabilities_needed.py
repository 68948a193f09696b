"""What a conversation needs that a model does not offer."""

from __future__ import annotations

from typing import Any

import pytest

from cmf import (
    ImagePart,
    Message,
    PromptResultPart,
    RedactedThinkingPart,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
)
from cmf.errors import UnsupportedError
from cmf.models.capabilities import NONE, ModelCapabilities, check_swap, shortfalls

ALL = ModelCapabilities(
    supports_thinking=True,
    supports_images=True,
    supports_tools=True,
    supports_system_prompt=True,
    supports_structured_output=True,
    supports_streaming=True,
    supports_streaming_tool_calls=True,
    supports_parallel_tool_calls=True,
    supports_prompt_caching=True,
    supports_system_messages_in_list=True,
    max_context_tokens=1000,
    max_output_tokens=100,
    accepted_image_media_types=("image/png",),
)
PNG = ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png")


def said(role: str, *parts: Any) -> Message:
    return Message(role=role, content=parts)


SESSION = [
    said("system", TextPart(text="be brief")),
    said("user", TextPart(text="look"), PNG),
    said("assistant", ThinkingPart(text="hm"), ToolCallPart(name="f")),
    said("tool", ToolResultPart(content=(PNG,))),
]


@pytest.mark.spec("CAP-5")
@pytest.mark.parametrize(
    ("missing", "path"),
    [
        ({"supports_images": False}, "$[1].content[1]"),
        ({"accepted_image_media_types": ("image/jpeg",)}, "$[1].content[1]"),
        ({"supports_tools": False}, "$[2].content[1]"),
        ({"supports_system_prompt": False}, "$[0]"),
        ({"max_context_tokens": 99}, "$"),
    ],
)
def test_each_missing_declaration_is_named_once_with_the_first_place(missing: dict[str, Any], path: str) -> None:
    (short,) = shortfalls(SESSION, ALL.model_copy(update=missing), input_tokens=100)

    assert (short.capability, short.path) == (next(iter(missing)), path)


@pytest.mark.spec("CAP-5")
@pytest.mark.parametrize(
    ("missing", "path"),
    [
        ({"supports_tools": False}, "$.tools"),
        ({"supports_structured_output": False}, "$.response_schema"),
        ({"supports_streaming": False}, "$.stream"),
        ({"supports_streaming_tool_calls": False}, "$.stream"),
        ({"max_output_tokens": 49}, "$.sampling.max_output_tokens"),
    ],
)
def test_a_request_may_need_more_than_its_messages(missing: dict[str, Any], path: str) -> None:
    request = Request(
        messages=[said("user", TextPart(text="x"))],
        tools=[ToolDefinition(name="f")],
        response_schema={"type": "object"},
        stream=True,
        sampling={"max_output_tokens": 50},
    )

    assert shortfalls(request, ALL) == ()
    (short,) = shortfalls(request, ALL.model_copy(update=missing))
    assert (short.capability, short.path) == (next(iter(missing)), path)


@pytest.mark.spec("CAP-5")
def test_an_image_is_found_however_deep_it_stands() -> None:
    rendered = PromptResultPart(prompt_name="p", messages=[said("user", PNG)])
    offered = ALL.model_copy(update={"supports_images": False})

    for part, path in (
        (ToolResultPart(content=(TextPart(text="x"), PNG)), "$[0].content[0].content[1]"),
        (rendered, "$[0].content[0].messages[0].content[0]"),
    ):
        assert [short.path for short in shortfalls([said("user", part)], offered)] == [path]
    assert shortfalls(Request(messages=[said("user", PNG)]), offered)[0].path == "$.messages[0].content[0]"


@pytest.mark.spec("CAP-5")
def test_an_undeclared_model_can_take_only_text() -> None:
    assert shortfalls([said("user", TextPart(text="x"))], NONE) == ()
    assert {short.capability for short in shortfalls(SESSION, NONE, input_tokens=1)} == {
        "supports_system_prompt",
        "supports_images",
        "supports_tools",
        "max_context_tokens",
    }


@pytest.mark.spec("CAP-6")
def test_a_swap_that_cannot_work_is_refused_in_plain_words() -> None:
    with pytest.raises(UnsupportedError) as caught:
        check_swap(SESSION, ALL.model_copy(update={"supports_images": False}), name="Haiku-text-only")

    assert caught.value.message == (
        "Cannot swap to Haiku-text-only: session contains images that this model can't process."
    )
    assert caught.value.code == "swap.supports-images"
    assert caught.value.path == "$[1].content[1]"
    assert "supports_images" in caught.value.hint
    check_swap(SESSION, ALL, name="Sonnet")


@pytest.mark.spec("CAP-7")
def test_thinking_is_dropped_on_the_way_and_no_reason_to_refuse() -> None:
    thought = said("assistant", ThinkingPart(text="x"), RedactedThinkingPart(data="y"), TextPart(text="z"))

    assert shortfalls([thought], NONE) == ()
