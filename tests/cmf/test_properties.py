"""What holds of every value of the format."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cmf import Capability, FrozenDict, FrozenList, Message, iter_views
from cmf.enums import ContentType, MessageStatus, Role
from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.json.value import Value
from cmf.message.binary import decoded
from cmf.message.digests import content_digest, value_hash
from cmf.message.security import is_sensitive
from cmf.views.tiers import SUBJECT_FIELDS
from tests.cmf.strategies import json_value, messages, values


@pytest.mark.spec("MSG-3")
@given(values)
def test_the_json_form_is_read_back_to_an_equal_value_and_is_stable(value: Any) -> None:
    text = value.model_dump_json()
    again = type(value).model_validate_json(text)

    assert again == value
    assert again.model_dump_json() == text
    assert hash(again) == hash(value)
    assert type(value).model_validate(value.model_dump()) == value


@pytest.mark.spec("ID-6")
@given(values, values)
def test_hashes_are_equal_exactly_when_values_are(left: Any, right: Any) -> None:
    same = type(left) is type(right) and left == right

    assert (value_hash(left) == value_hash(right) and type(left) is type(right)) == same
    assert value_hash(left) == value_hash(type(left).model_validate_json(left.model_dump_json()))


@pytest.mark.spec("ID-7")
@given(values)
def test_what_a_value_says_does_not_depend_on_how_it_is_spelled(value: Any) -> None:
    assert content_digest(value) == content_digest(type(value).model_validate_json(value.model_dump_json()))


MUTATORS: dict[type, list[tuple[str, tuple[Any, ...]]]] = {
    FrozenDict: [
        ("__setitem__", ("k", 1)),
        ("__delitem__", ("k",)),
        ("update", ({"k": 1},)),
        ("setdefault", ("k", 1)),
        ("pop", ("k", None)),
        ("popitem", ()),
        ("clear", ()),
        ("__ior__", ({"k": 1},)),
        ("__init__", ({"k": 1},)),
    ],
    FrozenList: [
        ("append", (1,)),
        ("extend", ([1],)),
        ("insert", (0, 1)),
        ("pop", ()),
        ("remove", (1,)),
        ("clear", ()),
        ("sort", ()),
        ("reverse", ()),
        ("__setitem__", (slice(None), [1])),
        ("__delitem__", (slice(None),)),
        ("__iadd__", ([1],)),
        ("__imul__", (2,)),
        ("__init__", ([1],)),
    ],
}


def reachable(value: Any) -> Iterator[Any]:
    """Everything that can be reached from a value through attributes and items."""
    yield value
    if isinstance(value, Value):
        for field in dataclasses.fields(value):  # type: ignore[arg-type]
            yield from reachable(getattr(value, field.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from reachable(item)
    elif isinstance(value, list | tuple | frozenset):
        for item in value:
            yield from reachable(item)


@pytest.mark.spec("MSG-4")
@given(values)
def test_no_mutator_of_anything_reachable_works(value: Any) -> None:
    before = value.model_dump_json()

    for held in reachable(value):
        assert not isinstance(held, set | bytearray)
        assert type(held) not in (dict, list)
        if isinstance(held, Value):
            assert not hasattr(held, "__dict__")
            for field in dataclasses.fields(held):  # type: ignore[arg-type]
                with pytest.raises(AttributeError):
                    setattr(held, field.name, None)
                with pytest.raises(AttributeError):
                    delattr(held, field.name)
        for name, arguments in MUTATORS.get(type(held), []):
            try:
                getattr(held, name)(*arguments)
            except TypeError:
                continue
            assert name == "__init__"

    assert value.model_dump_json() == before


@pytest.mark.spec("MSG-4")
@given(json_value)
def test_what_a_constructor_was_given_stays_the_callers_own(given_value: Any) -> None:
    arguments = {"a": given_value, "b": [{"c": 1}]}
    message = Message(role="assistant", content=[{"content_type": "tool_call", "name": "f", "arguments": arguments}])
    before = message.model_dump_json()

    arguments["b"].append(1)
    arguments["b"][0]["c"] = 2
    arguments.clear()

    assert message.model_dump_json() == before
    message.model_dump()["content"][0]["arguments"]["b"].append(7)
    assert message.model_dump_json() == before


@pytest.mark.spec("MSG-4")
@given(messages)
def test_copies_share_and_pickles_are_equal(message: Message) -> None:
    assert copy.deepcopy(message) == message == copy.copy(message)
    assert pickle.loads(pickle.dumps(message)) == message


def strings(value: Any) -> Iterator[str]:
    """Every string of a JSON value: leaves, and the keys of its objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from strings(item)


def _shown(documents: list[dict[str, Any]]) -> tuple[set[str], str]:
    found: set[str] = set()
    for document in documents:
        for text in strings(document):
            found.add(text)
    return found, "\n".join(found)


@pytest.mark.spec("VIEW-1")
@settings(max_examples=200)
@given(values)
def test_every_string_of_a_value_is_in_the_input_of_some_view(value: Any) -> None:
    """Complete mediation: itself, inside a larger text, or by digest where it is binary data."""
    documents = [view.to_opa_input()["input"] for view in iter_views(value)]
    found, everything = _shown(documents)
    sensitive = {
        text
        for held in reachable(value)
        if isinstance(held, FrozenDict)
        for key in held
        if is_sensitive(key)
        for text in (key, str(held[key]))
    }

    for text in set(_leaves(_without_registries(value.model_dump()))):
        if text in CLOSED or text in found or text in everything or _in_json_text(text, everything):
            continue
        assert text in sensitive or _digest(text) in found or not text, text


def _without_registries(value: Any) -> Any:
    """The host's own profiles are looked up by entity: those of entities that are not there are in no view."""
    if isinstance(value, dict):
        kept = {key: item for key, item in value.items() if key != "security"}
        security = value.get("security")
        if isinstance(security, dict):
            kept["security"] = {key: item for key, item in security.items() if key not in ("objects", "data")}
        return {key: _without_registries(item) for key, item in kept.items()}
    return [_without_registries(item) for item in value] if isinstance(value, list) else value


def _leaves(value: Any) -> Iterator[str]:
    """The strings that somebody wrote, without the names of our own fields; a typed time carries no text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _TIMES:
                yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


_TIMES = {"created_at"}
CLOSED = {member.value for enum in (ContentType, MessageStatus, Role) for member in enum}


def _in_json_text(text: str, everything: str) -> bool:
    return dumps(text).decode()[1:-1] in everything


def _digest(text: str) -> str:
    import hashlib

    raw = decoded(text)
    return hashlib.sha256(text.encode() if raw is None else raw).hexdigest()


@pytest.mark.spec("VIEW-16")
@given(messages, st.sets(st.sampled_from(Capability)))
def test_what_is_not_granted_is_absent(message: Message, granted: set[Capability]) -> None:
    for view in iter_views(message, capabilities=granted):
        shown = view.to_dict()["extensions"]
        security = shown.get("security", {})
        subject = security.get("subject", {})
        reads_headers = granted & {Capability.READ_HEADERS, Capability.WRITE_HEADERS}
        assert ("agent" in shown) <= (Capability.READ_AGENT in granted)
        assert ("http" in shown) <= bool(reads_headers)
        assert ("delegation" in shown) <= (Capability.READ_DELEGATION in granted)
        assert ("labels" in security) == (Capability.READ_LABELS in granted)
        assert ("object" in security) <= (Capability.READ_OBJECTS in granted)
        assert ("data_policy" in security) <= (Capability.READ_DATA in granted)
        assert not {"objects", "data"} & security.keys()
        for field, capability in SUBJECT_FIELDS.items():
            assert (field in subject) <= (capability in granted)
        if Capability.READ_AGENT not in granted:
            assert "session_id" not in view.properties.get("message", {})


@pytest.mark.spec("VIEW-16")
@given(messages)
def test_a_reader_with_every_capability_sees_what_the_host_sees(message: Message) -> None:
    host = [view.to_dict() for view in iter_views(message)]
    reader = [view.to_dict() for view in iter_views(message, capabilities=list(Capability))]

    def full(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for document in documents:
            security = document["extensions"].get("security", {})
            if not security.get("subject", True):
                security.pop("subject")
        return documents

    assert full(host) == full(reader)


@pytest.mark.spec("MSG-12")
@given(st.dictionaries(st.sampled_from(["role", "content", "id", "status", "extensions", "zz"]), json_value))
def test_any_object_is_a_message_or_an_error_of_ours(body: dict[str, Any]) -> None:
    try:
        message = Message.model_validate(body)
    except CmfError:
        return
    assert loads(message.model_dump_json())["role"] == body["role"]
