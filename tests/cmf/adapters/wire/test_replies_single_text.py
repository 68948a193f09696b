"""Answers in the shape in which a format says them: what its writer would join is one text before it is judged."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from cmf.adapters import FORMATS, get
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Request, Response
from cmf.views.iterate import iter_views

CALL = ToolCallPart(tool_call_id="c1", name="f", arguments=FrozenDict())
CITED = TextPart(text="b", extra=FrozenDict({"anthropic_messages": FrozenDict({"citations": None})}))
ONE, TWO = TextPart(text="a"), TextPart(text="b")
THOUGHT, SIGNED = ThinkingPart(text="x"), ThinkingPart(text="y", signature="s")


def answer(*parts: Part) -> Response:
    return Response(choices=(Choice(message=Message(role="assistant", content=parts)),), model="m")


@pytest.mark.spec("ADP-19")
@pytest.mark.parametrize(
    ("name", "parts", "left"),
    [
        ("openai_chat", (ONE, TWO), (TextPart(text="ab"),)),
        ("openrouter", (ONE, CITED), (TextPart(text="ab"),)),
        ("openai_chat", (ONE, CALL, TWO), (TextPart(text="ab"), CALL)),
        ("openai_chat", (THOUGHT, ONE, SIGNED, TWO), (ThinkingPart(text="xy"), TextPart(text="ab"))),
        ("ollama", (ONE, CALL, TWO), (TextPart(text="ab"), CALL)),
        ("ollama", (THOUGHT, SIGNED, ONE), (ThinkingPart(text="xy"), ONE)),
    ],
)  # fmt: skip
def test_what_a_format_has_one_place_for_is_one_text(name: str, parts: Any, left: Any) -> None:
    whole = get(name).in_one_text(answer(*parts))

    assert whole.message.content == left
    assert get(name).to_wire_response(whole) == get(name).to_wire_response(answer(*parts))


@pytest.mark.spec("ADP-19")
@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ((ONE, CITED, CALL, TWO), (TextPart(text="ab"), CALL, TWO)),
        ((THOUGHT, SIGNED, ONE, THOUGHT), (ThinkingPart(text="xy"), ONE, THOUGHT)),
    ],
)
def test_neighbours_in_a_stream_of_gemini_are_one_text_as_its_readers_join_them(parts: Any, left: Any) -> None:
    assert get("gemini").in_one_text(answer(*parts), streamed=True).message.content == left
    assert get("gemini").in_one_text(answer(*parts)).message.content == parts


@pytest.mark.spec("ADP-19")
@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
        ("openai_chat", {"content": "a", "refusal": "b", "reasoning": "x", "reasoning_content": "y"}),
        ("openrouter", {"content": "a", "reasoning_details": [{"type": "reasoning.text", "text": "x"}] * 2}),
    ],
)
def test_what_came_in_the_format_itself_stays_as_it_is(name: str, body: dict[str, Any]) -> None:
    message = {"role": "assistant", **body}
    given = get(name).from_wire_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    assert get(name).in_one_text(given) is given


@pytest.mark.spec("ADP-19", "OPR-6")
@pytest.mark.parametrize(("read_by", "written_by"), [("openrouter", "openai_chat"), ("openai_chat", "openrouter")])
def test_what_came_in_a_kindred_format_stays_as_it_is(read_by: str, written_by: str) -> None:
    message = {"role": "assistant", "content": "a", "refusal": "b"}
    given = get(read_by).from_wire_response({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    assert get(written_by).in_one_text(given) is given


@pytest.mark.spec("ADP-19")
def test_signed_neighbours_of_gemini_s_own_stay_apart() -> None:
    parts = [
        {"text": "a", "thoughtSignature": "c2ln"},
        {"text": "b"},
        {"text": "c", "thought": True, "thoughtSignature": "c2"},
    ]
    body = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}
    given = get("gemini").from_wire_response(body)

    assert get("gemini").in_one_text(given, streamed=True) is given
    assert json.dumps(get("gemini").to_wire_response(given), sort_keys=True) == json.dumps(body, sort_keys=True)


@pytest.mark.spec("ADP-19")
@pytest.mark.parametrize("name", ["anthropic_messages", "openai_responses", "aisdk", "mcp"])
def test_formats_with_several_texts_keep_them(name: str) -> None:
    given = answer(ONE, TWO)

    assert get(name).in_one_text(given, streamed=True) is given


# -- every format, and every place where texts stand side by side ------------------------------------------------------

APART = (TextPart(text="half"), TextPart(text="whole"))
HI = Message(role="user", content=(TextPart(text="hi"),))
ASKED = Message(role="assistant", content=(CALL,))
ANSWERED = ToolResultPart(tool_call_id="c1", tool_name="f", content=APART)


def alone(role: Role) -> list[Message]:
    return [Message(role=role, content=(part,)) for part in APART]


@pytest.mark.spec("ADP-8", "ADP-19")
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "messages",
    [
        [Message(role="user", content=APART)],
        alone(Role.USER),
        [Message(role="system", content=APART), HI],
        [*alone(Role.SYSTEM), HI],
        [HI, *alone(Role.DEVELOPER)],
        [HI, Message(role="assistant", content=APART), HI],
        [HI, *alone(Role.ASSISTANT), HI],
        [HI, ASKED, Message(role="tool", content=(ANSWERED,)), HI],
    ],
)
def test_no_request_is_written_with_texts_as_one_that_were_not_judged_as_one(
    name: str, messages: list[Message]
) -> None:
    request = Request(model="m", messages=messages)
    judged = {view.content for view in iter_views(request)}
    written: Any = ""
    with suppress(UnsupportedError):
        written = get(name).to_wire(request)

    assert "halfwhole" not in json.dumps(written) or "halfwhole" in judged


@pytest.mark.spec("ADP-8", "ADP-19")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "parts",
    [
        APART,
        (APART[0], CALL, APART[1]),
        tuple(ThinkingPart(text=part.text) for part in APART),
        (replace(CALL, executed_by="provider"), replace(ANSWERED, executed_by="provider")),
    ],
)
def test_no_answer_is_written_with_texts_as_one_that_it_did_not_hold_as_one(
    name: str, parts: tuple[Part, ...], streamed: bool
) -> None:
    adapter = get(name)
    whole = adapter.in_one_text(answer(*parts), streamed=streamed)
    held = [part.text for part in whole.message.content if isinstance(part, TextPart | ThinkingPart)]
    written: Any = ""
    with suppress(UnsupportedError):
        events = adapter.to_wire_events(whole) if streamed else []
        written = adapter.fold_events(events) if streamed else adapter.to_wire_response(whole)

    assert "halfwhole" not in json.dumps(written) or "halfwhole" in held
