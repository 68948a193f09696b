"""Spec: docs/spec/adapters/gemini.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.enums import Role
from cmf.errors import UnknownRoleError
from cmf.json.value import replace
from cmf.message.message import Message, TextPart, ToolCallPart
from cmf.message.request import Request, ToolChoice
from tests.cmf.adapters.gemini_bodies import GEMINI, asked, kept, shown


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

    @pytest.mark.spec("GEM-26")
    @pytest.mark.parametrize(
        ("model", "signs"),
        [
            *((name, True) for name in ("gemini-3-pro", "models/gemini-3.1-flash", "gemini-10", "gemini-flash-latest")),
            *((name, False) for name in ("gemini-2.5-pro", "gemma-3-27b", None)),
        ],
    )
    def test_calls_of_another_model_say_so_where_signatures_are_asked_for(self, model: str | None, signs: bool) -> None:
        calls = tuple(ToolCallPart(name=name, tool_call_id=name, arguments={}) for name in "ab")
        said = Message(role=Role.ASSISTANT, content=(TextPart(text="so"), *calls))

        out = GEMINI.to_wire(
            Request(model=model, messages=(said, Message(role=Role.USER, content=(TextPart(text="go on"),)), said))
        )

        turns = [turn["parts"] for turn in out["contents"] if turn["role"] == "model"]
        assert [["thoughtSignature" in part for part in turn] for turn in turns] == [[False, signs, False]] * 2

    @pytest.mark.spec("GEM-26")
    @pytest.mark.parametrize(
        "own",
        [{"safetySettings": []}, {"labels": {}}, {"contents": [{"parts": [{"text": "", "thoughtSignature": "c2ln"}]}]}],
    )
    def test_no_signature_is_made_up_where_the_request_is_of_this_format(self, own: dict[str, Any]) -> None:
        call = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
        body = {**own, "contents": [*own.get("contents", ()), call]}

        assert GEMINI.to_wire(GEMINI.from_wire_request(body, model="gemini-3-pro")) == body

    @pytest.mark.spec("GEM-13")
    @pytest.mark.parametrize(
        "tools", [[{"functionDeclarations": []}], [{}], [{"functionDeclarations": None}], [{"googleSearch": None}, {}]]
    )
    def test_objects_without_a_tool_come_back(self, tools: list[Any]) -> None:
        assert kept(asked({"text": "hi"}, tools=tools)).tools == ()

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
    def test_the_client_runs_the_computer(self) -> None:
        tools = [{"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}, {"functionDeclarations": [{"name": "a"}]}]
        request = kept(asked({"text": "hi"}, tools=tools))
        assert [(tool.name, tool.executed_by) for tool in request.tools] == [("computerUse", "client"), ("a", "client")]

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
            ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, ToolChoice(mode="required", allowed=("f", "g"))),
            ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, ToolChoice(mode="auto", allowed=("f",))),
            ({"mode": "ANY", "allowedFunctionNames": []}, ToolChoice(mode="required")),
            ({"allowedFunctionNames": ["f"]}, ToolChoice(mode="auto", allowed=("f",))),
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
        assert request.response_schema == {"type": "object"}
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
