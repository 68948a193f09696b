"""A sealed object is a frozen one to everybody who looks, and is looked into by nobody before."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cmf.test_properties import MUTATORS

from cmf.json.frozen import FrozenDict, FrozenList, SealedDict, freeze, same_json, same_spelling, sealed, thaw
from cmf.json.value import to_bytes, to_json
from cmf.message.message import ToolCallPart

LEAF = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from([1.0, 2.5]) | st.text("ab", max_size=2)
JSON = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3)
)
OBJECT = st.dictionaries(st.text("ab", max_size=2), JSON, max_size=3)


def _first_matched(held: Any) -> Any:
    match held:
        case {"a": found}:
            return [found]
        case {**rest}:
            return rest


def _given(**items: Any) -> Any:
    return items


def _each(held: Any) -> Iterator[Any]:
    for key in held:
        yield held[key]


# Every way that Python code and the interpreter have of getting at what is inside.
LOOKS: dict[str, Callable[[Any], Any]] = {
    "item": lambda held: [held[key] for key in ("a", "b") if key in held],
    "get": lambda held: [held.get("a"), held.get("b", ())],
    "items": lambda held: list(held.items()),
    "values": lambda held: list(held.values()),
    "keys": lambda held: [held.keys().mapping[key] for key in held.keys()],  # noqa: SIM118
    "iter": lambda held: list(_each(held)),
    "reversed": lambda held: [held[key] for key in reversed(held)],
    "dict": lambda held: dict(held),
    "dict with more": lambda held: dict(held, more=1),
    "splat": lambda held: {**held},
    "call": lambda held: _given(**held),
    "update": lambda held: (found := {}, found.update(held))[0],
    "or": lambda held: held | {},
    "ror": lambda held: {} | held,
    "ior": lambda held: (found := {}, found.__ior__(held))[0],
    "match": _first_matched,
    "sorted": lambda held: sorted(held),
    "format": lambda held: ["{a}".format_map(held) if "a" in held else "", str(held), repr(held)],
    "equal": lambda held: [held == {}, held.__eq__({}), held != {}, held == freeze({"a": 1})],
    "hash": lambda held: [hash(held)],
    "pickle": lambda held: pickle.loads(pickle.dumps(held)),
    "reduce": lambda held: held.__reduce__()[1][0],
    "json": lambda held: freeze(json.loads(json.dumps(held))),
    "thaw": lambda held: freeze(thaw(held)),
    "to_json": lambda held: freeze(to_json(held)),
    "same": lambda held: [same_json(held, {"a": 0, "b": 0}), same_spelling({"b": 0}, held)],
    "frozen again": lambda held: FrozenDict(held),
}


def _live(value: Any) -> bool:
    """Whether anything inside a value can be changed, as told without looking through its own methods."""
    if isinstance(value, dict):
        return any(type(item) in (dict, list) or _live(item) for item in dict.values(value))
    if isinstance(value, list | tuple):
        return any(type(item) in (dict, list) or _live(item) for item in value)
    return False


@pytest.mark.spec("MSG-4")
@pytest.mark.parametrize("name", LOOKS)
@given(value=OBJECT)
def test_no_look_hands_out_anything_that_can_be_changed(name: str, value: Any) -> None:
    held, plain = sealed(copy.deepcopy(value)), freeze(value)
    assert type(held) is SealedDict

    seen = LOOKS[name](held)

    for found in seen.values() if isinstance(seen, dict) else seen:
        assert type(found) not in (dict, list)
        assert not _live(found)
    assert LOOKS[name](plain) == seen
    assert same_spelling(held, plain)
    assert (held == plain, hash(held)) == (True, hash(plain))


@pytest.mark.parametrize("name", LOOKS)
def test_every_look_opens_it_for_good(name: str) -> None:
    held = sealed({"a": [{"b": 1}], "b": {"c": []}})

    LOOKS[name](held)

    assert type(held) is FrozenDict
    assert not _live(held)


def test_every_method_of_dict_opens_or_hands_out_nothing() -> None:
    harmless = {
        *("__contains__", "__len__", "__sizeof__", "__class_getitem__"),
        *(name for name in dir(object) if name not in ("__eq__", "__ne__", "__hash__", "__repr__", "__reduce__")),
        *("copy", "__setitem__", "__delitem__", "__ior__", "clear", "pop", "popitem", "setdefault", "update"),
        "fromkeys",  # makes one of its own, and cannot fill it
    }

    assert {name for name in dir(dict) if name not in vars(SealedDict)} <= harmless
    assert not harmless & vars(SealedDict).keys() - {"__doc__"}


@pytest.mark.parametrize(
    "look", [len, copy.copy, copy.deepcopy, lambda held: "a" in held, orjson.dumps, to_bytes, freeze, FrozenDict.copy]
)
def test_what_needs_no_items_leaves_it_sealed(look: Callable[[Any], Any]) -> None:
    held = sealed({"a": [{"b": 1}]})

    seen = look(held)

    assert type(held) is SealedDict
    assert seen in (1, True, b'{"a":[{"b":1}]}') or seen is held


@pytest.mark.spec("MSG-4")
@pytest.mark.parametrize(("name", "arguments"), MUTATORS[FrozenDict][:-1])  # without __init__, which does nothing
def test_a_sealed_object_has_no_mutator(name: str, arguments: tuple[Any, ...]) -> None:
    held = sealed({"a": [1]})

    with pytest.raises(TypeError, match="is frozen"):
        getattr(held, name)(*arguments)
    held.__init__({"k": 1})  # type: ignore[misc]

    assert held == {"a": [1]}


def test_a_value_keeps_what_is_sealed_as_it_is() -> None:
    held = sealed({"a": [1]})
    part = ToolCallPart(name="f", arguments=held)

    assert part.arguments is held
    assert part.model_dump_json() == b'{"content_type":"tool_call","name":"f","arguments":{"a":[1]}}'
    assert type(held) is SealedDict
    assert part == ToolCallPart(name="f", arguments={"a": [1]})


def test_many_may_look_at_once() -> None:
    def looked(held: Any) -> Any:
        return list(held.values())

    with ThreadPoolExecutor(8) as threads:
        for _ in range(200):
            held = sealed({str(index): [{"a": [index]}] for index in range(20)})
            for seen in threads.map(looked, [held] * 8):
                assert not _live(seen)
                assert {type(item) for item in seen} == {FrozenList}
            assert type(held) is FrozenDict


class _Key(str):
    __hash__ = str.__hash__

    def __str__(self) -> str:
        return "other"

    def __eq__(self, other: object) -> bool:
        return False

    def isascii(self) -> bool:
        return True


@pytest.mark.spec("MSG-4")
@pytest.mark.parametrize("make", [freeze, FrozenDict])
def test_a_key_is_what_it_holds_whatever_its_class_makes_of_it(make: Callable[[Any], Any]) -> None:
    made = make({_Key("a"): 1})

    assert [type(key) for key in made] == [str]
    assert made == {"a": 1}
