"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.message.message import (
    ImagePart,
    Message,
    OpaquePart,
    RedactedThinkingPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.gemini_bodies import GEMINI


class TestWriting:
    @pytest.mark.spec("GEM-10")
    @pytest.mark.parametrize(
        "part",
        [
            ToolCallPart(name="f", arguments_raw="[1]"),
            ToolResultPart(tool_call_id="nobody", content="x"),
            ImagePart(type="file_ref", data="file-abc"),
        ],
    )
    def test_what_gemini_cannot_take_is_refused(self, part: Any) -> None:
        with pytest.raises(UnsupportedError):
            GEMINI.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=(part,)),)))

    @pytest.mark.spec("GEM-10")
    def test_a_tool_that_another_provider_runs_is_refused(self) -> None:
        with pytest.raises(UnsupportedError):
            GEMINI.to_wire(
                Request(tools=(ToolDefinition(name="w", type="web_search_20250305", executed_by="provider"),))
            )

    @pytest.mark.spec("GEM-10")
    def test_another_providers_secrets_are_dropped_with_records(self) -> None:
        content = (
            RedactedThinkingPart(data="blob"),
            ThinkingPart(text="hm", signature="theirs"),
            OpaquePart(provider="openai_responses", type="odd", value={"a": "b"}),
            ToolCallPart(name="web_search", arguments={}, executed_by="provider"),
            TextPart(text="so", extra={"openai_chat": {"logprobs": 1}}),
        )
        with collecting() as losses:
            out = GEMINI.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=content),)))
        assert out["contents"] == [{"role": "model", "parts": [{"text": "hm", "thought": True}, {"text": "so"}]}]
        assert [loss.block_type for loss in losses] == [
            "redacted_thinking", "thinking_signature", "opaque", "tool_call", "text",
        ]  # fmt: skip

    @pytest.mark.spec("GEM-10")
    @pytest.mark.spec("GEM-11")
    def test_results_from_elsewhere_share_a_turn_and_get_their_names(self) -> None:
        calls = tuple(ToolCallPart(tool_call_id=id_, name=f"tool_{id_}", arguments={}) for id_ in "ab")
        messages = (
            Message(role=Role.ASSISTANT, content=calls),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="a", content="fine"),)),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="b", content="bad", is_error=True),)),
        )
        out = GEMINI.to_wire(Request(messages=messages))
        assert out["contents"][1] == {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "tool_a", "id": "a", "response": {"output": "fine"}}},
                {"functionResponse": {"name": "tool_b", "id": "b", "response": {"error": "bad"}}},
            ],
        }

    @pytest.mark.spec("GEM-10")
    @pytest.mark.parametrize(
        ("part", "encoded"),
        [
            (ToolCallPart(name="f", arguments_raw=" "), {"functionCall": {"name": "f", "args": {}}}),
            (
                ImagePart(type="url", data="data:image/png;base64,AAAA"),
                {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
            ),
            (
                ImagePart(type="base64", data=base64.b64encode(b"GIF89a..").decode()),
                {"inlineData": {"mimeType": "image/gif", "data": base64.b64encode(b"GIF89a..").decode()}},
            ),
            (ResourcePart(uri="file:///a", content="text"), {"text": "text"}),
            (
                ToolResultPart(tool_name="f", content=(TextPart(text="a"), TextPart(text="b"))),
                {"functionResponse": {"name": "f", "response": {"output": "a\nb"}}},
            ),
            (
                ToolResultPart(tool_name="f", content=(TextPart(text="a"), ResourcePart(uri="file:///a", content="b"))),
                {"functionResponse": {"name": "f", "response": {"output": "a\nb"}}},
            ),
            (
                ToolResultPart(tool_name="f", content=(ImagePart(type="url", data="https://x/a.png"),)),
                {
                    "functionResponse": {
                        "name": "f",
                        "response": {},
                        "parts": [{"fileData": {"fileUri": "https://x/a.png"}}],
                    }
                },
            ),
            (
                ToolResultPart(tool_name="executableCode", content="***", executed_by="provider"),
                {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "***"}},
            ),
            (
                ToolResultPart(tool_name="URL_CONTEXT", content=(TextPart(text="***"),), executed_by="provider"),
                {"toolResponse": {"toolType": "URL_CONTEXT", "response": {"output": "***"}}},
            ),
        ],
    )
    def test_parts_of_other_formats_are_written_as_gemini_s(self, part: Any, encoded: dict[str, Any]) -> None:
        out = GEMINI.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=(part,)),)))
        assert out["contents"] == [{"role": "model", "parts": [encoded]}]

    @pytest.mark.spec("GEM-10")
    @pytest.mark.parametrize(
        "part",
        [
            ResourcePart(uri="file:///a", blob=b"x"),
            ResourceRefPart(uri="file:///a"),
            ToolResultPart(tool_name="web_search", content="x", executed_by="provider"),
        ],
    )
    def test_a_turn_without_writable_parts_is_not_written(self, part: Any) -> None:
        with collecting() as losses:
            out = GEMINI.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=(part,)),)))
        assert out["contents"] == []
        assert [loss.block_type for loss in losses] == [part.content_type.value]

    @pytest.mark.spec("GEM-10")
    def test_one_of_geminis_own_tools_needs_no_body(self) -> None:
        tool = ToolDefinition(name="search", type="googleSearch", executed_by="provider")
        assert GEMINI.to_wire(Request(tools=(tool,)))["tools"] == [{"googleSearch": {}}]
