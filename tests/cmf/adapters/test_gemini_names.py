"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.value import replace
from cmf.message.message import ImagePart, TextPart
from cmf.message.request import ToolChoice
from tests.cmf.adapters.gemini_bodies import GEMINI, asked, kept, part_of


class TestSpelling:
    @pytest.mark.spec("GEM-2")
    def test_snake_case_is_read_and_written_alike(self) -> None:
        body = {
            "contents": [
                {"role": "user", "parts": [{"inline_data": {"mime_type": "image/png", "data": "AAAA"}}]},
                {"role": "model", "parts": [{"function_call": {"name": "f", "args": {"file_uri": 1}}}]},
            ],
            "system_instruction": {"parts": [{"text": "be brief"}]},
            "generation_config": {"max_output_tokens": 5, "stop_sequences": ["x"]},
            "tools": [{"function_declarations": [{"name": "f"}]}, {"google_search": {}}],
            "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
        }
        request = kept(body)
        assert request.sampling.max_output_tokens == 5
        assert request.system == "be brief"
        assert request.tool_choice == ToolChoice(mode="tool", name="f")
        assert isinstance(request.messages[1].content[0], ImagePart)
        assert request.messages[2].content[0].arguments == {"file_uri": 1}

    @pytest.mark.spec("GEM-2")
    def test_names_are_spelled_one_by_one(self) -> None:
        assert part_of({"fileData": {"file_uri": "gs://b/x.png", "mimeType": "image/png"}}).data == "gs://b/x.png"

    @pytest.mark.spec("GEM-2")
    @pytest.mark.parametrize(
        ("part", "fields", "path"),
        [
            ({"text": "hi"}, {"systemInstruction": "a", "system_instruction": "hidden"}, "$.system_instruction"),
            ({"text": "hi"}, {"systemInstruction": None, "system_instruction": "hidden"}, "$.system_instruction"),
            (
                {"text": "hi"},
                {"generationConfig": {"maxOutputTokens": 5, "max_output_tokens": 500}},
                "$.generationConfig.max_output_tokens",
            ),
            (
                {"functionCall": {"name": "f"}, "function_call": {"name": "hidden"}},
                {},
                "$.contents[0].parts[0].function_call",
            ),
            (
                {"inline_data": {"mimeType": "text/plain", "mime_type": "text/html", "data": "AAAA"}},
                {},
                "$.contents[0].parts[0].inlineData.mime_type",
            ),
            (
                {"text": "hi"},
                {"tools": {"function_declarations": [], "functionDeclarations": [{"name": "f"}]}},
                "$.tools[0].function_declarations",
            ),
        ],
    )
    def test_a_name_in_both_spellings_is_refused(self, part: Any, fields: dict[str, Any], path: str) -> None:
        with pytest.raises(ShapeError) as refused:
            GEMINI.from_wire_request(asked(part, **fields), model="m")

        assert (refused.value.code, refused.value.path) == ("shape.ambiguous-key", path)

    @pytest.mark.spec("GEM-2")
    def test_an_answer_with_a_name_in_both_spellings_is_refused(self) -> None:
        content = {"role": "model", "parts": [{"functionCall": {"name": "f"}, "function_call": {"name": "hidden"}}]}
        body = {"candidates": [{"content": content, "finishReason": "STOP"}]}

        for read in (lambda: body, lambda: GEMINI.fold_events([{"data": body}])):
            with pytest.raises(ShapeError):
                GEMINI.from_wire_response(read())

    @pytest.mark.spec("GEM-2")
    def test_the_layout_holds_names_of_the_list_only(self) -> None:
        request = kept(asked({"inline_data": {"mime_type": "text/plain", "data": "c2VjcmV0"}, "x_y": "secret"}))
        layout = request.messages[0].provider_raw
        assert layout is not None
        assert layout.shape["names"] == {
            "at": {"parts": {"at": {"0": {"snake": ["inlineData"], "at": {"inlineData": {"snake": ["mimeType"]}}}}}}
        }

    @pytest.mark.spec("GEM-2")
    def test_an_edited_message_is_written_without_what_was_removed(self) -> None:
        request = kept(asked({"text": "secret", "thought_signature": "c2ln"}))
        message = replace(request.messages[0], content=(request.messages[0].content[0].edited(text="***"),))
        out = GEMINI.to_wire(replace(request, messages=(message,)))
        assert out == asked({"text": "***"})

    @pytest.mark.spec("GEM-3")
    @pytest.mark.parametrize(
        "contents",
        [
            "hi",
            ["hi"],
            {"parts": [{"text": "hi"}]},
            [{"parts": "hi"}],
            [{"role": "user", "parts": {"text": "hi"}}],
            [{"role": None, "parts": ["hi"]}],
        ],
    )
    def test_a_lone_text_and_a_lone_object_are_read(self, contents: Any) -> None:
        request = kept({"contents": contents})
        assert [(message.role, message.content) for message in request.messages] == [
            (Role.USER, (TextPart(text="hi"),))
        ]

    @pytest.mark.spec("GEM-3")
    def test_a_system_instruction_may_be_text(self) -> None:
        assert kept(asked({"text": "hi"}, systemInstruction="be brief")).system == "be brief"

    @pytest.mark.spec("GEM-2")
    def test_a_turn_with_other_parts_is_not_spelled_as_it_came(self) -> None:
        request = kept({"contents": "secret"})
        message = replace(request.messages[0], content=(TextPart(text="a"), TextPart(text="b")))
        out = GEMINI.to_wire(replace(request, messages=(message,)))
        assert out == {"contents": {"parts": [{"text": "a"}, {"text": "b"}]}}

    @pytest.mark.spec("GEM-3")
    @pytest.mark.parametrize("contents", [{}, {"contents": None}, {"contents": []}, {"contents": 0}])
    def test_a_request_without_turns_comes_back(self, contents: dict[str, Any]) -> None:
        request = kept({**contents, "tools": None})
        assert request.messages == ()
