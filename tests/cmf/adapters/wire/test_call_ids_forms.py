"""Ids of calls cross to formats that take only some, and come back. Spec: docs/spec/identity.md [ID-10]."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.call_ids import from_plain_form, plain_form, short_form
from cmf.adapters.wire.stream import ToolUseStart
from cmf.enums import Role
from cmf.json.frozen import FrozenDict
from cmf.message.message import Message, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Response

KIMI = "functions.get_weather:0"
SPELT = "cmf_functions-2Eget_weather-3A0"
LONG = "call|" + "x" * 90
TAKEN = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MESSAGES = get("anthropic_messages")
CHAT = get("openai_chat")
RESPONSES = get("openai_responses")

_ids = st.one_of(
    st.text(max_size=80),
    st.from_regex(r"(cmf_){0,3}[a-z.]{0,20}(-[0-9A-F]{2}){0,4}", fullmatch=True),
    st.from_regex(r"(cmf_|cmf-)?[a-zA-Z0-9_-]{0,70}", fullmatch=True),
)


@pytest.mark.spec("ID-10")
@given(_ids)
@example("cmf_cmf_")
def test_each_id_has_one_form_that_is_taken_and_leads_back_unless_it_is_too_long(call_id: str) -> None:
    written = plain_form(call_id)

    assert TAKEN.fullmatch(written)
    assert from_plain_form(written) == call_id or re.fullmatch(r"cmf-[0-9a-f]{36}", written)
    assert plain_form(from_plain_form(written)) == written


@pytest.mark.spec("ID-10")
@given(st.lists(_ids, unique=True, min_size=2, max_size=2))
def test_no_two_ids_share_a_form(pair: list[str]) -> None:
    assert plain_form(pair[0]) != plain_form(pair[1])
    assert short_form(pair[0]) != short_form(pair[1])


@pytest.mark.spec("ID-10")
@pytest.mark.parametrize("call_id", ["toolu_01A-b", "_1", "1a", "cmf_plain", "cmf_-FF", "cmf_a-2eb", "x" * 64])
def test_an_id_that_is_taken_and_stands_for_no_other_is_written_as_it_is(call_id: str) -> None:
    assert plain_form(call_id) == from_plain_form(call_id) == call_id


def _asked(*ids: str) -> dict[str, Any]:
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    results = [{"role": "tool", "tool_call_id": each, "content": f"of {each}"} for each in reversed(ids)]
    return {"model": "m", "messages": [{"role": "assistant", "content": None, "tool_calls": calls}, *results]}


@pytest.mark.spec("ID-10", "ANT-27")
def test_foreign_ids_cross_to_messages_with_their_results_and_back() -> None:
    ids = (KIMI, "a.b", "a:b", SPELT, "")

    crossed = MESSAGES.to_wire(CHAT.from_wire_request(_asked(*ids)))

    called = [block["id"] for block in crossed["messages"][0]["content"]]
    answered = {block["tool_use_id"]: block["content"] for block in crossed["messages"][1]["content"]}
    assert called[0] == SPELT
    assert all(map(TAKEN.fullmatch, called))
    assert [answered[each] for each in called] == [f"of {each}" for each in ids]
    back = CHAT.to_wire(MESSAGES.from_wire_request(crossed))["messages"]
    assert [call["id"] for call in back[0]["tool_calls"]] == list(ids)
    assert [each["tool_call_id"] for each in back[1:]] == list(reversed(ids))


@pytest.mark.spec("ID-10", "RSP-16")
@pytest.mark.parametrize("target", ["anthropic_messages", "openai_responses"])
def test_an_id_that_is_too_long_crosses_as_its_digest_alike_for_call_and_result(target: str) -> None:
    adapter = get(target)

    crossed = adapter.to_wire(CHAT.from_wire_request(_asked(LONG, LONG + "y")))

    parts = [part for message in adapter.from_wire_request(crossed).messages for part in message.content]
    named = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart | ToolResultPart)]
    assert len(set(named)) == 2
    assert named[:2] == named[:1:-1]
    assert all(re.fullmatch(r"cmf-[0-9a-f]{36}", str(each)) for each in named)
    assert adapter.to_wire(adapter.from_wire_request(crossed)) == crossed


@pytest.mark.spec("ANT-27")
def test_an_answer_names_its_calls_for_clients_whole_and_streamed() -> None:
    call = ToolCallPart(name="f", tool_call_id=KIMI, arguments=FrozenDict())
    answer = Response(choices=(Choice(message=Message(role=Role.ASSISTANT, content=(call,))),))

    body = MESSAGES.to_wire_response(answer)

    assert [block["id"] for block in body["content"]] == [SPELT]
    assert asyncio.run(_heard(MESSAGES.to_wire_events(answer))) == [KIMI]


async def _heard(events: list[WireEvent]) -> list[str | None]:
    async def arriving() -> AsyncIterator[WireEvent]:
        for event in events:
            yield event

    heard = MESSAGES.stream_response(arriving())
    return [event.tool_call_id async for event in heard if isinstance(event, ToolUseStart)]


_ODD_PAIRS = [
    (
        MESSAGES,
        {
            "model": "m",
            "max_tokens": 9,
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": KIMI, "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": KIMI, "content": "x"}]},
            ],
        },
    ),
    (
        RESPONSES,
        {
            "model": "m",
            "input": [
                {"type": "function_call", "call_id": LONG, "name": "f", "arguments": '{"a":1}'},
                {"type": "function_call_output", "call_id": LONG, "output": "x"},
            ],
        },
    ),
]


@pytest.mark.spec("ID-10", "ANT-27", "RSP-16")
@pytest.mark.parametrize(("adapter", "body"), _ODD_PAIRS, ids=["messages", "responses"])
def test_what_a_host_of_the_format_named_otherwise_goes_back_so_also_beside_an_edit(adapter: Any, body: Any) -> None:
    request = adapter.from_wire_request(body)
    said, answered = request.messages
    edited = Message(role=said.role, content=(said.content[0].edited(arguments=FrozenDict({"a": 2})),))

    again = adapter.to_wire(request)
    changed = adapter.to_wire(request.with_options(messages=(edited, answered)))

    assert again == body
    assert changed == _with_two(body)


def _with_two(body: Any) -> Any:
    """The body with 2 in place of the 1 of its call's arguments."""
    if "messages" in body:
        call = body["messages"][0]["content"][0] | {"input": {"a": 2}}
        return body | {"messages": [{"role": "assistant", "content": [call]}, body["messages"][1]]}
    return body | {"input": [body["input"][0] | {"arguments": '{"a":2}'}, body["input"][1]]}


@pytest.mark.spec("ANT-27")
def test_an_odd_id_of_a_host_is_no_loss_where_it_crosses(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        crossed = CHAT.to_wire(MESSAGES.from_wire_request(_ODD_PAIRS[0][1]))

    assert [message.get("tool_call_id") for message in crossed["messages"]] == [None, KIMI]
    assert caplog.messages == []
