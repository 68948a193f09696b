"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.gemini_request import envelope_shape
from cmf.adapters.loss import collecting
from cmf.content import (
    DocumentPart,
    ImagePart,
    OpaquePart,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.decomposition import iter_views
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import CmfError, ShapeError, UnknownRoleError, UnsupportedError
from cmf.frozen import same_spelling
from cmf.message import Message
from cmf.request import Request, Response, ToolChoice, build_request
from cmf.tools import ToolDefinition
from cmf.value import replace
from tests.cmf.adapters.harness import Proof

GEMINI = get("gemini")


class TestWire(Proof):
    format_name = "gemini"


def asked(*parts: Any, **envelope: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}], **envelope}


def answered(*parts: Any, **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **candidate}]}


def shown(value: Request | Response) -> str:
    return orjson.dumps([view.to_opa_input() for view in iter_views(value)]).decode()


def part_of(raw: dict[str, Any]) -> Any:
    """The one part of a model's turn; the turn comes back as it was."""
    body = {"contents": [{"role": "model", "parts": [raw]}]}
    request = GEMINI.from_wire_request(body)
    assert same_spelling(GEMINI.to_wire(request), body)
    return request.messages[0].content[0]


def kept(body: dict[str, Any]) -> Request:
    """The request of a body that comes back as it was."""
    request = GEMINI.from_wire_request(body)
    assert same_spelling(GEMINI.to_wire(request), body)
    return request


def heard(body: Any) -> Response:
    """The response of a body that comes back as it was."""
    response = GEMINI.from_wire_response(body)
    assert same_spelling(GEMINI.to_wire_response(response), body)
    return response


def chunks(*bodies: Any) -> list[Any]:
    return [{"data": body} for body in bodies]


class TestAddress:
    @pytest.mark.spec("GEM-1")
    def test_a_request_without_a_model_has_no_address(self) -> None:
        with pytest.raises(UnsupportedError):
            GEMINI.to_http(build_request([{"role": "user", "content": []}]))

    @pytest.mark.spec("GEM-1")
    @pytest.mark.parametrize(
        ("model", "stream", "path"),
        [
            ("gemini-2.5-flash", None, "/v1beta/models/gemini-2.5-flash:generateContent"),
            ("gemini-2.5-flash", True, "/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"),
            ("models/gemini-2.5-pro", False, "/v1beta/models/gemini-2.5-pro:generateContent"),
            ("a/../b?c", None, "/v1beta/models/a%2F..%2Fb%3Fc:generateContent"),
        ],
    )
    def test_the_model_stands_in_the_path(self, model: str, stream: bool | None, path: str) -> None:
        assert GEMINI.to_http(Request(model=model, stream=stream)).path == path

    @pytest.mark.spec("GEM-1")
    def test_a_body_that_names_another_model_than_its_path_is_refused(self) -> None:
        with pytest.raises(ShapeError) as refusal:
            GEMINI.from_wire_request(asked({"text": "hi"}, model="models/other"), model="gemini-2.5-flash")
        assert refusal.value.path == "$.model"

    @pytest.mark.spec("GEM-1")
    def test_a_body_that_has_a_model_is_written_with_the_one_that_is_asked(self) -> None:
        request = GEMINI.from_wire_request(asked({"text": "hi"}, model="models/a"), model="a")
        assert GEMINI.to_wire(request)["model"] == "models/a"
        assert GEMINI.to_wire(replace(request, model="b"))["model"] == "b"

    @pytest.mark.spec("GEM-1")
    def test_a_layout_survives_the_streaming_flag(self) -> None:
        body = asked({"text": "hi"}, generationConfig={}, tools=None)
        assert same_spelling(GEMINI.to_wire(replace(kept(body), stream=True)), body)


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
    def test_the_second_spelling_of_a_name_is_kept_and_shown(self) -> None:
        request = kept(asked({"text": "hi"}, systemInstruction={"parts": [{"text": "a"}]}, system_instruction="hidden"))
        assert request.system == "a"
        assert "hidden" in shown(request)

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
    def test_text_alone_and_an_object_alone_are_read(self, contents: Any) -> None:
        request = kept({"contents": contents})
        assert [(message.role, message.content) for message in request.messages] == [
            (Role.USER, (TextPart(text="hi"),))
        ]

    @pytest.mark.spec("GEM-3")
    def test_a_system_instruction_may_be_text(self) -> None:
        assert kept(asked({"text": "hi"}, systemInstruction="be brief")).system == "be brief"


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
    def test_only_an_error_alone_is_an_error(self) -> None:
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
            "redacted_thinking", "thinking_signature", "opaque", "tool_call",
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


class TestRequests:
    @pytest.mark.spec("GEM-11")
    @pytest.mark.parametrize("role", ["system", "assistant", "", 5, ["user"]])
    def test_a_role_that_the_provider_does_not_know_is_refused(self, role: Any) -> None:
        with pytest.raises(UnknownRoleError) as refusal:
            GEMINI.from_wire_request({"contents": [{"role": role, "parts": []}]})
        assert refusal.value.path == "$.contents[0].role"

    @pytest.mark.spec("GEM-11")
    @pytest.mark.parametrize("role", ["user", "function", "tool", None])
    def test_a_turn_is_cut_at_its_results_and_put_together_again(self, role: str | None) -> None:
        result = {"functionResponse": {"name": "f", "response": {"output": 1}}}
        body = {"contents": [{"role": role, "parts": [result, {"text": "and"}, {"text": "so"}, result], "odd": "kept"}]}
        request = kept(body)
        assert [message.role for message in request.messages] == [Role.TOOL, Role.USER, Role.TOOL]
        assert "kept" in shown(request)

    @pytest.mark.spec("GEM-11")
    def test_results_in_turns_of_their_own_stay_there(self) -> None:
        turn = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"output": 1}}}]}
        assert len(kept({"contents": [turn, turn]}).messages) == 2

    @pytest.mark.spec("GEM-11")
    def test_a_turn_that_lost_a_message_is_written_without_it(self) -> None:
        result = {"functionResponse": {"name": "f", "response": {"output": 1}}}
        request = kept({"contents": [{"role": "user", "parts": [result, {"text": "gone"}, result]}]})
        out = GEMINI.to_wire(replace(request, messages=(request.messages[0], request.messages[2])))
        assert out["contents"] == [{"role": "user", "parts": [result, result]}]

    @pytest.mark.spec("GEM-12")
    @pytest.mark.parametrize("role", [{}, {"role": "model"}, {"role": "system"}, {"role": None}])
    def test_a_system_instruction_is_system_text_whatever_role_it_names(self, role: dict[str, Any]) -> None:
        request = kept(asked({"text": "hi"}, systemInstruction={"parts": [{"text": "a"}, {"text": "b"}], **role}))
        assert request.messages[0].role is Role.SYSTEM
        assert [part.text for part in request.messages[0].content] == ["a", "b"]

    @pytest.mark.spec("GEM-12")
    def test_all_system_text_is_hoisted(self) -> None:
        messages = (
            Message(role=Role.USER, content=(TextPart(text="hi"),)),
            Message(role=Role.SYSTEM, content=(TextPart(text="a"),)),
            Message(role=Role.DEVELOPER, content=(TextPart(text="b"),)),
        )
        out = GEMINI.to_wire(Request(messages=messages))
        assert out["systemInstruction"]["parts"] == [{"text": "a"}, {"text": "b"}]
        assert len(out["contents"]) == 1

    @pytest.mark.spec("GEM-13")
    def test_tools_come_back_in_their_objects(self) -> None:
        tools = [
            {"functionDeclarations": [{"name": "a"}], "codeExecution": None},
            {
                "functionDeclarations": [{"name": "b", "parameters": {"type": "OBJECT"}}, {"name": "c"}],
                "googleSearch": {},
            },
            {"functionDeclarations": []},
            {"newTool": {"key": "value"}},
            {},
        ]
        request = kept(asked({"text": "hi"}, tools=tools))
        assert [(tool.name, tool.executed_by) for tool in request.tools] == [
            ("a", "client"), ("b", "client"), ("c", "client"), ("googleSearch", "provider"), ("newTool", "provider"),
        ]  # fmt: skip
        assert "value" in shown(request)

    @pytest.mark.spec("GEM-13")
    def test_a_stripped_tool_is_not_written(self) -> None:
        tools = [
            {"functionDeclarations": [{"name": "a"}], "codeExecution": {}},
            {"functionDeclarations": [{"name": "b"}]},
        ]
        request = kept(asked({"text": "hi"}, tools=tools))
        out = GEMINI.to_wire(replace(request, tools=request.tools[:1] + request.tools[2:]))
        assert out["tools"] == [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]

    @pytest.mark.spec("GEM-13")
    @pytest.mark.parametrize("name", ["parameters", "parametersJsonSchema", "parameters_json_schema"])
    def test_a_schema_comes_back_under_its_name(self, name: str) -> None:
        body = asked({"text": "hi"}, tools=[{"functionDeclarations": [{"name": "a", name: {"type": "object"}}]}])
        assert kept(body).tools[0].input_schema == {"type": "object"}

    @pytest.mark.spec("GEM-13")
    def test_two_schemas_at_once_are_shown_as_they_are(self) -> None:
        both = {"name": "a", "parameters": {"type": "OBJECT"}, "parametersJsonSchema": {"title": "other"}}
        request = kept(asked({"text": "hi"}, tools=[{"functionDeclarations": [both]}]))
        assert request.tools[0].input_schema is None
        assert "other" in shown(request)

    @pytest.mark.spec("GEM-14")
    @pytest.mark.parametrize(
        ("calling", "choice"),
        [
            ({"mode": "AUTO"}, ToolChoice(mode="auto")),
            ({"mode": "VALIDATED"}, ToolChoice(mode="auto")),
            ({"mode": "NONE"}, ToolChoice(mode="none")),
            ({"mode": "any"}, ToolChoice(mode="required")),
            ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolChoice(mode="tool", name="f")),
            ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, ToolChoice(mode="required")),
            ({"mode": "NEW"}, None),
        ],
    )
    def test_modes_of_calling(self, calling: dict[str, Any], choice: ToolChoice | None) -> None:
        request = kept(asked({"text": "hi"}, toolConfig={"functionCallingConfig": calling, "includeServerSide": True}))
        assert request.tool_choice == choice

    @pytest.mark.spec("GEM-14")
    def test_another_choice_replaces_what_came(self) -> None:
        calling = {"mode": "ANY", "allowedFunctionNames": ["f", "g"]}
        request = kept(asked({"text": "hi"}, toolConfig={"functionCallingConfig": calling}))
        out = GEMINI.to_wire(request.with_options(tool_choice=ToolChoice(mode="none")))
        assert out["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}

    @pytest.mark.spec("GEM-15")
    def test_the_configuration_is_read_and_the_rest_shown(self) -> None:
        config = {
            "temperature": 1, "topP": 0.5, "topK": 3, "maxOutputTokens": 9, "seed": 1, "stopSequences": ["x"],
            "responseMimeType": "application/json", "responseSchema": {"type": "OBJECT"},
            "thinkingConfig": {"thinkingLevel": "HIGH", "includeThoughts": True}, "candidateCount": 2,
        }  # fmt: skip
        request = kept(
            asked({"text": "hi"}, generationConfig=config, cachedContent="cachedContents/77", labels={"k": "v"})
        )
        assert (request.sampling.top_p, request.sampling.stop) == (0.5, ("x",))
        assert request.response_schema == {"type": "OBJECT"}
        assert request.reasoning_effort == "high"
        assert "cachedContents/77" in shown(request)

    @pytest.mark.spec("GEM-15")
    def test_a_schema_from_elsewhere_asks_for_json(self) -> None:
        request = Request(response_schema={"type": "object"}, reasoning_effort="low")
        assert GEMINI.to_wire(request)["generationConfig"] == {
            "responseJsonSchema": {"type": "object"},
            "responseMimeType": "application/json",
            "thinkingConfig": {"thinkingLevel": "low"},
        }


class TestAnswers:
    @pytest.mark.spec("GEM-16")
    @pytest.mark.parametrize(
        ("reason", "stop"),
        [
            ("STOP", StopReason.END),
            (1, StopReason.END),
            ("MAX_TOKENS", StopReason.MAX_TOKENS),
            (2, StopReason.MAX_TOKENS),
            ("SAFETY", StopReason.CONTENT_FILTER),
            ("MALFORMED_FUNCTION_CALL", StopReason.ERROR),
            (17, StopReason.OTHER),
            ("SOMETHING_NEW", StopReason.OTHER),
            (None, None),
        ],
    )
    def test_reasons_of_the_end(self, reason: Any, stop: StopReason | None) -> None:
        assert heard(answered({"text": "a"}, finishReason=reason)).choices[0].stop_reason == stop

    @pytest.mark.spec("GEM-16")
    def test_a_stop_with_a_call_is_a_call(self) -> None:
        choice = heard(answered({"functionCall": {"name": "f", "args": {}}})).choices[0]
        assert (choice.stop_reason, choice.raw_stop_reason) == (StopReason.CALL, "STOP")

    @pytest.mark.spec("GEM-16")
    @pytest.mark.parametrize("content", [{}, {"content": {}}, {"content": {"role": "model"}}, {"content": None}])
    def test_a_candidate_may_have_no_content(self, content: dict[str, Any]) -> None:
        response = heard({"candidates": [{"finishReason": "MAX_TOKENS", "index": 0, **content}]})
        assert response.message.content == ()

    @pytest.mark.spec("GEM-16")
    def test_every_candidate_is_a_choice(self) -> None:
        one = answered({"text": "a"}, index=1)["candidates"][0]
        response = heard({"candidates": [one, {**one, "index": 0}, {**one, "safetyRatings": [{"category": "odd"}]}]})
        assert len(response.choices) == 3
        assert "odd" in shown(response)

    @pytest.mark.spec("GEM-16")
    def test_another_formats_reason_is_translated(self) -> None:
        response = GEMINI.from_wire_response(answered({"text": "a"}))
        choice = replace(response.choices[0], stop_reason=StopReason.MAX_TOKENS, raw_stop_reason="length")
        out = GEMINI.to_wire_response(replace(response, choices=(choice,)))
        assert out["candidates"][0]["finishReason"] == "MAX_TOKENS"

    @pytest.mark.spec("GEM-17")
    def test_a_blocked_prompt_is_one_filtered_choice(self) -> None:
        body = {"promptFeedback": {"blockReason": "MODEL_ARMOR", "blockReasonMessage": "injection"}}
        response = heard(body)
        assert [(choice.stop_reason, choice.message.content) for choice in response.choices] == [
            (StopReason.CONTENT_FILTER, ())
        ]
        assert "injection" in shown(response)
        assert GEMINI.fold_events(GEMINI.to_wire_events(response)) == body

    @pytest.mark.spec("GEM-18")
    def test_tokens_are_counted_without_the_cached_ones(self) -> None:
        usage = {
            "promptTokenCount": 100, "cachedContentTokenCount": 60, "toolUsePromptTokenCount": 5,
            "candidatesTokenCount": 7, "thoughtsTokenCount": 3, "totalTokenCount": 115,
        }  # fmt: skip
        tokens = heard(answered({"text": "a"}) | {"usageMetadata": usage}).usage
        assert tokens is not None
        assert (tokens.input_tokens, tokens.cached_input_tokens, tokens.output_tokens, tokens.total_tokens) == (
            45, 60, 10, 115,
        )  # fmt: skip

    @pytest.mark.spec("GEM-18")
    def test_changed_usage_is_written_anew(self) -> None:
        response = heard(answered({"text": "a"}) | {"usageMetadata": {"promptTokenCount": 1, "serviceTier": "x"}})
        assert response.usage is not None
        out = GEMINI.to_wire_response(replace(response, usage=replace(response.usage, input_tokens=2, total_tokens=2)))
        assert out["usageMetadata"] == {"promptTokenCount": 2, "candidatesTokenCount": 0, "totalTokenCount": 2}

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("listed", [False, True])
    def test_an_error_is_a_response(self, listed: bool) -> None:
        error = {
            "error": {"code": 429, "message": "slow down", "status": "RESOURCE_EXHAUSTED", "details": [{"@type": "t"}]}
        }
        info = heard([error] if listed else error).error
        assert info is not None
        assert (info.status, info.message, info.type) == (429, "slow down", "RESOURCE_EXHAUSTED")

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("error", ["down", None, 5, {"code": "x", "message": None}, {}])
    def test_odd_errors_come_back(self, error: Any) -> None:
        heard({"error": error})

    @pytest.mark.spec("GEM-19")
    @pytest.mark.parametrize("body", [[], [answered({"text": "a"})], [{"error": {}}, {}], "x", None])
    def test_an_array_of_answers_is_refused(self, body: Any) -> None:
        with pytest.raises(ShapeError):
            GEMINI.from_wire_response(body)

    @pytest.mark.spec("GEM-20")
    def test_what_cannot_be_written_back_is_refused(self) -> None:
        with pytest.raises(ShapeError) as refusal:
            envelope_shape({"key": "said"}, {"key": "meant"}, {})
        assert refusal.value.code == "shape.not-read-whole"

    @pytest.mark.spec("GEM-20")
    @pytest.mark.parametrize(
        "body",
        [
            asked({"text": "a"}, generationConfig={"cmf_schema": "mine"}),
            asked({"text": "a"}, tools=[{"functionDeclarations": [{"name": "f", "cmf_schema": "mine"}]}]),
        ],
    )
    def test_the_adapters_own_notes_are_no_wire_keys(self, body: dict[str, Any]) -> None:
        with pytest.raises(ShapeError):
            GEMINI.from_wire_request(body)


class TestStreams:
    @pytest.mark.spec("GEM-21")
    def test_a_stream_without_its_last_reason_is_partial(self) -> None:
        body = GEMINI.fold_events(chunks({"candidates": [{"content": {"parts": [{"text": "a"}], "role": "model"}}]}))
        assert GEMINI.from_wire_response(body).message.status is MessageStatus.PARTIAL
        assert "cmf_partial" not in GEMINI.to_wire_response(GEMINI.from_wire_response(body))

    @pytest.mark.spec("GEM-21")
    def test_a_part_after_a_reason_takes_it_back(self) -> None:
        code = answered({"executableCode": {"language": "PYTHON", "code": "1"}})
        more = {"candidates": [{"content": {"role": "model", "parts": [{"codeExecutionResult": {"outcome": "X"}}]}}]}
        for events in (chunks(code), chunks(code, more)):
            assert GEMINI.from_wire_response(GEMINI.fold_events(events)).message.status is MessageStatus.PARTIAL
        whole = GEMINI.from_wire_response(GEMINI.fold_events(chunks(code, more, answered({"text": "so"}))))
        assert whole.message.status is MessageStatus.COMPLETE

    @pytest.mark.spec("GEM-22")
    def test_text_is_joined_unless_signed(self) -> None:
        parts = [
            {"text": "a", "thought": True}, {"text": "b", "thought": True}, {"text": "c"}, {"text": "d"},
            {"text": "", "thoughtSignature": "c2ln"}, {"text": "e"},
        ]  # fmt: skip
        events = chunks(*({"candidates": [{"content": {"parts": [part]}}]} for part in parts[:-1]), answered(parts[-1]))
        body = GEMINI.fold_events(events)
        assert body["candidates"][0]["content"]["parts"] == [
            {"text": "ab", "thought": True}, {"text": "cd"}, {"text": "", "thoughtSignature": "c2ln"}, {"text": "e"},
        ]  # fmt: skip

    @pytest.mark.spec("GEM-22")
    def test_parts_that_stood_apart_in_one_answer_stay_apart_when_streamed(self) -> None:
        body = answered({"text": "a"}, {"text": "b"}, {"functionCall": {"name": "f", "args": {}}}, {"text": "c"})
        assert GEMINI.fold_events(GEMINI.to_wire_events(heard(body))) == body

    @pytest.mark.spec("GEM-23")
    def test_streamed_arguments_are_put_in_their_places(self) -> None:
        pieces: list[dict[str, Any]] = [
            {"jsonPath": "$.city", "stringValue": "Par", "willContinue": True},
            {"jsonPath": "$.city", "stringValue": "is"},
            {"jsonPath": "$.days[0].temp", "numberValue": 3},
            {"jsonPath": "$['odd key']", "boolValue": True},
            {"jsonPath": "$.none", "nullValue": "NULL_VALUE"},
        ]
        calls: list[dict[str, Any]] = [
            {"name": "f", "willContinue": True},
            *({"partialArgs": [piece], "willContinue": True} for piece in pieces),
            {},
        ]
        whole = [{"functionCall": call} for call in calls]
        events = chunks(*({"candidates": [{"content": {"parts": [part]}}]} for part in whole[:-1]), answered(whole[-1]))
        response = GEMINI.from_wire_response(GEMINI.fold_events(events))
        call = response.message.content[0]
        assert call.arguments == {"city": "Paris", "days": [{"temp": 3}], "odd key": True, "none": None}
        for cut in range(1, len(events)):
            partial = GEMINI.from_wire_response(GEMINI.fold_events(events[:cut]))
            assert partial.message.status is MessageStatus.PARTIAL

    @pytest.mark.spec("GEM-23")
    @pytest.mark.parametrize(
        "piece",
        [
            {"jsonPath": "$..city", "stringValue": "odd"},
            {"jsonPath": "$.a[7]", "stringValue": "odd"},
            {"jsonPath": "$.a", "stringValue": "odd", "more": 1},
            {"jsonPath": "$.a", "numberValue": "odd"},
            "odd",
        ],
    )
    def test_a_piece_that_is_not_understood_stays_and_is_shown(self, piece: Any) -> None:
        body = GEMINI.fold_events(chunks(answered({"functionCall": {"name": "f", "partialArgs": [piece]}})))
        response = GEMINI.from_wire_response(body)
        assert "odd" in shown(response)
        assert response.message.content[0].arguments == {}

    @pytest.mark.spec("GEM-24")
    def test_what_a_later_chunk_replaced_is_shown_and_not_sent(self) -> None:
        events = chunks(
            {"modelVersion": "first", "candidates": []}, "odd event", answered({"text": "a"}) | {"modelVersion": "last"}
        )
        response = GEMINI.from_wire_response(GEMINI.fold_events(events))
        assert response.model == "last"
        assert "first" in shown(response)
        assert "odd event" in shown(response)
        out = GEMINI.to_wire_response(response)
        assert set(out) == {"candidates", "modelVersion"}

    @pytest.mark.spec("GEM-24")
    @given(st.lists(st.lists(st.sampled_from(["text", "thought", "signed", "call", "code"]), max_size=4), max_size=6))
    def test_any_answer_streams_back_to_itself(self, turns: list[list[str]]) -> None:
        made: dict[str, dict[str, Any]] = {
            "text": {"text": "a"},
            "thought": {"text": "b", "thought": True},
            "signed": {"text": "", "thoughtSignature": "c2ln"},
            "call": {"functionCall": {"name": "f", "args": {"a": 1}}},
            "code": {"executableCode": {"code": "1"}},
        }
        body = answered(*(made[kind] for turn in turns for kind in turn))
        response = heard(body)
        again = GEMINI.fold_events(GEMINI.to_wire_events(response))
        again.pop("cmf_partial", None)  # code that still runs
        assert again == body


KEYS = st.sampled_from([
    "contents", "parts", "role", "text", "tools", "candidates", "content", "functionCall", "functionResponse", "name",
    "args", "response", "thought", "error", "generation_config", "system_instruction", "inline_data",
])  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(["user", "model", "STOP"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.spec("GEM-20")
@given(JSON)
def test_any_json_is_refused_or_comes_back(body: Any) -> None:
    for read, write in (
        (GEMINI.from_wire_request, GEMINI.to_wire),
        (GEMINI.from_wire_response, GEMINI.to_wire_response),
    ):
        try:
            value: Any = read(body)
        except CmfError:
            continue
        assert same_spelling(write(value), body)
