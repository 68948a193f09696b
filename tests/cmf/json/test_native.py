"""What the native module does for values is what Python does without it."""

from __future__ import annotations

import copy
import gc
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf import adapters
from cmf._native import dict_maker, filler, freezing, is_token, plain_copy, same_but_spaces, shape_maker, spaces_in
from cmf.adapters.wire.call_id_forms import is_plain, plain_form
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object, py_same_but_spaces
from cmf.json.frozen import (
    FrozenDict,
    FrozenList,
    SealedDict,
    freeze,
    py_freeze,
    py_same_json,
    py_same_spelling,
    py_sealed,
    same_json,
    same_spelling,
    sealed,
)
from cmf.json.making import Shape, py_shape_maker
from cmf.json.making import shape_maker as maker_of_shapes
from cmf.json.value import maker, py_maker, py_replace, py_trusted, replace, trusted
from cmf.message.message import Layout, Message, TextPart, ToolCallPart

pytestmark = pytest.mark.native

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text("ab", max_size=2), JSON, max_size=4)
SPELLINGS = st.sampled_from([{}, {"indent": 1}, {"separators": (",", ":")}, {"ensure_ascii": False}])


@pytest.mark.spec("CODEC-2")
@given(OBJECTS, SPELLINGS)
def test_texts_found_to_differ_only_in_spaces_do(value: dict[str, Any], spelling: dict[str, Any]) -> None:
    text = json.dumps(value, **spelling)

    spaces = spaces_in(text)

    assert spaces is None or (
        same_spelling(loads_object(text), value) and len(text.encode()) - len(dumps(value)) == spaces
    )


@pytest.mark.parametrize(
    ("text", "spaces"),
    [
        ("{}", 0),
        (" {\n}\t\r", 4),
        ('{"a": [1, -2, 0, 120.5, -0.25, 1.0, 0.0, 0.0001, true, false, null, {}, []]}', 13),
        ('{"a":"b c", "A":"\\"\\\\\\n\\t\\r\\b\\f é"}', 1),
        ('{"a":{"a":{"a":1}},"b":{"a":2}}', 0),
        (f'{{"a":{10**17}}}', 0),
    ],
)
def test_a_text_that_is_spelled_plainly_is_seen_to_be(text: str, spaces: int) -> None:
    assert spaces_in(text) == spaces
    assert len(text.encode()) - len(dumps(loads_object(text))) == spaces


@pytest.mark.spec("CODEC-2")
@pytest.mark.parametrize(
    "text",
    [
        *('{"a":1,"a":1}', '{"a":1, "a" :2}', '{"b":{"a":1,"c":2,"a":3}}'),
        *('{"a":1e5}', '{"a":1E5}', '{"a":1.5e2}', '{"a":1.50}', '{"a":0.00001}', '{"a":-0}', '{"a":-0.0}'),
        *('{"a":1234567890.1234567}', '{"a":1234567890123456789}', '{"a":0.1000000000000000055}'),
        *('{"a":"\\u0041"}', '{"a":"\\/"}', '{"\\u0061":1,"a":1}'),
        *("[]", "1", '"a"', "", "{", '{"a', '{"a":1', '{"a":"\\', '{"a":tr', "{}}", '{"a":-}', '{"a":.5}'),
        *('{"a":' + "[" * 65 + "]" * 65 + "}", '{"a":"' + "[" * 65 + '"}', "{" * 10_000),
        "{" + ",".join(f'"{at}":0' for at in range(17)) + "}",
    ],
)
def test_other_texts_have_no_number_of_spaces(text: str) -> None:
    assert spaces_in(text) is None


NEARLY = st.text('a"{ \t\n\r\v', max_size=40).map(str.encode)


@pytest.mark.spec("CODEC-1")
@given(st.lists(st.tuples(NEARLY, NEARLY | st.none()), max_size=4))
def test_texts_are_the_same_but_for_spaces_as_python_finds_them(pieces: list[tuple[bytes, bytes | None]]) -> None:
    left = b"".join(one for one, _ in pieces)
    right = b"".join(one if other is None else other for one, other in pieces)

    assert same_but_spaces(left, right) is py_same_but_spaces(left, right)


@pytest.mark.spec("CODEC-1")
@given(OBJECTS, SPELLINGS, st.integers(0, 60))
def test_a_text_is_the_same_as_its_other_spellings_but_not_as_another(
    value: dict[str, Any], spelling: dict[str, Any], at: int
) -> None:
    written = dumps(value)
    spelled = json.dumps(value, **{"ensure_ascii": False, **spelling}).encode()
    other = spelled[:at] + b"x" + spelled[at:]

    assert same_but_spaces(other, spelled) is same_but_spaces(spelled, other) is same_but_spaces(b"", b"x") is False
    assert same_but_spaces(written, spelled) is py_same_but_spaces(written, spelled)
    assert same_but_spaces(spelled, spelled.replace(b" ", b""))


def test_what_is_no_text_is_neither_spelled_nor_a_token() -> None:
    for thing in (b"{}", None, "\ud800", {}):
        assert spaces_in(thing) is None  # type: ignore[arg-type]
        assert is_token(thing, "") is False  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        is_token("a")  # type: ignore[call-arg]


@pytest.mark.spec("ID-10")
@given(st.text("cmf_-aZ09é ", max_size=70))
def test_a_token_is_its_own_form(text: str) -> None:
    assert is_token(text, "cmf_") is (bool(is_plain(text)) and not text.startswith("cmf_"))
    assert not is_token(text, "cmf_") or plain_form(text) == text


def _containers(item: Any) -> list[int]:
    inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else None
    return [] if inner is None else [id(item), *(found for each in inner for found in _containers(each))]


@pytest.mark.spec("MSG-4")
@given(st.lists(JSON, max_size=3))
def test_a_copy_is_what_the_text_says_and_shares_no_container(value: list[Any]) -> None:
    text = dumps(value)

    copied = plain_copy(value, text, 63)

    if copied is not None:
        assert same_spelling(copied, value)
        assert not set(_containers(copied)) & set(_containers(value))


@pytest.mark.spec("MSG-4")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([1], [1.0]),
        ([1.0], [1]),
        ([True], [1]),
        ([1], [True]),
        (["a"], ["b"]),
        (["a"], ["ab"]),
        (["ab"], ["a"]),
        (["\\n"], ["\n"]),
        ([{"a": 1}], [{"a": 1, "b": 2}]),
        ([{"a": 1, "b": 2}], [{"b": 2, "a": 1}]),
        ([{}], [[]]),
        ([[]], [{}]),
        ([[], []], [[]]),
        ([float("nan")], [None]),
        ([None], [None]),
        ([2**64], [2**64]),
        ([("a",)], [["a"]]),
        ([{1: 2}], [{"1": 2}]),
        (["\ud800"], ["a"]),
        ([FrozenDict()], [{}]),
        ([object()], ["a"]),
    ],
)
def test_what_the_text_does_not_say_is_not_copied(value: list[Any], said: list[Any]) -> None:
    assert plain_copy(value, dumps(said), 63) is None


def test_a_copy_has_no_more_levels_than_it_may() -> None:
    assert plain_copy([[{}]], b"[[{}]]", 3) == [[{}]]
    assert plain_copy([[{}]], b"[[{}]]", 2) is None
    assert plain_copy([], b"[] ", 2) is None


CALL = Shape(ToolCallPart, {"name": "name", "arguments": "given"})
SPELT = Shape(Layout, {"format": "name", "texts": ("text", "text")})
SHAPE = Shape(Message, {"role": "role", "content": (CALL, Shape(TextPart, {"text": "text"})), "provider_raw": SPELT})
NAMES = ("role", "name", "given", "text")


@pytest.mark.spec("MSG-3")
def test_a_shape_is_filled_as_python_fills_it() -> None:
    given_arguments = (Role.ASSISTANT, "f", FrozenDict(a=1), "t")

    made, written = (make(SHAPE, *NAMES)(*given_arguments) for make in (maker_of_shapes, py_shape_maker))

    assert repr(made) == repr(written)
    assert made == written
    assert made.provider_raw == written.provider_raw
    assert repr(maker(TextPart, "text")("x")) == repr(py_maker(TextPart, "text")("x"))
    with pytest.raises(AttributeError):
        made.role = Role.USER  # type: ignore[misc]


@pytest.mark.spec("MSG-3")
@pytest.mark.parametrize("names", [(), ("text",), ("text", "extra"), ("content_type", "extra", "text")])
def test_fields_are_filled_by_name_as_python_fills_them(names: tuple[str, ...]) -> None:
    fields = {name: {"text": "t", "extra": FrozenDict(a=1), "content_type": "text"}[name] for name in names}
    spelt = {"".join(list(name)): item for name, item in fields.items()}  # names that are not interned
    part = TextPart(text="before", extra={"b": 2})

    assert repr(trusted(TextPart, **spelt)) == repr(py_trusted(TextPart, **fields))
    assert repr(replace(part, **spelt)) == repr(py_replace(part, **fields))
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
    role, name, arguments, text = Role.USER, "n" * 50, FrozenDict(a=1), "t" * 50
    make, plain = maker_of_shapes(SHAPE, *NAMES), {"a": 1}
    seal = dict_maker(SealedDict)
    held = (name, arguments, text, plain, Message, SealedDict)
    gc.collect()  # what other tests left behind holds types
    before = list(map(sys.getrefcount, held))

    for _ in range(100):
        make(role, name, arguments, text)
        seal(plain)
        replace(trusted(TextPart, text=text, extra=arguments), text=name, extra=arguments)
        plain_copy([plain], b'[{"a":1}]', 3)
        spaces_in(text)
        same_but_spaces(b"{ }", b"{}")
        freeze({name: [text, plain, (text, arguments)], "b": OrderedDict(a=text)})
        same_spelling([text, plain, {"a": text}], [text, {"a": 1}, FrozenDict(a=text)])
        same_spelling([name, OrderedDict(a=text)], [name, {"a": text, "b": plain}])

    assert list(map(sys.getrefcount, held)) == before


@pytest.mark.parametrize("told", [("given", 1), ("nothing", 1), ("several", (("given", 3),)), ("made", TextPart, ())])
def test_a_wrong_shape_is_refused(told: tuple[Any, ...]) -> None:
    takes = 0 if told[0] == "made" else 1

    with pytest.raises(ValueError, match=r"no such source|a shape takes something"):
        shape_maker(TextPart, (("text", told),), takes)


def test_a_shape_takes_its_arguments_and_dicts_are_made_of_types_of_dicts() -> None:
    with pytest.raises(TypeError):
        maker_of_shapes(SHAPE, *NAMES)(Role.USER)
    with pytest.raises(ValueError, match="not a subclass of dict"):
        dict_maker(TextPart)
    with pytest.raises(AttributeError):
        dict_maker(SealedDict)(1)  # type: ignore[arg-type]


@pytest.mark.spec("MSG-4")
def test_an_object_is_sealed_as_python_seals_it() -> None:
    made, written = sealed({"a": [1]}), py_sealed({"a": [1]})

    assert (type(made), type(written)) == (SealedDict, SealedDict)
    assert (made, type(made["a"])) == (written, type(written["a"]))
    assert (type(made), type(written)) == (FrozenDict, FrozenDict)


class Text(str):
    """A text of a type of its own."""

    __slots__ = ()


ODD = (
    st.sampled_from([float("nan"), 2**64, "\ud800", Text("a"), b"a", FrozenDict(a=[1]), FrozenList([1]), 1, 1.0, True])
    | st.builds(sealed, st.dictionaries(st.sampled_from("ab"), st.lists(st.integers(0, 1), max_size=1), max_size=1))
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
    assert _told(freeze, value, levels) == _told(py_freeze, value, levels)


@pytest.mark.spec("MSG-4")
def test_no_level_too_many_is_frozen_and_what_was_frozen_is_not_what_was_given() -> None:
    deep: Any = []
    for _ in range(63):
        deep = [deep]

    assert _typed(freeze(deep)) == _typed(py_freeze(deep))
    with pytest.raises(ShapeError, match="nested deeper than 64 levels"):
        freeze({"a": deep})
    given_object = {"a": [1]}
    made = freeze(given_object)
    given_object["a"].append(2)
    assert made == {"a": [1]}


@pytest.mark.spec("ADP-6")
@given(ANY, ANY)
def test_values_are_spelled_alike_if_python_says_so(left: Any, right: Any) -> None:
    for given_pair in ((left, right), (left, copy.copy(left)), ([left], [left, right]), ({"a": left}, {"a": left})):
        assert same_spelling(*given_pair) is bool(py_same_spelling(*copy.copy(given_pair)))


@pytest.mark.spec("MSG-4")
@given(ANY, ANY)
def test_values_are_the_same_json_if_python_says_so(left: Any, right: Any) -> None:
    for given_pair in ((left, right), (left, copy.deepcopy(left)), ([left], [left, right]), ({"a": 1}, {"a": 1.0})):
        if "nan" not in repr(given_pair):  # JSON has no such number, which is not even the same as itself
            assert same_json(*given_pair) is bool(py_same_json(*given_pair))


@pytest.mark.spec("ADP-6")
def test_what_is_deeper_than_any_value_is_compared_too() -> None:
    left: Any = 1
    right: Any = 1
    for _ in range(140):
        left, right = [left], [right]

    assert same_spelling(left, right) is True
    assert same_spelling([left], [[right]]) is False


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
        freezing(TextPart, SealedDict, FrozenList, py_freeze, py_same_json, py_same_spelling, 64)


WITHOUT = """
import sys
sys.modules["cmf._native"] = None
from cmf import adapters, native
assert native.shape_maker is None
"""
TRANSLATED = """
call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}
tool = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}}}
messages = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "t", "tool_calls": [call]}]
request = adapters.get("openai_chat").from_wire_request({"model": "m", "messages": messages, "tools": [tool]})
print(request, adapters.get("anthropic_messages").to_wire(request), adapters.get("openai_chat").to_wire(request))
"""


def test_without_the_native_module_python_does_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """In a process of its own, as modules ask for it when they are loaded."""
    command = [sys.executable, "-c", WITHOUT + TRANSLATED]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    exec(TRANSLATED, {"adapters": adapters})

    assert capsys.readouterr().out == done.stdout
