"""Spec: docs/spec/adapters/ollama.md."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.ollama import LiveDecoder
from cmf.adapters.wire.stream import TextDelta, ThinkingDelta, ToolUseStart
from cmf.enums import MessageStatus
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import Message, TextPart, ThinkingPart, ToolCallPart
from tests.cmf.adapters.ollama_bodies import OLLAMA, answered, heard, shown


class TestStreams:
    @pytest.mark.spec("OLL-14")
    def test_lines_are_joined(self) -> None:
        pieces: list[dict[str, Any]] = [
            {"content": "", "thinking": "h"},
            {"content": "", "thinking": "m"},
            {"content": "s"},
            {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]},
            {"content": "o", "tool_calls": [{"function": {"name": "g", "arguments": {}}}]},
        ]
        lines: list[Any] = [{"data": {"message": {"role": "assistant", **piece}, "done": False}} for piece in pieces]
        lines.append({"data": answered()})
        message = OLLAMA.from_wire_response(OLLAMA.fold_events(lines)).message
        assert [getattr(part, "text", None) or getattr(part, "name", "") for part in message.content] == [
            "hm",
            "so",
            "f",
            "g",
        ]
        assert message.status is MessageStatus.COMPLETE

    @pytest.mark.spec("OLL-14")
    def test_null_takes_nothing_back(self) -> None:
        calls = [{"function": {"name": "f", "arguments": {}}}]
        said = {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls}
        lines: list[Any] = [{"data": {"message": said, "logprobs": [{"token": "hm"}], "done": False}}]
        lines.append({"data": answered(thinking=None, tool_calls=None) | {"logprobs": None}})
        body = OLLAMA.fold_events(lines)
        assert body == answered(thinking="hm", tool_calls=calls) | {"logprobs": [{"token": "hm"}]}

    @pytest.mark.spec("OLL-14")
    def test_the_probabilities_of_all_lines_are_in_the_answer(self) -> None:
        tokens = [[{"token": text, "logprob": -0.5}] for text in ("a", "b")]
        lines: list[Any] = [
            {"data": {"message": {"role": "assistant", "content": said[0]["token"]}, "logprobs": said, "done": False}}
            for said in tokens
        ]
        body = OLLAMA.fold_events([*lines, {"data": answered()}])
        assert body["logprobs"] == [*tokens[0], *tokens[1]]
        assert OLLAMA.fold_events(OLLAMA.to_wire_events(heard(body))) == body

    @pytest.mark.spec("OLL-14")
    @given(
        content=st.sampled_from([None, "", "a"]),
        thinking=st.sampled_from([None, "", "b"]),
        calls=st.lists(st.just({"function": {"name": "f", "arguments": {"x": 1}}}), max_size=2),
        done=st.booleans(),
    )
    def test_any_answer_streams_back_to_itself(self, content: Any, thinking: Any, calls: list[Any], done: bool) -> None:
        body = answered(content=content, thinking=thinking, tool_calls=calls) | {"done": done}
        again = OLLAMA.fold_events(OLLAMA.to_wire_events(heard(body)))
        assert again.pop("cmf_partial", False) is not done
        assert again == body

    @pytest.mark.spec("OLL-15")
    def test_what_a_later_line_replaced_is_shown_and_not_sent(self) -> None:
        lines: list[Any] = [
            {"data": {"model": "first", "created_at": "2025-01-01T00:00:00.123456789Z"}},
            {"data": {"created_at": "not a moment"}},
            {"data": "odd line"},
            {"data": answered(content="a") | {"model": "last", "created_at": "2025-01-01T00:00:01Z"}},
        ]
        body = OLLAMA.fold_events(lines)
        assert body["cmf_superseded"] == [{"model": "first"}, {"created_at": "not a moment"}]
        response = OLLAMA.from_wire_response(body)
        for text in ("not a moment", "first", "odd line"):
            assert text in shown(response)
        assert not any(key.startswith("cmf_") for key in OLLAMA.to_wire_response(response))

    @pytest.mark.spec("OLL-15")
    @pytest.mark.parametrize(
        "data", [5, {"message": 5}, {"message": {"content": 5, "tool_calls": [5, {"function": 5}]}}]
    )
    def test_the_ear_never_raises(self, data: Any) -> None:
        assert list(LiveDecoder()({"data": data})) == []

    @pytest.mark.spec("OLL-14")
    def test_a_stream_is_reported_as_it_arrives(self) -> None:
        line = answered(content="a", thinking="b", tool_calls=[{"id": "1", "function": {"name": "f"}}])
        assert list(LiveDecoder()({"data": line})) == [
            ThinkingDelta(text="b"), TextDelta(text="a"), ToolUseStart(index=0, tool_call_id="1", name="f"),
        ]  # fmt: skip

    @pytest.mark.spec("OLL-15")
    def test_a_message_beside_what_is_none_is_shown(self) -> None:
        body = OLLAMA.fold_events([{"data": {"message": "odd"}}, {"data": answered(content="a")}])
        assert body["message"] == "odd"
        assert body["cmf_unrecognized"] == [{"message": answered(content="a")["message"]}]


@pytest.mark.spec("OLL-16")
@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "response": "hi", "thinking": "hm", "done": True, "done_reason": "stop", "context": [1, 2]},
        {"model": "m", "response": "", "done": True, "done_reason": "load"},
        {"response": "hi", "thinking": None, "done": False},
    ],
)
def test_a_generated_answer_is_a_message_and_goes_back_as_it_was(body: dict[str, Any]) -> None:
    response = OLLAMA.from_wire_response(body)

    said = [part.text for part in response.message.content if isinstance(part, TextPart | ThinkingPart)]
    assert said == [text for text in (body.get("thinking"), body["response"]) if text]
    assert (response.message.status is MessageStatus.COMPLETE) is body["done"]
    assert OLLAMA.to_wire_response(response) == body
    whole = replace(response, choices=(replace(response.choices[0], message=_calling(response.message)),))
    assert "message" in OLLAMA.to_wire_response(whole)


def _calling(message: Message) -> Message:
    return replace(message, content=(*message.content, ToolCallPart(name="f", arguments=FrozenDict())))


@pytest.mark.spec("OLL-16")
def test_lines_of_generate_are_joined_and_reported() -> None:
    pieces = [
        {"thinking": "h", "response": ""},
        {"thinking": "m", "response": ""},
        {"response": "s"},
        {"response": "o"},
    ]
    lines: list[Any] = [{"data": {"model": "m", **piece, "done": False}} for piece in pieces]
    lines.append({"data": {"model": "m", "response": "", "done": True, "done_reason": "stop"}})

    body = OLLAMA.fold_events(lines)
    decode = LiveDecoder()

    assert body == {"model": "m", "thinking": "hm", "response": "so", "done": True, "done_reason": "stop"}
    assert OLLAMA.fold_events(OLLAMA.to_wire_events(OLLAMA.from_wire_response(body))) == body
    assert [event for line in lines for event in decode(line)] == [
        ThinkingDelta(text="h"), ThinkingDelta(text="m"), TextDelta(text="s"), TextDelta(text="o"),
    ]  # fmt: skip


@pytest.mark.spec("OLL-16")
def test_a_bare_prompt_goes_where_it_is_answered() -> None:
    asked = {"model": "m", "prompt": "why", "system": "", "stream": False}

    request = OLLAMA.from_wire_request(asked)

    assert OLLAMA.to_wire(request) == asked
    assert OLLAMA.to_http(request).path == "/api/generate"
    assert OLLAMA.to_http(OLLAMA.from_wire_request({"model": "m", "messages": []})).path == "/api/chat"
