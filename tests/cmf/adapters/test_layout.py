"""A layout holds spelling and no text, and is used only where it says what the value says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.layout import apply, difference, respell, with_layout
from cmf.content import TextPart
from cmf.enums import Role
from cmf.frozen import FrozenDict, same_spelling, thaw
from cmf.message import Layout, Message
from tests.cmf.adapters.wiredata import strings

TEXT = st.text("ab", max_size=3)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([1.0, 2.5]) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def _steps(step: Any) -> list[dict[str, Any]]:
    inner = (step.get("at") or {}).values()
    return [step, *(each for one in inner for each in _steps(one))]


@pytest.mark.spec("ADP-7")
@given(plain=JSON, raw=JSON)
def test_a_difference_is_all_or_nothing_and_holds_no_text(plain: Any, raw: Any) -> None:
    step = difference(plain, raw)

    if step is None:
        return
    wrapped = apply({"": thaw(plain)}, {"at": {"": step}} if step else {})
    assert same_spelling(wrapped.get(""), raw)
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

    def encode(group: Any) -> Any:
        return {"role": group[0].role.value, "content": group[0].content[0].text}

    def decode(raw: Any) -> list[Message]:
        return [Message(role=raw["role"] or Role.TOOL, content=(TextPart(text=raw["content"]),))]

    assert respell([forged], format_name="x", encode=encode, decode=decode) == {"role": "user", "content": "***"}
