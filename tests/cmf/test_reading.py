"""Reading parsed JSON in one pass gives what pydantic gives, and never more."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf import Message, Request, Response
from cmf.codec import dumps, loads
from cmf.errors import CmfError
from cmf.frozen import FrozenDict
from cmf.reading import read
from tests.cmf.strategies import extra, json_value, values

PLAIN = {
    "role": "assistant",
    "content": [
        {"content_type": "thinking", "text": "hm"},
        {"content_type": "tool_call", "tool_call_id": "c", "name": "f", "arguments": {"a": [1, {"b": 1.0}]}},
        {"content_type": "tool_result", "tool_name": "f", "content": {"rows": [1]}},
        {"content_type": "tool_result", "content": [{"content_type": "text", "text": "x"}]},
        {"content_type": "resource", "uri": "file:///a", "blob": "aGk="},
    ],
    "created_at": "2026-11-02T10:15:00Z",
    "extensions": {
        "request": {"environment": "production"},
        "http": {"headers": {"Accept": "a"}},
        "security": {
            "labels": ["pii"],
            "subject": {"id": "ann", "type": "user", "roles": ["b", "a"], "claims": {"iss": "x"}},
            "objects": {"f": {"managed_by": "tool", "permissions": ["p"]}},
            "data": {"f": {"retention": {"max_age_seconds": 1}}},
        },
        "meta": {"tags": ["t"], "properties": {"duration_ms": 1}},
    },
}


def by_pydantic(cls: Any, text: bytes) -> Any:
    try:
        return cls.model_validate(loads(text))
    except CmfError:
        return None


def spelt_out(value: Any) -> Any:
    """Every field with its type: equality alone would take a text for an enum, or 1 for 1.0."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: spelt_out(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return type(value).__name__, fields
    if isinstance(value, dict):
        assert isinstance(value, FrozenDict)
        return {key: spelt_out(item) for key, item in value.items()}
    if isinstance(value, list | tuple | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return type(value).__name__, [spelt_out(item) for item in items]
    return type(value).__name__, value


def places(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


def changed(node: Any, path: tuple[Any, ...], change: Any) -> Any:
    if not path:
        return change(node)
    inner = changed(node[path[0]], path[1:], change)
    if isinstance(node, dict):
        return {**node, path[0]: inner}
    return [inner if index == path[0] else item for index, item in enumerate(node)]


@pytest.mark.spec("MSG-3")
def test_what_no_type_allows_is_left_to_pydantic() -> None:
    for path, wrong in [
        (("role",), "wizard"),
        (("schema_version",), 99),
        (("provider_raw",), {}),
        (("content",), {}),
        (("content", 0, "content_type"), "hologram"),
        (("content", 0, "content_type"), ["text"]),
        (("role",), ["user"]),
        (("content", 0, "text"), 1),
        (("content", 0, "extra"), []),
        (("content", 0), "text"),
        (("content", 1, "executed_by"), "nobody"),
        (("content", 2, "is_error"), 1),
        (("content", 2, "content"), [{"content_type": "text"}]),
        (("content", 2, "content"), [{"content_type": "hologram"}]),
        (("content", 4, "content"), "both"),
        (("created_at",), "yesterday"),
        (("extensions",), []),
        (("extensions", "request"), []),
        (("extensions", "agent"), {"turn": -1}),
        (("extensions", "agent"), {"turn": True}),
        (("extensions", "http", "headers"), []),
        (("extensions", "http", "headers", "Accept"), 1),
        (("extensions", "security", "labels"), "pii"),
        (("extensions", "security", "labels"), [1]),
        (("extensions", "security", "objects"), []),
        (("extensions", "security", "data", "f", "unknown"), 1),
    ]:
        text = dumps(changed(PLAIN, path[:-1], lambda node, at=path[-1], to=wrong: _with(node, at, to)))

        assert read(Message, loads(text)) is None, path


def _with(node: Any, key: Any, item: Any) -> Any:
    return (
        {**node, key: item} if isinstance(node, dict) else [item if at == key else old for at, old in enumerate(node)]
    )


@pytest.mark.spec("MSG-3")
def test_a_plain_message_is_read_here() -> None:
    found = read(Message, loads(dumps(PLAIN)))

    assert found == Message.model_validate(loads(dumps(PLAIN)))
    assert Message.model_validate_json(dumps(PLAIN)) == found


@pytest.mark.spec("MSG-3")
@given(values)
def test_what_is_read_is_what_pydantic_reads(value: Any) -> None:
    text = value.model_dump_json()
    found = read(type(value), loads(text))

    assert found is None or (found == value and spelt_out(found) == spelt_out(by_pydantic(type(value), text)))


@pytest.mark.spec("MSG-3")
@given(values, st.data())
def test_what_pydantic_refuses_is_not_read(value: Any, data: st.DataObject) -> None:
    body = data.draw(st.just(loads(dumps(PLAIN))) if isinstance(value, Message) else st.just(value.model_dump()))
    path = data.draw(st.sampled_from(places(body)))
    key = data.draw(st.sampled_from(["content_type", "type", "name", "x", "schema_version", "provider_raw"]))
    item = data.draw(json_value | extra | st.just("text"))
    for change in (
        lambda node: item,
        lambda node: {**node, key: item} if isinstance(node, dict) else [node],
        lambda node: dict(list(node.items())[1:]) if isinstance(node, dict) else None,
    ):
        text = dumps(changed(body, path, change))
        for cls in (Message, Request, Response):
            found, expected = read(cls, loads(text)), by_pydantic(cls, text)

            assert found is None or (
                expected is not None and found == expected and spelt_out(found) == spelt_out(expected)
            )
