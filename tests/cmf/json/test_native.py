"""What the native module does for values is what the plain definition in Python says."""

from __future__ import annotations

import copy
import gc
import json
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf._native import filler, freezing, same_but_spaces
from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.json.frozen import (
    FrozenDict,
    FrozenList,
    _freeze,
    freeze,
    same_json,
    same_spelling,
)
from cmf.json.value import replace, trusted
from cmf.message.message import Message, TextPart

pytestmark = pytest.mark.native

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text("ab", max_size=2), JSON, max_size=4)
SPELLINGS = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


def _same_but_spaces(left: bytes, right: bytes) -> bool:
    return left.translate(None, b" \t\n\r") == right.translate(None, b" \t\n\r")


NEARLY = st.text('a"{ \t\n\r\v', max_size=40).map(str.encode)


@pytest.mark.spec("CODEC-1")
@given(st.lists(st.tuples(NEARLY, NEARLY | st.none()), max_size=4))
def test_texts_are_the_same_but_for_spaces_as_python_finds_them(pieces: list[tuple[bytes, bytes | None]]) -> None:
    left = b"".join(one for one, _ in pieces)
    right = b"".join(one if other is None else other for one, other in pieces)

    assert same_but_spaces(left, right) is _same_but_spaces(left, right)


@pytest.mark.spec("CODEC-1")
@given(OBJECTS, SPELLINGS, st.integers(0, 60))
def test_a_text_is_the_same_as_its_other_spellings_but_not_as_another(
    value: dict[str, Any], spelling: dict[str, Any], at: int
) -> None:
    written = dumps(value)
    spelled = json.dumps(value, **{"ensure_ascii": False, **spelling}).encode()
    other = spelled[:at] + b"x" + spelled[at:]

    assert same_but_spaces(other, spelled) is same_but_spaces(spelled, other) is same_but_spaces(b"", b"x") is False
    assert same_but_spaces(written, spelled) is _same_but_spaces(written, spelled)
    assert same_but_spaces(spelled, spelled.replace(b" ", b""))


@pytest.mark.spec("MSG-3")
@pytest.mark.parametrize("names", [(), ("text",), ("text", "extra"), ("content_type", "extra", "text")])
def test_fields_are_filled_by_name_and_the_others_as_they_were(names: tuple[str, ...]) -> None:
    fields = {name: {"text": "t", "extra": FrozenDict(a=1), "content_type": "text"}[name] for name in names}
    spelt = {"".join(list(name)): item for name, item in fields.items()}  # names that are not interned
    part = TextPart(text="before", extra={"b": 2})

    filled = {"text": None, "extra": None, "content_type": "text", **fields}
    changed = {"text": "before", "extra": {"b": 2}, "content_type": "text", **fields}
    assert {name: getattr(trusted(TextPart, **spelt), name) for name in filled} == filled
    assert {name: getattr(replace(part, **spelt), name) for name in changed} == changed
    assert (type(replace(part, **spelt)), part) == (TextPart, TextPart(text="before", extra={"b": 2}))
    with pytest.raises(AttributeError):
        trusted(TextPart, **fields).text = "x"  # type: ignore[misc]


def test_fields_that_a_type_does_not_have_are_refused() -> None:
    part = TextPart(text="t")

    for wrong in (partial(replace, part, words="t"), partial(trusted, TextPart, words="t")):
        with pytest.raises(TypeError):
            wrong()
    make, copy = filler(lambda _: (("text", None),))
    for wrong in (make, copy, partial(make, part), partial(make, TextPart, part), partial(copy, part, part)):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match="more than the slots"):
        copy(part, text="t")


def test_no_reference_is_lost_or_kept() -> None:
    name, arguments, text, plain = "n" * 50, FrozenDict(a=1), "t" * 50, {"a": 1}
    held = (name, arguments, text, plain, Message, FrozenDict)
    gc.collect()  # what other tests left behind holds types
    before = list(map(sys.getrefcount, held))

    for _ in range(100):
        replace(trusted(TextPart, text=text, extra=arguments), text=name, extra=arguments)
        same_but_spaces(b"{ }", b"{}")
        freeze({name: [text, plain, (text, arguments)], "b": OrderedDict(a=text)})
        same_spelling([text, plain, {"a": text}], [text, {"a": 1}, FrozenDict(a=text)])
        same_spelling([name, OrderedDict(a=text)], [name, {"a": text, "b": plain}])

    assert list(map(sys.getrefcount, held)) == before


class Text(str):
    """A text of a type of its own."""

    __slots__ = ()


ODD = (
    st.sampled_from([float("nan"), 2**64, "\ud800", Text("a"), b"a", FrozenDict(a=[1]), FrozenList([1]), 1, 1.0, True])
    | JSON
)
ANY = st.recursive(
    ODD,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["a", "é", "\ud800", 1, Text("b")]), inner, max_size=3)
        | st.dictionaries(st.sampled_from("ab"), inner, max_size=2).map(OrderedDict)
    ),
    max_leaves=8,
)


def _told(make: Callable[..., Any], *given_arguments: Any) -> Any:
    """What came of it: every type in it, or the words of the refusal."""
    try:
        made = make(*given_arguments)
    except ShapeError as error:
        return (error.code, str(error))
    return _typed(made)


def _typed(item: Any) -> Any:
    if isinstance(item, dict):
        return (type(item), [(type(key), key, _typed(each)) for key, each in dict.items(item)])
    if isinstance(item, list):
        return (type(item), [_typed(each) for each in item])
    return (type(item), repr(item))


@pytest.mark.spec("MSG-4")
@given(ANY, st.sampled_from([64, 2, 1, 0]))
def test_a_value_is_frozen_as_python_freezes_it(value: Any, levels: int) -> None:
    assert _told(freeze, value, levels) == _told(_freeze, value, levels)


@pytest.mark.spec("MSG-4")
def test_no_level_too_many_is_frozen_and_what_was_frozen_is_not_what_was_given() -> None:
    deep: Any = []
    for _ in range(63):
        deep = [deep]

    assert _typed(freeze(deep)) == _typed(_freeze(deep))
    with pytest.raises(ShapeError, match="nested deeper than 64 levels"):
        freeze({"a": deep})
    given_object = {"a": [1]}
    made = freeze(given_object)
    given_object["a"].append(2)
    assert made == {"a": [1]}


def _same_json(left: Any, right: Any, *, is_spelled: bool = False) -> bool:
    """Whether two JSON values are equal as JSON: true is not 1, but 1 is 1.0 (both are the number one).

    With `is_spelled` numbers have to be spelled alike too: 1 is not 1.0. The order of keys does not count.
    """
    if is_spelled and left is right:
        return True
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and len(left) == len(right)
            and all(key in right and _same_json(item, right[key], is_spelled=is_spelled) for key, item in left.items())
        )
    if isinstance(left, list | tuple):
        return (
            isinstance(right, list | tuple)
            and len(left) == len(right)
            and all(_same_json(a, b, is_spelled=is_spelled) for a, b in zip(left, right, strict=True))
        )
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    same_type = isinstance(right, str) if isinstance(left, str) else type(left) is type(right)
    return bool(left == right) and (same_type or not is_spelled)


_same_spelling = partial(_same_json, is_spelled=True)


@pytest.mark.spec("ADP-6")
@given(ANY, ANY)
def test_values_are_spelled_alike_if_python_says_so(left: Any, right: Any) -> None:
    for given_pair in ((left, right), (left, copy.copy(left)), ([left], [left, right]), ({"a": left}, {"a": left})):
        assert same_spelling(*given_pair) is bool(_same_spelling(*copy.copy(given_pair)))


@pytest.mark.spec("MSG-4")
@given(ANY, ANY)
def test_values_are_the_same_json_if_python_says_so(left: Any, right: Any) -> None:
    for given_pair in ((left, right), (left, copy.deepcopy(left)), ([left], [left, right]), ({"a": 1}, {"a": 1.0})):
        if "nan" not in repr(given_pair):  # JSON has no such number, which is not even the same as itself
            assert same_json(*given_pair) is bool(_same_json(*given_pair))


@pytest.mark.spec("ADP-6")
def test_what_is_deeper_than_any_value_is_compared_too() -> None:
    left: Any = 1
    right: Any = 1
    for _ in range(140):
        left, right = [left], [right]

    assert same_spelling(left, right) is True
    assert same_spelling([left], [[right]]) is False
    for _ in range(1000):
        left, right = [left], [right]
    with pytest.raises(RecursionError):
        same_json(left, right)


def test_functions_that_are_called_wrongly_say_so() -> None:
    for wrong in (
        freeze,
        partial(freeze, 1, "a"),
        partial(freeze, 1, 2, 3),
        partial(same_spelling, 1),
        partial(same_json, 1, 2, 3),
    ):
        with pytest.raises((TypeError, OverflowError)):
            wrong()
    with pytest.raises(ValueError, match="not subclasses of dict and list"):
        freezing(TextPart, FrozenList, _freeze, 64)
