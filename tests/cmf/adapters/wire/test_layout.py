"""A layout holds spelling and no text, and is used only where it says what the value says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.adapters.hostile import hostile_bodies
from tests.cmf.adapters.wiredata import strings

from cmf.adapters import FORMATS, get
from cmf.adapters.wire.layout import apply, capped, difference, grouped, grouped_as, respell, spelling
from cmf.enums import Role
from cmf.errors import CmfError, ShapeError
from cmf.json.frozen import FrozenDict, same_spelling, thaw
from cmf.json.value import replace, to_bytes
from cmf.message.message import Layout, Message, TextPart
from cmf.message.request import Request

TEXT = st.text("ab", max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([1.0, 2.5]) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def _steps(step: Any) -> list[dict[str, Any]]:
    inner = (step.get("at") or {}).values()
    return [step, *(each for one in inner for each in _steps(one))]


def with_layout(holder: Any, layout: Layout) -> Any:
    """The message or request with this layout, unless it is too large."""
    return capped((replace(holder, provider_raw=layout),))[0]


@pytest.mark.spec("ADP-7")
@given(plain=JSON, raw=JSON)
def test_a_difference_is_all_or_nothing_and_holds_no_text(plain: Any, raw: Any) -> None:
    step = difference(plain, raw)

    if step is None:
        return
    before = {"": thaw(plain)}
    wrapped = apply(before, {"at": {"": step}} if step else {})
    assert same_spelling(wrapped.get(""), raw)
    assert same_spelling(before[""], plain)
    assert all(
        not step["set"] or not isinstance(step["set"], str | dict | list) for step in _steps(step) if "set" in step
    )


@pytest.mark.spec("ADP-7")
@given(plain=JSON, raw=JSON, other=JSON)
def test_a_layout_brings_no_text_into_another_value(plain: Any, raw: Any, other: Any) -> None:
    step = difference(plain, raw)

    done = apply({"": thaw(other)}, {"at": {"": step}} if step else {})

    keys = {key for one in _steps(step or {}) for key in one.get("at") or {}}
    assert set(strings(done)) <= {*strings(other), *keys, "", "type", "text", "input_text", "output_text"}


@pytest.mark.spec("ADP-7")
@given(value=st.dictionaries(TEXT, JSON, min_size=1, max_size=3), other=st.dictionaries(TEXT, JSON, max_size=3))
def test_embedded_json_is_spelled_otherwise_only_while_it_means_the_same(value: Any, other: Any) -> None:
    compact, spaced = json.dumps(value, separators=(",", ":")), json.dumps(value, indent=1)
    step = difference({"arguments": compact}, {"arguments": spaced})
    assert step is not None

    kept = apply({"arguments": compact}, step)
    edited = apply({"arguments": json.dumps(other)}, step)

    assert kept == {"arguments": spaced}
    assert json.loads(edited["arguments"]) == other


@pytest.mark.spec("ADP-6")
@pytest.mark.parametrize(
    "shape",
    [
        {"at": {"content": {"set": "secret"}}},
        {"at": {"content": {"set": {"text": "secret"}}}},
        {"at": {"content": {"json": '{"text":"secret"}'}}},
        {"at": {"content": {"block": "secret"}}},
        {"at": {"role": {"set": None}}},
        {"at": {"content": "secret", "0": 5, "extra": {"at": {"a": {"at": {}}}}}},
    ],
)
def test_a_forged_layout_changes_nothing(shape: dict[str, Any]) -> None:
    message = Message(role=Role.USER, content=(TextPart(text="***"),))
    forged = with_layout(message, Layout(format="x", shape=FrozenDict(shape)))

    def decode(raw: Any) -> list[Message]:
        return [Message(role=raw["role"] or Role.TOOL, content=(TextPart(text=raw["content"]),))]

    plain = {"role": "user", "content": "***"}
    assert respell(plain, [forged], format_name="x", decode=decode) == plain


_ODD_PART = {"type": "tool-f", "toolCallId": "c", "state": ["x"], "input": {}}


# -- what was not read -------------------------------------------------------------------------------------------------


@pytest.mark.spec("ADP-14")
@given(plain=JSON, raw=JSON)
def test_what_differs_in_text_is_refused_and_never_passed_over(plain: Any, raw: Any) -> None:
    step = difference(plain, raw)

    if step is not None:
        assert spelling(plain, raw, "$.a") == ({} if same_spelling(plain, raw) else step)
        return
    with pytest.raises(ShapeError) as refusal:
        spelling(plain, raw, "$.a")
    assert (refusal.value.code, refusal.value.path) == ("shape.not-read-whole", "$.a")


@pytest.mark.spec("ADP-14")
@pytest.mark.parametrize(
    ("name", "side", "body", "path"),
    [
        ("openai_responses", "request", {"model": "m", "tools": [{"type": [None], "name": "f"}]}, "$"),
        (
            "aisdk",
            "request",
            {"messages": [{"id": "m", "role": "assistant", "parts": [_ODD_PART]}]},
            "$.messages[0]",
        ),
        ("aisdk", "response", {"id": "m", "role": "assistant", "parts": [_ODD_PART]}, "$"),
    ],
)
def test_a_field_of_another_shape_is_refused_where_it_cannot_ride_along(
    name: str, side: str, body: dict[str, Any], path: str
) -> None:
    adapter = get(name)
    read = adapter.from_wire_request if side == "request" else adapter.from_wire_response

    with pytest.raises(CmfError) as refusal:
        read(body)

    assert (refusal.value.code, refusal.value.path) == ("shape.not-read-whole", path)


# -- how large it may be -----------------------------------------------------------------------------------------------


def _called(*arguments: str, content: Any = None) -> dict[str, Any]:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": text}}
        for at, text in enumerate(arguments)
    ]
    return {"messages": [{"role": "assistant", "content": content, "tool_calls": calls}]}


@pytest.mark.spec("ADP-13")
@pytest.mark.parametrize("more", [{}, {"name": "x"}], ids=["read quickly", "read at length"])
@pytest.mark.parametrize(("spaces", "kept"), [(1, True), (150, True), (500, False), (100_000, False)])
def test_the_spelling_of_arguments_is_kept_up_to_twice_the_message(more: Any, spaces: int, kept: bool) -> None:
    body = _called("{" + " " * spaces + '"a":1}', '{"b": 2}')
    body["messages"][0] |= more
    chat = get("openai_chat")

    request = chat.from_wire_request(body)

    plain = _called('{"a":1}', '{"b":2}')
    plain["messages"][0] |= more
    assert (request.messages[0].provider_raw is not None) is kept
    assert chat.to_wire(request) == (body if kept else plain)


@pytest.mark.spec("ADP-13")
def test_the_cap_is_twice_the_message_however_small_it_is() -> None:
    message = Message(role=Role.USER, content=())
    twice = 2 * len(to_bytes(message))

    def laid_out(size: int) -> Layout:
        keys = len("at" + "a" + "json")
        return Layout(format="x", shape=FrozenDict({"at": {"a": {"json": "x" * (size - keys)}}}))

    assert twice < 100
    assert with_layout(message, laid_out(twice)).provider_raw == laid_out(twice)
    assert with_layout(message, laid_out(twice + 1)).provider_raw is None


@pytest.mark.spec("ADP-13")
@pytest.mark.parametrize("more", [0, 1])
def test_a_request_is_measured_with_all_that_it_says(more: int) -> None:
    said = tuple(Message(role=Role.USER, content=(TextPart(text=text),)) for text in ("a", "b" * 100))
    request = Request(model="m", messages=said)
    shape = FrozenDict({"json": "x" * (2 * len(to_bytes(request)) - len("json") + more)})

    assert (with_layout(request, Layout(format="x", shape=shape)).provider_raw is None) is bool(more)


@pytest.mark.spec("ADP-13")
@pytest.mark.parametrize("more", [0, 1])
def test_a_request_that_says_hardly_anything_is_taken_for_128_bytes(more: int) -> None:
    layout = Layout(format="x", shape=FrozenDict({"json": "x" * (256 - len("json") + more)}))

    assert (with_layout(Request(), layout).provider_raw is None) is bool(more)


@pytest.mark.spec("ADP-13")
def test_a_group_is_measured_and_dropped_as_a_whole() -> None:
    messages = [Message(role=Role.TOOL, content=(TextPart(text="x" * size),)) for size in (1, 1000)]
    shape = FrozenDict({"at": {"a": {"json": "x" * 1500}}})

    kept = capped(grouped_as(messages, format_name="x", index=4, shape=shape))
    dropped = capped(grouped_as([messages[0]] * 2, format_name="x", index=4, shape=shape))

    assert [one.provider_raw for one in kept] == [
        Layout(format="x", group=4, size=2, shape=shape),
        Layout(format="x", group=4, size=2),
    ]
    assert [one.provider_raw for one in dropped] == [None, None]
    assert dropped == (messages[0], messages[0])


@pytest.mark.spec("ADP-13")
def test_the_envelope_is_measured_against_the_whole_request() -> None:
    chat = get("openai_chat")
    keys = ("temperature", "top_p", "top_k", "stop", "seed", "frequency_penalty", "presence_penalty", "max_tokens")
    more = ("max_completion_tokens", "functions", "function_call")
    nothing = dict.fromkeys((*keys, "stream", "tools", "tool_choice", "response_format", "reasoning_effort", *more))
    short, long = ({"messages": [{"role": "user", "content": text}], **nothing} for text in ("a", "a" * 100))

    assert chat.to_wire(chat.from_wire_request(long)) == long
    assert chat.to_wire(chat.from_wire_request(short)) == {"messages": short["messages"]}


@pytest.mark.spec("ADP-13")
@given(data=st.data())
def test_no_layout_that_an_adapter_makes_is_larger_than_the_cap(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(FORMATS))
    side, body = data.draw(hostile_bodies(name))
    adapter = get(name)
    try:
        value = (
            adapter.from_wire_request(body)
            if side == "request"
            else adapter.from_wire_response(adapter.fold_events(body) if side == "stream" else body)
        )
    except CmfError:
        return

    messages = value.messages if isinstance(value, Request) else [choice.message for choice in value.choices]
    for group in [(value,), *grouped(messages, name)]:
        held = [one.provider_raw for one in group if one.provider_raw is not None]
        size = sum(_size(layout.shape) for layout in held)
        assert size <= 2 * max(128 if group == (value,) else 0, sum(len(to_bytes(one)) for one in group))


def _size(value: Any) -> int:
    """The bytes of keys and values, told from the text of all of it."""
    if isinstance(value, dict):
        return sum(len(key.encode()) + _size(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value)
    return len(value.encode() if isinstance(value, str) else json.dumps(value))
