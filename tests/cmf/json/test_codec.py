"""Bytes and JSON, strictly."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.errors import DecodeError
from cmf.json import codec
from cmf.json.codec import dumps, loads, loads_object
from cmf.json.frozen import same_spelling

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refused(data: bytes | str, **limits: int) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        loads(data, **limits)
    return caught.value


@pytest.mark.spec("CODEC-1")
@pytest.mark.parametrize(
    ("data", "path"),
    [
        ('{"a":1,"a":1}', "$.a"),
        ('{"a":1,"\\u0061":2}', "$.a"),
        ('[{"b":{"c":[1,{"d":1,"d":2}]}}]', "$[0].b.c[1].d"),
        ('{"x y":{"a":1,"a":2}}', "$[…].a"),
        ('{"":1,"":2}', "$"),
        (f'{{"{"k" * 100}":1,"{"k" * 100}":2}}', "$"),
    ],
)
def test_a_key_twice_is_refused_where_it_stands(data: str, path: str) -> None:
    error = refused(data)

    assert (error.code, error.path) == ("json.duplicate-key", path)


@pytest.mark.spec("CODEC-2")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'"\xed\xa0\x80"', "json.not-utf8"),
        (b'"\xff"', "json.not-utf8"),
        (b'\xef\xbb\xbf{"a":1}', "json.not-utf8"),
        ('{"a":1}'.encode("utf-16"), "json.not-utf8"),
        (b'"\\ud800"', "json.lone-surrogate"),
        (b'{"a":["\\udc00\\ud800"]}', "json.lone-surrogate"),
        (b'{"\\ud800":1}', "json.lone-surrogate"),
        ('"\ud800"', "json.lone-surrogate"),
    ],
)
def test_what_is_no_well_formed_unicode_is_refused(data: bytes | str, code: str) -> None:
    assert refused(data).code == code


@pytest.mark.spec("CODEC-2")
def test_a_proper_surrogate_pair_is_one_character() -> None:
    assert loads('"\\ud83d\\ude00"') == "\U0001f600"


@pytest.mark.spec("CODEC-3")
@pytest.mark.parametrize("data", ["NaN", "[Infinity]", "-Infinity", "1e999", '{"a":-1e400}', "1" * 5000])
def test_numbers_that_are_not_finite_or_endless_are_refused(data: str) -> None:
    assert refused(data).code == "json.not-finite"


@pytest.mark.spec("CODEC-3")
@pytest.mark.parametrize("text", ["18446744073709551617", "-9007199254740993", "1.0", "1", "1e2", "-0.0", "0.1"])
def test_numbers_are_exact_and_keep_their_spelling(text: str) -> None:
    value = loads(f"[{text}]")[0]

    assert value == json.loads(text)
    assert type(value) is type(json.loads(text))
    assert same_spelling(loads(dumps([value])), [value])


@pytest.mark.spec("CODEC-7")
@pytest.mark.parametrize(
    "number",
    [
        "0.30000000000000000001",
        "100.00000000000000001",
        "1e-400",
        "1e-99999999999999999999",
        "4.9e-324",
        "9007199254740993.0",
        "123456789012345678e3",
        "1000000000000000.123",
    ],
)
def test_a_number_that_no_double_holds_is_refused(number: str) -> None:
    assert refused(f'{{"a": {number}}}').code == "json.inexact"
    assert loads_object(f'{{"a": {number}}}') is None


@pytest.mark.spec("CODEC-7")
def test_a_double_printed_with_17_digits_is_read_only_where_it_is_written_anew() -> None:
    text = '{"a": 0.10000000000000001}'

    assert loads_object(text) is None
    assert dumps(loads(text)) == b'{"a":0.1}'


@pytest.mark.spec("CODEC-7")
@pytest.mark.parametrize(
    "number", ["1.10", "100.00000000000000000000", "1e300", "-1E-7", "0.30000000000000004", "5e-324"]
)
def test_another_spelling_of_the_same_decimal_is_read(number: str) -> None:
    assert loads_object(f'{{"a": {number}}}') == {"a": float(number)}


@pytest.mark.spec("CODEC-4")
@pytest.mark.parametrize("bomb", ["[" * 200_000, '{"a":' * 200_000, "[" * 65 + "]" * 65, "[[" * 33 + " " + "]]" * 33])
def test_a_nesting_bomb_is_refused_at_once(bomb: str) -> None:
    begin = time.process_time()

    assert refused(bomb).code in ("json.too-deep", "json.syntax")
    assert time.process_time() - begin < 2.0


@pytest.mark.spec("CODEC-4")
def test_the_deepest_and_the_largest_that_is_allowed_is_read() -> None:
    assert loads("[" * 64 + "]" * 64)
    assert refused("[" * 65 + "]" * 65).code == "json.too-deep"
    assert refused("[" * 500 + "]" * 500).code == "json.too-deep"  # deeper than orjson writes


@pytest.mark.spec("CODEC-4")
@pytest.mark.parametrize("counted", [True, False], ids=["orjson counts", "orjson has no bound"])
@pytest.mark.parametrize("inside", ["", "1"])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}"), ('[{"a":', "}]")])
def test_long_text_is_held_to_the_same_depth(
    opening: str, closing: str, inside: str, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counted:
        monkeypatch.setattr(codec, "_HEIGHT", codec._MOST)
    each = opening.count("[") + opening.count("{")
    padding = '"' + "x" * 10_000 + '"'
    for levels in range(56 // each, 72 // each):
        text = f"[{padding},{opening * levels}[{inside}]{closing * levels}]"
        if each * levels + 2 <= 64:
            assert loads(text) == json.loads(text)
        else:
            assert refused(text).code == "json.too-deep"


@pytest.mark.spec("CODEC-4")
def test_orjson_is_known_to_stop_at_the_bound() -> None:
    assert 0 < codec._HEIGHT < codec._MOST
    assert codec._written_if_shallow(json.loads("[" * 63 + "1" + "]" * 63)) == b"[" * 63 + b"1" + b"]" * 63
    assert codec._written_if_shallow(json.loads("[" * 64 + "1" + "]" * 64)) is None
    assert loads('"ab"', max_bytes=4) == "ab"
    assert refused('"ab"', max_bytes=3).code == "json.too-large"


@pytest.mark.spec("CODEC-4")
def test_what_would_take_long_to_read_in_one_call_is_refused() -> None:
    assert refused('[[],[],{"a":"[{"}]', max_brackets=5).code == "json.too-many"
    assert loads('[[],[],{"a":"[{"}]', max_brackets=6) == [[], [], {"a": "[{"}]


@pytest.mark.spec("CODEC-5")
@pytest.mark.parametrize(
    "data", ["", " ", "{} {}", "{}x", "{'a':1}", "// c\n1", "[1,]", '{"a":}', "tru", '"\x01"', "01"]
)
def test_what_is_nearly_json_is_refused(data: str) -> None:
    error = refused(data)

    assert error.code == "json.syntax"
    assert "line 1 column" in str(error) or "line 2" in str(error)


@pytest.mark.spec("CODEC-6")
@given(JSON)
def test_what_is_written_is_read_back_to_the_letter(value: Any) -> None:
    assert same_spelling(loads(dumps(value)), value)
    assert same_spelling(loads(json.dumps(value)), value)


@given(st.text() | st.binary())
def test_any_bytes_are_read_or_refused_and_nothing_else(data: str | bytes) -> None:
    try:
        value = loads(data)
    except DecodeError:
        return
    assert same_spelling(value, json.loads(data))


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", 1j, {"a": object()}])
def test_what_is_no_json_cannot_be_written(value: Any) -> None:
    with pytest.raises(DecodeError, match="not a JSON value"):
        dumps(value)


@pytest.mark.parametrize(
    ("text", "value"), [('{"a": 1}', {"a": 1}), ("[1]", None), ("", None), ('{"a":1,"a":1}', None), ("{", None)]
)
def test_embedded_text_is_an_object_or_it_is_nothing(text: str, value: Any) -> None:
    assert loads_object(text) == value


KEYS = st.sampled_from(["a", "b", "a b", "ab", ""])
NUMBERS = st.sampled_from(["1", "1.0", "-0", "1e2", "0.1", "18446744073709551616", "1.00000000000000000001"])
SPELT = st.recursive(
    NUMBERS | st.sampled_from(["null", '"x y"', '"xy"', '"\\u0078"', '"\\n"', "true"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(KEYS, inner), max_size=3).map(
            lambda pairs: "{ " + " ,\n".join(f'"{key}":\t{item}' for key, item in pairs) + "}"
        )
    ),
    max_leaves=8,
)


@pytest.mark.spec("CODEC-1", "CODEC-3")
@given(SPELT)
def test_spaces_between_tokens_hide_neither_a_key_twice_nor_a_rounded_number(text: str) -> None:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise KeyError
        return dict(pairs)

    try:
        expected = json.loads(text, object_pairs_hook=unique)
    except KeyError:
        both = {"json.duplicate-key", "json.inexact"}  # of two faults, either may be told
        assert refused(text).code in (both if "1.00000000000000000001" in text else {"json.duplicate-key"})
        return
    if "1.00000000000000000001" in text:
        assert refused(text).code == "json.inexact"
        return

    assert same_spelling(loads(text), expected)
