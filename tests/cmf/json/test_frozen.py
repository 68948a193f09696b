"""A frozen object hands out nothing that can be changed, however it is looked at."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.json.frozen import FrozenDict, freeze, same_json, same_spelling, thaw
from cmf.json.value import to_json

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
    held = freeze(copy.deepcopy(value))

    seen = LOOKS[name](held)

    for found in seen.values() if isinstance(seen, dict) else seen:
        assert type(found) not in (dict, list)
        assert not _live(found)
    assert same_spelling(held, value)
