"""The quick writer writes what the general one writes, or leaves it to that one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.anthropic_messages.quick import quick_turns
from cmf.adapters.anthropic_messages.request import _encode_turns
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, same_spelling
from cmf.json.value import replace
from cmf.message.message import ImagePart, Layout, Message, Part, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.message.request import Request
from tests.cmf.adapters.wiredata import records

TEXT = st.sampled_from(["", "a", "é"])
EXTRA = st.sampled_from([None, None, None, FrozenDict(), FrozenDict(openai_chat={"x": 1})])
BY = st.sampled_from(["client", "client", "client", "provider"])
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, text=TEXT, extra=EXTRA),
    st.builds(
        ToolCallPart,
        tool_call_id=st.sampled_from([None, "c", "d"]),
        name=TEXT,
        arguments=st.sampled_from([None, {}, {"a": [1.0]}]),
        arguments_raw=st.sampled_from([None, "", "{"]),
        executed_by=BY,
    ),
    st.builds(
        ToolResultPart,
        tool_call_id=st.sampled_from([None, "c", "d"]),
        content=st.sampled_from([None, "", "x", {"a": 1}, (TextPart(text="y"),)]),
        is_error=st.booleans(),
        executed_by=BY,
    ),
    st.just(ThinkingPart(text="t")),
    st.just(ImagePart(type="url", data="https://x.test/a.png")),
)
LAYOUTS = st.sampled_from(
    [None, None, None, Layout(format="openai_chat", shape=FrozenDict(a=1)), Layout(format="anthropic_messages")]
)
MESSAGES = st.lists(
    st.builds(
        lambda layout, **fields: replace(Message(**fields), provider_raw=layout),
        layout=LAYOUTS,
        role=st.sampled_from(Role),
        content=st.lists(PARTS, max_size=3).map(tuple),
        extra=EXTRA,
    ),
    max_size=5,
)


@pytest.mark.spec("ANT-2", "ANT-16")
@given(MESSAGES)
def test_the_quick_and_the_general_writer_agree(messages: list[Message]) -> None:
    quick = quick_turns(messages)
    if quick is None:
        return

    with collecting() as losses:
        system, listed = _encode_turns(Request(model="claude-x", messages=tuple(messages)))

    assert same_spelling(quick, [system or [], listed])
    assert losses == []  # so none is missing from the quick one


def _asked(message: dict[str, Any], *more: dict[str, Any]) -> Any:
    return get("openai_chat").from_wire_request({"messages": [message, *more]}).messages


@pytest.mark.parametrize(
    ("messages", "is_quick"),
    [
        (_asked({"role": "user", "content": "x"}), True),
        (_asked({"role": "system", "content": "x"}, {"role": "developer", "content": "y"}), True),
        (_asked({"role": "user", "content": "x"}, {"role": "system", "content": "y"}), False),
        (_asked({"role": "user", "content": [{"type": "text", "text": "x"}]}), True),
        (_asked({"role": "user", "content": "x", "name": "y"}), False),
        (_asked({"role": "tool", "content": "x"}), False),
        ([Message(role=Role.ASSISTANT, content=(ToolCallPart(name="f"),))], False),
        ([Message(role=Role.ASSISTANT, content=(ThinkingPart(text="x"),))], False),
    ],
)
def test_only_the_plainest_messages_are_written_quickly(messages: Any, is_quick: bool) -> None:
    assert (quick_turns(messages) is not None) is is_quick


def test_most_recorded_conversations_cross_quickly() -> None:
    source = get("openai_chat")
    requests = []
    for record in records("openai_chat"):
        try:
            requests.append(source.from_wire_request(record.request))
        except CmfError:
            continue

    quick = [request for request in requests if quick_turns(request.messages) is not None]

    assert len(quick) > len(requests) * 0.5
