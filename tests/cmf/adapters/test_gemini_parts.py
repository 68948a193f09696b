"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.message.message import DocumentPart, ImagePart, Message, OpaquePart, TextPart, ThinkingPart, VideoPart
from cmf.message.request import Request
from cmf.views.iterate import iter_views
from tests.cmf.adapters.gemini_bodies import GEMINI, answered, heard, kept, part_of, shown


class TestParts:
    @pytest.mark.spec("GEM-4")
    @pytest.mark.parametrize(
        "raw",
        [{"newThing": {"a": "b"}}, {"text": "a", "functionCall": {"name": "f"}}, {"text": 5}, {"inlineData": {"x": 1}}],
    )
    def test_what_is_no_known_part_is_opaque_and_shown(self, raw: dict[str, Any]) -> None:
        part = part_of(raw)
        assert isinstance(part, OpaquePart)
        assert part.value == raw

    @pytest.mark.spec("GEM-4")
    @pytest.mark.parametrize("raw", [{}, {"thoughtSignature": "c2ln"}, {"text": ""}])
    def test_an_empty_part_is_empty_text(self, raw: dict[str, Any]) -> None:
        part = part_of(raw)
        assert (type(part), part.text) == (TextPart, "")

    @pytest.mark.spec("GEM-4")
    def test_neighbours_of_the_data_ride_along(self) -> None:
        part = part_of(
            {"fileData": {"fileUri": "https://x/v.mp4", "mimeType": "video/mp4"}, "videoMetadata": {"fps": 2.0}}
        )
        assert isinstance(part, VideoPart)
        assert part.extra == {"gemini": {"videoMetadata": {"fps": 2.0}}}

    @pytest.mark.spec("GEM-5")
    def test_a_thought_is_thinking_with_its_signature(self) -> None:
        part = part_of({"text": "hm", "thought": True, "thoughtSignature": "c2ln"})
        assert isinstance(part, ThinkingPart)
        assert (part.text, part.signature) == ("hm", "c2ln")

    @pytest.mark.spec("GEM-5")
    @pytest.mark.parametrize("thought", [False, None])
    def test_text_that_is_no_thought_is_text(self, thought: bool | None) -> None:
        assert part_of({"text": "hm", "thought": thought}) == TextPart(text="hm")

    @pytest.mark.spec("GEM-5")
    def test_an_edited_thought_loses_its_signature_with_a_record(self) -> None:
        part = part_of({"text": "hm", "thought": True, "thoughtSignature": "c2ln"}).edited(text="x")
        with collecting() as losses:
            out = GEMINI.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=(part,)),)))
        assert out["contents"][0]["parts"] == [{"text": "x", "thought": True}]
        assert [loss.block_type for loss in losses] == ["thinking_signature"]

    @pytest.mark.spec("GEM-6")
    def test_no_id_is_invented(self) -> None:
        body = {
            "contents": [
                {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}] * 2},
                {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": 1}}}] * 2},
            ]
        }
        request = kept(body)
        ids = [part.tool_call_id for message in request.messages for part in message.content]
        assert ids == [None] * 4
        assert [message.role for message in request.messages] == [Role.ASSISTANT, Role.TOOL, Role.TOOL]

    @pytest.mark.spec("GEM-6")
    def test_an_id_and_absent_arguments_come_back(self) -> None:
        part = part_of({"functionCall": {"name": "f", "id": "call_1"}, "thoughtSignature": "c2ln"})
        assert (part.name, part.tool_call_id, part.arguments) == ("f", "call_1", {})

    @pytest.mark.spec("GEM-6")
    @pytest.mark.parametrize("call", [{}, {"name": "f", "args": "{}"}, {"name": 1}, {"name": "f", "id": 3}])
    def test_a_call_without_a_usable_body_is_refused(self, call: dict[str, Any]) -> None:
        with pytest.raises(ShapeError) as refusal:
            GEMINI.from_wire_request({"contents": [{"role": "model", "parts": [{"functionCall": call}]}]})
        assert refusal.value.path.startswith("$.contents[0].parts[0].functionCall.")

    @pytest.mark.spec("GEM-6")
    def test_only_a_lone_error_is_an_error(self) -> None:
        one = part_of({"functionResponse": {"name": "f", "response": {"error": "no"}}})
        other = part_of({"functionResponse": {"name": "f", "response": {"error": None, "output": "ok"}}})
        assert (one.is_error, other.is_error) == (True, False)

    @pytest.mark.spec("GEM-7")
    def test_media_in_a_result_has_views_of_its_own(self) -> None:
        data = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()
        raw = {
            "functionResponse": {
                "name": "f",
                "response": {"image": {"$ref": "a.png"}, "note": "two\nlines"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": data, "displayName": "a.png"}}],
            }
        }
        part = part_of(raw)
        assert [type(inner) for inner in part.content] == [TextPart, ImagePart]
        request = GEMINI.from_wire_request({"contents": [{"role": "user", "parts": [raw]}]})
        kinds = [view.kind.value for view in iter_views(request)]
        assert kinds == ["request", "tool_result", "text", "image"]
        assert "two\\nlines" in shown(request)

    @pytest.mark.spec("GEM-8")
    @pytest.mark.parametrize(
        ("raw", "kind", "source"),
        [
            ({"inlineData": {"mimeType": "image/png", "data": "AAAA"}}, ImagePart, "base64"),
            (
                {"inlineData": {"mimeType": "application/pdf", "data": "AAAA", "displayName": "a"}},
                DocumentPart,
                "base64",
            ),
            ({"inlineData": {"data": "AA-_"}}, DocumentPart, "base64"),
            ({"fileData": {"fileUri": "gs://b/v.mp4", "mimeType": "video/mp4"}}, VideoPart, "url"),
            ({"fileData": {"fileUri": "https://youtu.be/x"}}, DocumentPart, "url"),
            (
                {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc"}},
                DocumentPart,
                "file_ref",
            ),
        ],
    )
    def test_media_are_of_the_kind_that_their_type_says(self, raw: dict[str, Any], kind: type, source: str) -> None:
        part = part_of(raw)
        assert (type(part), part.type) == (kind, source)

    @pytest.mark.spec("GEM-9")
    def test_what_the_provider_ran_says_so(self) -> None:
        body = answered(
            {"executableCode": {"language": "PYTHON", "code": "print(1)", "id": "c1"}, "thoughtSignature": "c2ln"},
            {"codeExecutionResult": {"outcome": "OUTCOME_FAILED", "output": "boom", "id": "c1"}},
            {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "x"}},
            {"toolResponse": {"toolType": "GOOGLE_SEARCH_WEB", "id": "x", "response": {"n": 1}}},
            {"toolCall": {"toolType": "odd"}},
        )
        parts = heard(body).message.content
        assert [part.content_type.value for part in parts] == [
            "tool_call", "tool_result", "tool_call", "tool_result", "opaque",
        ]  # fmt: skip
        assert all(part.executed_by == "provider" for part in parts[:4])
        assert (parts[0].name, parts[0].tool_call_id, parts[1].is_error) == ("executableCode", "c1", True)

    @pytest.mark.spec("GEM-4")
    @pytest.mark.parametrize(
        "kind",
        ["functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult",
         "toolCall", "toolResponse"],
    )  # fmt: skip
    def test_a_part_without_its_body_is_opaque(self, kind: str) -> None:
        assert isinstance(part_of({kind: None, "thoughtSignature": "c2ln"}), OpaquePart)

    @pytest.mark.spec("GEM-4")
    @pytest.mark.parametrize("part", [5, None, ["text"]])
    def test_what_is_no_object_is_no_part(self, part: Any) -> None:
        with pytest.raises(ShapeError) as refusal:
            GEMINI.from_wire_request({"contents": [{"role": "user", "parts": [part]}]})
        assert refusal.value.path == "$.contents[0].parts[0]"
