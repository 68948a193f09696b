"""The quick reader reads what the general one reads, or leaves it to that one."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.chat_completions.decode import decoded_message
from cmf.adapters.chat_completions.dialect import Dialect
from cmf.adapters.chat_completions.encode import wire_messages, wire_request
from cmf.adapters.chat_completions.envelope import decoded_request
from cmf.adapters.chat_completions.quick import at_length, quick_messages, quick_wire
from cmf.adapters.chat_completions.quick_head import quick_head, quick_tools, with_messages
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.layout import envelope_layout, respell, with_layout, with_spelling
from cmf.enums import Role
from cmf.errors import CmfError
from cmf.json.frozen import FrozenDict, freeze, same_spelling
from cmf.json.value import replace
from cmf.message.message import Layout, Message, TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from tests.cmf.adapters.wiredata import records

DIALECT = Dialect(format="openai_chat", path="/", reasoning_key="reasoning", nested_effort=False, video=False)
TEXT = st.text(max_size=4) | st.sampled_from(["{}", '{"a": 1}', '{"a":1.0}', '{"a":1,"a":2}', "[1]", "é"])
ODD = st.none() | st.integers(0, 1) | st.just([]) | st.just({})
FUNCTION = st.fixed_dictionaries({"name": TEXT, "arguments": TEXT}, optional={"strict": ODD})
CALL = st.fixed_dictionaries({"id": TEXT, "type": st.sampled_from(["function", "custom"]), "function": FUNCTION})
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function"])},
    optional={
        "content": TEXT | ODD,
        "tool_call_id": TEXT,
        "tool_calls": st.lists(CALL, max_size=2) | ODD,
        "name": TEXT | ODD,
    },
)


def quick_message(raw: Any, index: int, format_name: str, names: dict[str, str]) -> Any:
    """The message at an index as the quick reader reads it; None where it asks for the general one."""
    return quick_messages([*[None] * index, raw], format_name, names, lambda *_: None)[-1]  # type: ignore[arg-type]


def _general(raw: Any, names: dict[str, str]) -> Any:
    decoded = decoded_message(freeze(raw), "$", DIALECT, names)
    return with_spelling(
        (decoded,),
        raw,
        format_name="openai_chat",
        index=3,
        path="$",
        encode=lambda group: wire_messages(group[0], DIALECT, CallIds())[0],
    )[0]


def _spelt(arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.spec("OAC-2", "OAC-7")
@given(MESSAGE)
@example({"role": "assistant", "content": "x", "tool_calls": [_spelt('{"a": 1}')]})
def test_the_quick_and_the_general_reader_agree(raw: Any) -> None:
    quick_names, names = {"c": "f"}, {"c": "f"}
    quick = quick_message(raw, 3, "openai_chat", quick_names)
    if quick is None:
        return

    general = _general(raw, names)

    layout = quick.provider_raw and at_length(quick.provider_raw)
    assert (quick, layout, quick_names) == (general, general.provider_raw, names)


@pytest.mark.spec("ADP-6", "OAC-7")
@given(raw=MESSAGE, arguments=st.none() | st.just({"a": 1}) | st.just({"b": "x"}), text=st.none() | TEXT)
def test_the_quick_and_the_general_writer_agree_after_edits_too(raw: Any, arguments: Any, text: Any) -> None:
    try:
        message = _general(raw, {})
    except CmfError:
        return
    parts = [_edited(part, arguments, text) for part in message.content]
    edited = replace(message, content=tuple(parts))

    quick = quick_wire(edited, "openai_chat")

    if quick is None:
        return
    general = respell(
        (edited,),
        format_name="openai_chat",
        encode=lambda group: wire_messages(group[0], DIALECT, CallIds())[0],
        decode=lambda spelt: (decoded_message(freeze(spelt), "$", DIALECT, {}),),
    )
    assert same_spelling(quick, general)


def _edited(part: Any, arguments: Any, text: Any) -> Any:
    if isinstance(part, ToolCallPart) and arguments is not None:
        return part.edited(arguments=FrozenDict(arguments), arguments_raw=None)
    return part.edited(text=text) if isinstance(part, TextPart) and text is not None else part


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
@pytest.mark.parametrize("key", ["content", "tool_call_id"])
def test_the_quick_reader_leaves_broken_text_to_the_general_one(key: str, text: str) -> None:
    raw = {"role": "tool", "content": "x", "tool_call_id": "c", key: text}

    assert quick_message(raw, 0, "openai_chat", {}) is None


def test_most_recorded_messages_are_read_quickly() -> None:
    messages = [message for record in records("openai_chat") for message in (record.request or {}).get("messages", ())]

    quick = [message for message in messages if quick_message(message, 0, "openai_chat", {}) is not None]

    assert len(quick) > len(messages) * 0.7


def _called(call_id: str, name: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


CALLED = _spelt('{"a":1}')


@pytest.mark.parametrize(
    ("raw", "is_quick"),
    [
        ({"role": "user", "content": "hi"}, True),
        ({"role": "user", "content": ""}, False),
        ({"role": "user", "content": "hi", "name": "x"}, False),
        ({"role": 5, "content": "hi"}, False),
        (["user", "hi"], False),
        ({"role": "tool", "tool_call_id": "c", "content": ""}, True),
        ({"role": "tool", "tool_call_id": "c", "content": []}, False),
        ({"role": "user", "tool_calls": [CALLED]}, False),
        ({"role": "assistant", "tool_calls": [CALLED]}, True),
        ({"role": "assistant", "content": None, "tool_calls": [CALLED, CALLED]}, True),
        ({"role": "assistant", "content": "x", "tool_calls": [CALLED]}, True),
        ({"role": "assistant", "content": "", "tool_calls": [CALLED]}, False),
        ({"role": "assistant", "content": [], "tool_calls": [CALLED]}, False),
        ({"role": "assistant", "content": "x", "tool_calls": [_called("c", "\ud800")]}, False),
        ({"role": "assistant", "content": "x", "tool_calls": [_called("\ud800", "f")]}, False),
        ({"role": "assistant", "content": None, "tool_calls": []}, False),
        ({"role": "assistant", "content": None, "tool_calls": [{**CALLED, "index": 0}]}, False),
        ({"role": "assistant", "content": None, "tool_calls": [{**CALLED, "id": None}]}, False),
        ({"role": "assistant", "content": None, "tool_calls": [{**CALLED, "function": {"name": "f", "x": 1}}]}, False),
        ({"role": "assistant", "content": None, "tool_calls": [_spelt("{ }"), _spelt("{"), _spelt("[]")]}, True),
        ({"role": "assistant", "content": None, "tool_calls": [CALLED, _spelt("")]}, False),
    ],
)
def test_only_the_plainest_shapes_are_read_quickly(raw: Any, is_quick: bool) -> None:
    message = quick_message(raw, 0, "openai_chat", {})

    assert (message is not None) is is_quick
    if message is not None:
        assert quick_wire(message, "openai_chat") == raw


@pytest.mark.spec("ADP-6")
@pytest.mark.parametrize(
    "shape",
    [
        {"at": {"tool_calls": {"at": {"0": {"at": {"function": {"at": {"arguments": {"json": '{"a":2}'}}}}}}}}},
        {"at": {"tool_calls": {"at": {"0": {"at": {"function": {"at": {"name": {"json": '{"a":1}'}}}}}}}}},
        {"at": {"tool_calls": {"at": {"0": {"at": {"function": {"set": None}}}}}}},
        {"at": {"tool_calls": {"at": {"0": {"cut": True}}}}},
        {"at": {"content": {"set": 5}}},
        {"at": {"role": {"cut": True}}},
    ],
)
def test_the_quick_writer_leaves_every_other_layout_to_the_general_one(shape: dict[str, Any]) -> None:
    message = quick_message({"role": "assistant", "content": None, "tool_calls": [CALLED]}, 0, "openai_chat", {})
    assert message is not None

    forged = with_layout(message, Layout(format="openai_chat", shape=FrozenDict(shape)))

    assert quick_wire(forged, "openai_chat") is None


@pytest.mark.parametrize(
    "message",
    [
        Message(role=Role.USER, content=()),
        Message(role=Role.USER, content=(TextPart(text=""),)),
        Message(role=Role.USER, content=(TextPart(text="a"), TextPart(text="b"))),
        Message(role=Role.TOOL, content=(TextPart(text="a"),)),
        Message(role=Role.TOOL, content=(ToolResultPart(content="a"),)),
        Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content="a", executed_by="provider"),)),
        Message(role=Role.USER, content=(ToolResultPart(tool_call_id="c", content="a"),)),
        Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content="a", is_error=True),)),
        Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id="c", content=(TextPart(text="a"),)),)),
        Message(role=Role.ASSISTANT, content=(ToolCallPart(name="f"),)),
        Message(role=Role.ASSISTANT, content=(TextPart(text=""), ToolCallPart(tool_call_id="c", name="f"))),
        Message(role=Role.ASSISTANT, content=(ThinkingPart(text="a"), ToolCallPart(tool_call_id="c", name="f"))),
        Message(role=Role.ASSISTANT, content=(ToolCallPart(tool_call_id="c", name="f", executed_by="provider"),)),
    ],
)
def test_what_needs_a_decision_is_left_to_the_general_writer(message: Message) -> None:
    assert quick_wire(message, "openai_chat") is None


HEAD = st.fixed_dictionaries(
    {},
    optional={
        "model": TEXT | ODD,
        "temperature": st.sampled_from([0, 1.0, 0.5, True, float("nan"), "1"]) | ODD,
        "top_k": st.integers(0, 3),
        "max_tokens": st.integers(0, 1) | ODD,
        "max_completion_tokens": st.integers(0, 1) | ODD,
        "seed": st.integers(0, 1) | st.just(1.0),
        "stream": st.booleans() | ODD,
        "stop": TEXT | ODD,
        "tool_choice": st.sampled_from(["auto", "none", "required", "any", "other"]) | ODD,
        "function_call": st.sampled_from(["auto", "other"]) | ODD,
        "parallel_tool_calls": st.booleans() | ODD,
        "metadata": st.dictionaries(TEXT, ODD, max_size=2),
        "reasoning_effort": TEXT,
        "vendor": TEXT | ODD,
        "tools": ODD
        | st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["function", "function", "web_search"])},
                optional={
                    "function": ODD
                    | st.fixed_dictionaries(
                        {"name": TEXT},
                        optional={
                            "description": TEXT | ODD,
                            "parameters": st.dictionaries(TEXT, TEXT | ODD, max_size=2) | ODD,
                            "strict": st.booleans() | ODD,
                        },
                    ),
                },
            ),
            max_size=2,
        ),
    },
)


@pytest.mark.spec("OAC-10")
@given(HEAD)
def test_the_quick_and_the_general_reader_agree_on_all_but_the_messages(head: dict[str, Any]) -> None:
    for name in ("openai_chat", "openrouter"):
        dialect = replace_name(name)
        found = quick_head({**head, "messages": []}, name)
        if found is None:
            continue
        quick = with_messages(found, ())

        general = decoded_request(freeze(head), [], dialect)

        assert quick == general
        assert repr(quick) == repr(general)
        assert envelope_layout(wire_request(general, dialect), freeze(head), format_name=name) is None


def replace_name(name: str) -> Dialect:
    return dataclasses.replace(DIALECT, format=name, nested_effort=name == "openrouter")


def test_most_recorded_heads_are_read_quickly() -> None:
    bodies = [record.request for record in records("openai_chat") if isinstance(record.request, dict)]

    quick = [body for body in bodies if quick_head(body, "openai_chat") is not None]

    assert len(quick) > len(bodies) * 0.5


def _offer(schema: Any) -> list[Any]:
    return [{"type": "function", "function": {"name": "f", "parameters": schema}}]


@pytest.mark.spec("MSG-4")
def test_remembered_tools_share_nothing_with_the_body_that_they_were_read_from() -> None:
    schema = {"type": "object", "enum": [1]}
    first = quick_tools(_offer(schema), "openai_chat")
    schema["enum"].append(2)  # type: ignore[attr-defined]
    second = quick_tools(_offer(schema), "openai_chat")

    assert first is not None
    assert second is not None
    assert (first[0].input_schema, second[0].input_schema) == ({"type": "object", "enum": [1]}, schema)
    assert isinstance(first[0].input_schema, FrozenDict)
    assert quick_tools(_offer({"type": "object", "enum": [1]}), "openai_chat") is first


def test_tools_are_remembered_by_their_very_text() -> None:
    for schema in ({"a": 1}, {"a": 1.0}, {"a": True}, {"a": "1"}, {"a": None}, {"b": 0, "a": 1}, {"a": 1, "b": 0}):
        read = quick_tools(_offer(schema), "openai_chat")

        assert read is not None
        assert repr(read[0].input_schema) == repr(schema)


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "\ud800", object()])
def test_tools_that_are_no_json_are_refused_also_where_null_was_seen_before(odd: Any) -> None:
    get("openai_chat").from_wire_request({"messages": [], "tools": _offer({"a": None})})

    with pytest.raises(CmfError):
        get("openai_chat").from_wire_request({"messages": [], "tools": _offer({"a": odd})})


@pytest.mark.parametrize(("levels", "fits"), [(60, True), (61, False)])
def test_tools_are_held_to_the_depth_of_the_body(levels: int, fits: bool) -> None:
    schema: Any = {}
    for _ in range(levels - 1):
        schema = {"a": schema}
    body = {"messages": [], "tools": _offer(schema)}

    assert (quick_head(body, "openai_chat") is not None) is fits
    if fits:
        freeze(body)
    else:
        with pytest.raises(CmfError):
            get("openai_chat").from_wire_request(body)
