"""What other formats' content becomes in the Responses format."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import LossyProjectionError, UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    Extensions,
    ImagePart,
    Message,
    MetaExtension,
    OpaquePart,
    Part,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import Request, Sampling
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    FORMAT,
    message,
    written,
)


def test_a_foreign_turn_becomes_items_in_order_with_ids_paired() -> None:
    items = written(
        message(Role.SYSTEM, TextPart(text="be brief")),
        message(
            Role.ASSISTANT,
            TextPart(text="a"),
            TextPart(text="b"),
            ToolCallPart(name="add", arguments=FrozenDict({"n": 1})),
            ToolCallPart(name="sub", tool_call_id="toolu_1", arguments_raw="oops"),
            TextPart(text="c"),
        ),
        message(Role.TOOL, ToolResultPart(content=FrozenDict({"sum": 1}))),
        message(Role.TOOL, ToolResultPart(tool_call_id="toolu_1", content=(TextPart(text="x"),))),
        message(Role.TOOL, ToolResultPart(tool_call_id="toolu_2")),
    )

    assert items == [
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
        },
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"n":1}'},
        {"type": "function_call", "call_id": "toolu_1", "name": "sub", "arguments": "oops"},
        {"role": "assistant", "content": "c"},
        {"type": "function_call_output", "call_id": "call_1", "output": '{"sum":1}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call_output", "call_id": "toolu_2", "output": ""},
    ]


def test_foreign_media_is_written_in_this_formats_way() -> None:
    (item,) = written(
        message(
            Role.USER,
            ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),
            DocumentPart(type="url", data="https://a.example/x.pdf", title="x"),
            AudioPart(type="base64", data="UklGRg==", media_type="audio/mpeg"),
        )
    )

    assert item["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "input_file", "file_url": "https://a.example/x.pdf", "filename": "x"},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
    ]


@pytest.mark.spec("ADP-10")
@pytest.mark.parametrize(
    "one",
    [
        message(Role.USER, VideoPart(type="url", data="https://a.example/x.mp4")),
        message(Role.USER, AudioPart(type="url", data="https://a.example/x.mp3")),
        message(Role.TOOL, TextPart(text="outside a result")),
    ],
)
def test_media_and_roles_that_the_format_lacks_are_refused(one: Message) -> None:
    with pytest.raises(UnsupportedError):
        written(one)


@pytest.mark.spec("ADP-10")
def test_parts_that_the_format_lacks_are_dropped_with_a_record() -> None:
    with collecting() as losses:
        items = written(
            message(
                Role.ASSISTANT,
                OpaquePart(provider="anthropic_messages", type="x", value=FrozenDict({"a": 1})),
                ToolCallPart(name="web_search", executed_by="provider"),
                ToolResultPart(tool_name="web_search", executed_by="provider"),
                ResourceRefPart(uri="file:///x"),
            ),
            message(Role.TOOL, ToolResultPart(tool_call_id="c", content="failed", is_error=True)),
        )
        ADAPTER.to_wire(Request(sampling=Sampling(top_k=3, seed=1, stop=("x",))))

    assert [item["type"] for item in items] == ["function_call_output"]
    assert [loss.block_type for loss in losses] == [
        "opaque", "tool_call", "tool_result", "resource_ref", "is_error",
        "sampling.top_k", "sampling.stop", "sampling.seed",
    ]  # fmt: skip


@pytest.mark.spec("ADP-10")
def test_a_resource_is_written_as_its_text() -> None:
    resource = ResourcePart(uri="file:///a", content="x")
    with collecting() as losses:
        items = written(
            message(Role.USER, resource),
            message(Role.TOOL, ToolResultPart(tool_call_id="c", content=(resource,))),
        )

    assert items[0] == {"role": "user", "content": "x"}
    assert items[1]["output"] == [{"type": "input_text", "text": "x"}]
    assert [loss.block_type for loss in losses] == ["resource_address", "resource_address"]


@pytest.mark.spec("ADP-11")
def test_a_critical_message_is_refused_and_not_thinned() -> None:
    critical = Extensions(meta=MetaExtension(properties=FrozenDict({"critical": True})))

    with pytest.raises(LossyProjectionError):
        written(message(Role.ASSISTANT, ThinkingPart(text="theirs"), extensions=critical))


@pytest.mark.spec("RSP-9")
@pytest.mark.parametrize("strict", [None, False, True])
def test_a_foreign_function_is_as_strict_as_it_was(strict: bool | None) -> None:
    """Here a function is strict unless it says otherwise; elsewhere it is the other way round."""
    said = {} if strict is None else {"strict": strict}
    shape = {"type": "object", "properties": {"unit": {"type": "string"}}}
    chat = {"type": "function", "function": {"name": "weigh", "parameters": shape, **said}}
    messages = {"name": "weigh", "input_schema": shape, **said}

    for name, tool in (("openai_chat", chat), ("openrouter", chat), ("anthropic_messages", messages)):
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
        (sent,) = ADAPTER.to_wire(get(name).from_wire_request(asked))["tools"]
        assert sent == {"type": "function", "name": "weigh", "parameters": shape, "strict": strict is True}

    own: dict[str, Any] = {"type": "function", "name": "weigh", "parameters": shape, **said}
    assert ADAPTER.to_wire(ADAPTER.from_wire_request({"model": "m", "input": "hi", "tools": [own]}))["tools"] == [own]


def test_a_foreign_schema_gets_the_name_that_the_format_demands() -> None:
    body = ADAPTER.to_wire(Request(response_schema=FrozenDict({"type": "object"})))

    assert body["text"]["format"] == {"type": "json_schema", "name": "response", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    "extra",
    [
        {"type": 1}, {"item": "x"}, {"item": {"content": "x", "type": "y"}}, {"inside": None}, {"text": "other"},
        {"name": "other"}, {"type": "no_such_call"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="x"), ThinkingPart(text="x"), ToolCallPart(name="x"), ToolResultPart(content="x"),
        OpaquePart(provider=FORMAT, type="x", value=FrozenDict({"type": "x"})),
    ],
)  # fmt: skip
def test_extra_that_was_not_made_here_cannot_contradict_the_part(part: Part, extra: dict[str, Any]) -> None:
    forged = message(Role.ASSISTANT, replace(part, extra=FrozenDict({FORMAT: extra})))

    items = written(forged)

    assert unseen_strings(items, Request(messages=(forged,)), adapter_constants(FORMAT)) == []
    assert "'x'" in str(items) or items == []
