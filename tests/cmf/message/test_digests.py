"""Canonical bytes, against the reference writer of RFC 8785."""

from __future__ import annotations

from typing import Any

import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cmf.test_properties import values

from cmf.json.codec import SAFE_INTEGER, dumps, dumps_with_range, is_small
from cmf.json.value import to_bytes, to_json
from cmf.message.digests import canonical_bytes, content_digest, value_hash
from cmf.message.message import Message, PromptResultPart, TextPart, ToolCallPart, ToolResultPart
from cmf.message.request import Choice, Response
from cmf.views.render import exact_json

exact = st.integers(-SAFE_INTEGER, SAFE_INTEGER) | st.floats(-SAFE_INTEGER, SAFE_INTEGER)
untagged = st.text().filter(lambda text: not text.startswith(("int:", "str:")))
trees = st.recursive(
    st.none() | st.booleans() | exact | untagged,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(untagged, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.spec("ID-8")
@pytest.mark.parametrize("before", [0, 1, 8, 9, 40, 1 << 20])
def test_a_number_is_spelled_canonically_wherever_it_stands_in_a_long_text(before: int) -> None:
    plain = {"a": "x" * ((1 << 20) - 16 + before), "b": [1.5e-7, 5.0], "c": "y" * (1 << 20)}

    assert canonical_bytes(plain) == rfc8785.dumps(plain)


@pytest.mark.spec("ID-8")
@settings(max_examples=500)
@given(trees)
def test_canonical_bytes_are_those_of_the_reference_writer(value: Any) -> None:
    assert canonical_bytes(value) == rfc8785.dumps(value)


@pytest.mark.spec("ID-8")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"\ue000": 1, "\U00010000": 2}, '{"\U00010000":2,"\ue000":1}'),
        ([1e-5, 1e-7, 1.0, -0.0, 123456789.125], "[0.00001,1e-7,1,0,123456789.125]"),
        ([2**53, -(2**70)], None),
        ([1e300], f'["int:{10**300}"]'),
        ("int:1", '"str:int:1"'),
        ("a", '"a"'),
        (1.5, "1.5"),
        (2.0, "2"),
        ({"b": [1, -2.0, None], "a": 'say "int:1"'}, '{"a":"say \\"int:1\\"","b":[1,-2,null]}'),
        ({"a": [1.5e3], "B": {"d": "12:3.5", "c": True}}, '{"B":{"c":true,"d":"12:3.5"},"a":[1500]}'),
        ({"str:a": "\u2028\x7f\x1f"}, '{"str:str:a":"\u2028\x7f\\u001f"}'),
    ],
)
def test_what_json_writers_spell_differently_has_one_spelling(value: Any, text: str | None) -> None:
    expected = text if text is not None else dumps([f"int:{int(number)}" for number in value]).decode()

    assert canonical_bytes(value).decode() == expected


@pytest.mark.spec("ID-8")
@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": float("nan")}])
def test_a_number_that_is_not_finite_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(rfc8785.FloatDomainError):
        canonical_bytes(value)


@pytest.mark.spec("ID-8")
@given(values)
def test_a_value_has_the_canonical_bytes_of_its_json_form(value: Any) -> None:
    assert canonical_bytes(value) == canonical_bytes(to_json(value))


@pytest.mark.spec("MSG-3")
@given(values)
def test_a_value_is_written_to_the_bytes_of_its_json_form(value: Any) -> None:
    assert to_bytes(value) == dumps(value.model_dump())


@pytest.mark.spec("VIEW-15")
@given(st.dictionaries(st.text(max_size=3), st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_reported_as_small_need_no_rewriting(value: dict[str, Any]) -> None:
    text, small = dumps_with_range(value)

    assert text.encode() == dumps(value)
    assert is_small(value) is small
    assert not small or all(-SAFE_INTEGER <= number <= SAFE_INTEGER for number in value.values())
    assert not small or exact_json(value, "", {}) is value


@pytest.mark.spec("ID-6")
def test_a_message_tells_both_its_digests() -> None:
    said = Message(role="user", content=[TextPart(text="x")])
    stamped = said.model_copy(update={"session_id": "s"})

    assert (said.hash, said.content_digest) == (value_hash(said), content_digest(said))
    assert stamped.content_digest == said.content_digest
    assert stamped.hash != said.hash


@pytest.mark.spec("ID-6")
def test_generated_ids_do_not_change_a_digest_and_content_does() -> None:
    def told(text: str, **minted: str) -> Response:
        inner = Message(role="assistant", content=[ToolCallPart(name="f", tool_call_id=minted.get("inner"))])
        asked = PromptResultPart(prompt_name="p", messages=[inner, Message(role="user", content=[TextPart(text=text)])])
        result = ToolResultPart(tool_name="g", tool_call_id=minted.get("outer"), content=(asked,))
        return Response(choices=[Choice(message=Message(role="tool", content=[result]))])

    one = told("a", inner="1", outer="2")
    two = told("a", inner="x", outer="y")
    two = two.model_copy(update={"usage": {"input_tokens": 9}})

    assert content_digest(two) == content_digest(one)
    assert content_digest(told("b", inner="1", outer="2")) != content_digest(one)


@pytest.mark.spec("ID-8")
@pytest.mark.parametrize("digits", [309, 310, 4_300, 4_301, 10_000])
def test_integers_of_any_length_have_digests_of_their_own(digits: int) -> None:
    number = 10 ** (digits - 1)

    found = {canonical_bytes({"n": number + step}) for step in (-1, 0, 1)}

    assert len(found) == 3
