"""Spec: docs/spec/adapters/ollama.md."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.wire.layout import spelling
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role, StopReason
from cmf.errors import CmfError, ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import (
    AudioPart,
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
from cmf.message.request import Choice, Request, Response, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.views.iterate import iter_views
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.ollama_bodies import OLLAMA, PNG, answered, asked, call, heard, kept, shown


class TestWire(Proof):
    format_name = "ollama"


class TestMessages:
    @pytest.mark.spec("OLL-1")
    def test_a_message_is_cut_in_its_order(self) -> None:
        wire = {
            "role": "assistant",
            "content": "so",
            "thinking": "hm",
            "images": [PNG],
            "tool_calls": [call("f")],
            "odd": 1,
        }
        message = kept(asked(wire)).messages[0]
        assert [type(part) for part in message.content] == [ThinkingPart, TextPart, ImagePart, ToolCallPart]
        assert message.extra == {"ollama": {"odd": 1}}

    @pytest.mark.spec("OLL-1")
    @pytest.mark.parametrize("wire", [{}, {"content": None}, {"content": ""}, {"images": [], "tool_calls": None}])
    def test_an_empty_message_has_no_parts(self, wire: dict[str, Any]) -> None:
        assert kept(asked({"role": "user", **wire})).messages[0].content == ()

    @pytest.mark.spec("OLL-2")
    @pytest.mark.parametrize("role", ["developer", "function", "", None, 3])
    def test_an_unknown_role_is_refused(self, role: Any) -> None:
        with pytest.raises(UnknownRoleError) as refusal:
            OLLAMA.from_wire_request(asked({"role": "user", "content": "a"}, {"role": role, "content": "b"}))
        assert refusal.value.path == "$.messages[1].role"

    @pytest.mark.spec("OLL-3")
    @pytest.mark.parametrize("function", [{}, {"name": 1}, {"name": "f", "arguments": [1]}, None])
    def test_a_call_without_a_usable_body_is_refused(self, function: Any) -> None:
        with pytest.raises(ShapeError) as refusal:
            OLLAMA.from_wire_request(asked({"role": "assistant", "tool_calls": [{"function": function}]}))
        assert refusal.value.path.startswith("$.messages[0].tool_calls[0].function")

    @pytest.mark.spec("OLL-3")
    @pytest.mark.parametrize("text", ["", "{}", '{"a":1}', "no json"])
    def test_arguments_as_text_are_kept_as_they_are(self, text: str) -> None:
        wire = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}
        part = kept(asked(wire)).messages[0].content[0]
        assert isinstance(part, ToolCallPart)
        assert (part.arguments, part.arguments_raw) == (None, text)

    @pytest.mark.spec("OLL-3")
    @pytest.mark.parametrize("more", [{}, {"id": "call_1"}, {"id": None}, {"type": "other"}])
    def test_nothing_is_invented(self, more: dict[str, Any]) -> None:
        wire = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "index": 7}, **more}]}
        part = kept(asked(wire)).messages[0].content[0]
        assert isinstance(part, ToolCallPart)
        assert part.tool_call_id == more.get("id")
        heard(answered(tool_calls=[{"function": {"name": "f", "arguments": {}}, **more}]))

    @pytest.mark.spec("OLL-3")
    def test_a_call_from_elsewhere_has_a_type_and_no_id_or_index(self) -> None:
        said = Message(role=Role.ASSISTANT, content=(ToolCallPart(name="f", arguments={"a": 1}),))
        (message,) = OLLAMA.to_wire(Request(messages=(said,)))["messages"]
        assert message["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]

    @pytest.mark.spec("OLL-4")
    def test_results_are_of_the_tools_that_were_called(self) -> None:
        turns = [
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b"), call("c", id="1"), call("d")]},
            {"role": "tool", "content": "x", "tool_name": "b"},
            {"role": "tool", "content": "x", "tool_call_id": "1"},
            {"role": "tool", "content": "x"},
            {"role": "tool", "content": "x", "name": "old"},
            {"role": "tool", "content": "x"},
            {"role": "tool", "content": "x"},
        ]
        results = [message.content[0] for message in kept(asked(*turns)).messages[1:]]
        names = [part.tool_name for part in results if isinstance(part, ToolResultPart)]
        assert names == ["b", "c", "a", "old", "d", None]

    @pytest.mark.spec("OLL-4")
    def test_a_result_with_an_image_is_a_result_of_parts(self) -> None:
        request = kept(asked({"role": "tool", "content": "see", "tool_name": "f", "images": [PNG]}))
        assert [view.kind.value for view in iter_views(request)] == ["request", "tool_result", "text", "image"]

    @pytest.mark.spec("OLL-5")
    def test_the_true_type_of_an_image_is_shown(self) -> None:
        request = kept(asked({"role": "user", "content": "", "images": [PNG]}))
        assert '"sniffed_type":"image/png"' in shown(request)

    @pytest.mark.spec("OLL-5")
    def test_an_image_that_is_no_text_is_refused(self) -> None:
        with pytest.raises(ShapeError):
            OLLAMA.from_wire_request(asked({"role": "user", "content": "", "images": [{"url": "x"}]}))


class TestRequests:
    @pytest.mark.spec("OLL-6")
    @pytest.mark.parametrize(("said", "meant"), [({}, True), ({"stream": None}, True), ({"stream": False}, False)])
    def test_a_request_streams_unless_it_says_not_to(self, said: dict[str, Any], meant: bool) -> None:
        body = {"model": "m", "messages": [{"role": "user", "content": "a"}], **said}
        request = kept(body)
        assert request.stream is meant
        assert OLLAMA.to_wire(replace(request, stream=False))["stream"] is False

    @pytest.mark.spec("OLL-6")
    def test_a_request_from_elsewhere_does_not_stream_unasked(self) -> None:
        assert OLLAMA.to_wire(Request(model="m"))["stream"] is False
        assert OLLAMA.to_http(Request(model="m")).path == "/api/chat"

    @pytest.mark.spec("OLL-7")
    def test_options_are_sampling_and_the_rest_is_shown(self) -> None:
        options = {"temperature": 0, "num_predict": 5, "top_k": 1.0, "stop": ["x"], "think": True, "odd": "secret"}
        request = kept(asked(options=options))
        assert (request.sampling.temperature, request.sampling.max_output_tokens) == (0, 5)
        assert "secret" in shown(request)

    @pytest.mark.spec("OLL-7")
    @pytest.mark.parametrize("options", [{}, None, {"num_predict": 5.5}, {"stop": "x"}, {"seed": True}])
    def test_odd_options_come_back(self, options: Any) -> None:
        kept(asked(options=options))

    @pytest.mark.spec("OLL-8")
    @pytest.mark.parametrize("wire", ["json", "", None, {}, {"type": "object"}, 5])
    def test_a_format_that_is_an_object_is_the_schema(self, wire: Any) -> None:
        request = kept(asked(format=wire))
        assert request.response_schema == (wire if isinstance(wire, dict) else None)

    @pytest.mark.spec("OLL-8")
    @pytest.mark.parametrize(("think", "effort"), [(True, None), (False, None), (None, None), ("high", "high")])
    def test_how_hard_to_think(self, think: Any, effort: str | None) -> None:
        request = kept(asked(think=think, keep_alive="5m"))
        assert request.reasoning_effort == effort
        assert "5m" in shown(request)

    @pytest.mark.spec("OLL-9")
    def test_tools_come_back(self) -> None:
        tools = [
            {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, "strict": True}},
            {"function": {"name": "g", "description": None}},
            {"type": "hosted", "server": "secret"},
        ]
        request = kept(asked(tools=tools))
        assert [(tool.name, tool.executed_by) for tool in request.tools] == [
            ("f", "client"), ("g", "client"), ("hosted", "provider"),
        ]  # fmt: skip
        assert "secret" in shown(request)


class TestAnswers:
    @pytest.mark.spec("OLL-10")
    @pytest.mark.parametrize(
        ("reason", "stop"),
        [
            ("stop", StopReason.END),
            ("length", StopReason.MAX_TOKENS),
            ("load", StopReason.OTHER),
            ("unload", StopReason.OTHER),
            ("custom", StopReason.OTHER),
            (None, None),
        ],
    )
    def test_reasons_of_the_end(self, reason: str | None, stop: StopReason | None) -> None:
        assert heard(answered(content="a") | {"done_reason": reason}).choices[0].stop_reason == stop

    @pytest.mark.spec("OLL-10")
    def test_a_stop_with_a_call_is_a_call(self) -> None:
        choice = heard(answered(tool_calls=[{"function": {"name": "f", "arguments": {}}}])).choices[0]
        assert (choice.stop_reason, choice.raw_stop_reason) == (StopReason.CALL, "stop")

    @pytest.mark.spec("OLL-10")
    @pytest.mark.parametrize(
        "counts", [{"prompt_eval_count": 3, "eval_count": 4}, {"eval_count": 4}, {"eval_count": -1}]
    )
    def test_usage_comes_back(self, counts: dict[str, int]) -> None:
        usage = heard(answered(content="a") | counts | {"total_duration": 5, "created_at": "now"}).usage
        assert (usage.output_tokens if usage else None) == (4 if counts["eval_count"] == 4 else None)

    @pytest.mark.spec("OLL-10")
    @pytest.mark.parametrize(
        ("done", "status"), [(True, "complete"), (False, "partial"), (5, "partial"), (None, "partial")]
    )
    def test_what_is_not_done_is_partial(self, done: Any, status: str) -> None:
        assert heard(answered(content="a") | {"done": done}).message.status.value == status

    @pytest.mark.spec("OLL-11")
    @pytest.mark.parametrize(
        "part",
        [
            ImagePart(type="url", data="https://x/a.png"),
            ImagePart(type="file_ref", data="file-abc"),
            AudioPart(type="base64", data="AAAA", media_type="audio/wav"),
        ],
    )
    def test_media_that_ollama_cannot_take_are_refused(self, part: Any) -> None:
        for content in ((part,), (ToolResultPart(tool_name="f", content=(part,)),)):
            with pytest.raises(UnsupportedError):
                OLLAMA.to_wire(Request(messages=(Message(role=Role.USER, content=content),)))

    @pytest.mark.spec("OLL-11")
    def test_a_reply_with_the_result_of_a_tool_is_refused(self) -> None:
        said = Message(role=Role.ASSISTANT, content=(TextPart(text="a"), ToolResultPart(tool_name="f", content="b")))
        with pytest.raises(UnsupportedError):
            OLLAMA.to_wire_response(Response(choices=(Choice(message=said),)))

    @pytest.mark.spec("OLL-11")
    def test_tools_that_ollama_cannot_take_are_refused(self) -> None:
        with pytest.raises(UnsupportedError):
            OLLAMA.to_wire(Request(tools=(ToolDefinition(name="w", type="web_search", executed_by="provider"),)))
        for choice in (ToolChoice(mode="required"), ToolChoice(mode="tool", name="f")):
            with pytest.raises(UnsupportedError):
                OLLAMA.to_wire(Request(tools=(ToolDefinition(name="f"),), tool_choice=choice))

    @pytest.mark.spec("OLL-11")
    def test_several_choices_are_refused(self) -> None:
        choice = Choice(message=Message(role=Role.ASSISTANT, content=()))
        with pytest.raises(UnsupportedError):
            OLLAMA.to_wire_response(Response(choices=(choice, choice)))

    @pytest.mark.spec("OLL-11")
    def test_tools_that_are_not_to_be_called_are_not_offered(self) -> None:
        with collecting() as losses:
            body = OLLAMA.to_wire(Request(tools=(ToolDefinition(name="f"),), tool_choice=ToolChoice(mode="none")))
        assert "tools" not in body
        assert [loss.block_type for loss in losses] == ["tools"]

    @pytest.mark.spec("OLL-11")
    def test_what_ollama_cannot_say_is_dropped_with_records(self) -> None:
        content = (
            RedactedThinkingPart(data="blob"),
            ThinkingPart(text="hm", signature="theirs"),
            OpaquePart(provider="gemini", type="odd", value={"a": "b"}),
            ToolCallPart(name="web_search", arguments={}, executed_by="provider"),
            TextPart(text="one"),
            TextPart(text="two"),
            ImagePart(type="url", data=f"data:image/png;base64,{PNG}"),
        )
        with collecting() as losses:
            out = OLLAMA.to_wire(Request(messages=(Message(role=Role.ASSISTANT, content=content),)))
        assert out["messages"] == [{"role": "assistant", "content": "onetwo", "thinking": "hm", "images": [PNG]}]
        assert [loss.block_type for loss in losses] == [
            "redacted_thinking", "thinking_signature", "opaque", "tool_call", "text",
        ]  # fmt: skip

    @pytest.mark.spec("OLL-11")
    def test_results_from_elsewhere_get_their_names_and_are_written_as_json(self) -> None:
        messages = (
            Message(role=Role.ASSISTANT, content=(ToolCallPart(tool_call_id="1", name="f", arguments={"a": 1}),)),
            Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="1", content={"b": [2]}),)),
        )
        assert OLLAMA.to_wire(Request(messages=messages))["messages"] == [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "tool_name": "f", "tool_call_id": "1", "content": '{"b":[2]}'},
        ]

    @pytest.mark.spec("OLL-11")
    def test_that_a_result_is_an_error_is_dropped_with_a_record(self) -> None:
        part = ToolResultPart(tool_name="f", content="no", is_error=True, extra={"openai_chat": {"odd": 1}})
        with collecting() as losses:
            OLLAMA.to_wire(Request(messages=(Message(role=Role.TOOL, content=(part,)),)))
        assert [loss.block_type for loss in losses] == ["tool_result", "is_error"]

    @pytest.mark.spec("OLL-1")
    @pytest.mark.parametrize("role", ["tool", "user", "odd", None])
    def test_an_answer_is_the_assistants_whatever_role_it_names(self, role: str | None) -> None:
        assert heard(answered(content="a", role=role)).message.role is Role.ASSISTANT

    @pytest.mark.spec("OLL-11")
    def test_an_edited_message_is_written_without_what_was_removed(self) -> None:
        request = kept(asked({"role": "user", "content": "secret", "images": []}))
        message = replace(request.messages[0], content=(TextPart(text="***"),))
        assert OLLAMA.to_wire(replace(request, messages=(message,)))["messages"] == [
            {"role": "user", "content": "***", "images": []}
        ]

    @pytest.mark.spec("OLL-12")
    @pytest.mark.parametrize("body", [{"detail": "no"}, {}, {"status": "ok"}, {"model": "m", "done": True}])
    def test_a_body_of_another_service_is_an_error_and_no_empty_answer(self, body: Any) -> None:
        response = heard(body)
        assert response.error is not None
        assert response.choices == ()
        assert OLLAMA.to_wire_response(response) == body

    @pytest.mark.spec("OLL-12")
    @pytest.mark.parametrize("error", ["model not found", {"message": "odd"}, 5, ""])
    def test_an_error_is_a_response(self, error: Any) -> None:
        response = heard({"error": error})
        assert response.error is not None
        assert OLLAMA.from_wire_response(OLLAMA.fold_events([{"data": {"error": error}}])).error == response.error

    @pytest.mark.spec("OLL-13")
    def test_what_cannot_be_written_back_is_refused(self) -> None:
        with pytest.raises(ShapeError) as refusal:
            spelling({"key": "said"}, {"key": "meant"}, "$")
        assert refusal.value.code == "shape.not-read-whole"

    @pytest.mark.spec("OLL-13")
    @pytest.mark.parametrize("body", [[], "x", None, {"messages": {"a": "b"}}, {"stream": "yes"}, {"options": []}])
    def test_bodies_of_another_shape_are_refused(self, body: Any) -> None:
        with pytest.raises(ShapeError):
            OLLAMA.from_wire_request(body)


@pytest.mark.spec("OLL-11")
def test_a_resource_is_written_as_its_text_and_mixed_turns_are_split() -> None:
    content = (
        ToolResultPart(tool_name="f", content=(TextPart(text="a"), ResourceRefPart(uri="file:///x"))),
        ToolResultPart(tool_name="g", content=(ResourcePart(uri="file:///b", content="b"),)),
        ResourcePart(uri="file:///a", content="text"),
    )
    with collecting() as losses:
        out = OLLAMA.to_wire(Request(messages=(Message(role=Role.DEVELOPER, content=content),)))
    assert out["messages"] == [
        {"role": "tool", "content": "a", "tool_name": "f"},
        {"role": "tool", "content": "b", "tool_name": "g"},
        {"role": "system", "content": "text"},
    ]
    assert [loss.block_type for loss in losses] == ["resource_ref", "resource_address", "resource_address"]


@pytest.mark.spec("OLL-10")
def test_what_a_model_can_do_is_declared() -> None:
    assert not OLLAMA.capabilities("unheard-of:1b").supports_images
    assert OLLAMA.estimate_input_tokens(OLLAMA.from_wire_request(asked({"role": "user", "content": "a" * 400}))) >= 100


KEYS = st.sampled_from([
    "messages", "message", "role", "content", "thinking", "tool_calls", "function", "name", "arguments", "images",
    "tools", "options", "format", "stream", "done", "done_reason", "error", "tool_name", "eval_count",
])  # fmt: skip
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=3)
    | st.sampled_from(["user", "tool", "assistant", "stop"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.spec("OLL-13")
@given(JSON)
def test_any_json_is_refused_or_comes_back(body: Any) -> None:
    for read, write in (
        (OLLAMA.from_wire_request, OLLAMA.to_wire),
        (OLLAMA.from_wire_response, OLLAMA.to_wire_response),
    ):
        try:
            value: Any = read(body)
        except CmfError:
            continue
        assert same_spelling(write(value), body)
