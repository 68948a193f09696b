"""The quick reader reads what the general one reads, or leaves it to that one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.chat_completions_decode import decoded_message
from cmf.adapters.chat_completions_dialect import Dialect
from cmf.adapters.chat_completions_encode import CallIds, wire_messages
from cmf.adapters.chat_completions_quick import is_plain_envelope, quick_message, quick_wire
from cmf.adapters.layout import envelope_layout, respell, spelled
from cmf.content import TextPart, ToolCallPart
from cmf.errors import CmfError
from cmf.frozen import FrozenDict, freeze, same_spelling
from cmf.value import replace
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


def _general(raw: Any, names: dict[str, str]) -> Any:
    decoded = decoded_message(freeze(raw), "$", DIALECT, names)
    return spelled(
        (decoded,),
        raw,
        format_name="openai_chat",
        index=3,
        encode=lambda group: wire_messages(group[0], DIALECT, CallIds())[0],
    )[0]


@pytest.mark.spec("OAC-2", "OAC-7")
@given(MESSAGE)
def test_the_quick_and_the_general_reader_agree(raw: Any) -> None:
    quick_names, names = {"c": "f"}, {"c": "f"}
    quick = quick_message(raw, 3, "openai_chat", quick_names)
    if quick is None:
        return

    general = _general(raw, names)

    assert (quick, quick.provider_raw, quick_names) == (general, general.provider_raw, names)


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


def test_an_envelope_that_is_called_plain_needs_no_layout() -> None:
    seen = 0
    for record in records("openai_chat"):
        if record.request is None or not is_plain_envelope(record.request):
            continue
        seen += 1
        request = get("openai_chat").from_wire_request(record.request)
        rest = {key: item for key, item in record.request.items() if key != "messages"}
        plain = {key: item for key, item in get("openai_chat").to_wire(request).items() if key != "messages"}
        assert envelope_layout(plain, rest, format_name="openai_chat") is None, record.source
    assert seen > 200
