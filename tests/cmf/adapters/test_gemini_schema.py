"""Gemini's older schemas are JSON Schema in capitals; the canonical one is JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.adapters.gemini.request import lowered, raised
from cmf.json.frozen import freeze
from cmf.json.value import replace
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.gemini_bodies import asked, kept, shown

UPPER = {
    "type": "OBJECT",
    "properties": {
        "type": {"type": "STRING", "enum": ["STRING", "other"]},
        "list": {"type": "ARRAY", "items": {"anyOf": [{"type": "INTEGER"}, {"type": "NULL"}]}},
    },
    "required": ["type"],
    "propertyOrdering": ["type", "list"],
}
LOWER = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "enum": ["STRING", "other"]},
        "list": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
    },
    "required": ["type"],
    "propertyOrdering": ["type", "list"],
}


def _tools(schema: Any) -> dict[str, Any]:
    return asked({"text": "hi"}, tools=[{"functionDeclarations": [{"name": "f", "parameters": schema}]}])


@pytest.mark.spec("GEM-25")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "OBJECT", "properties": {"a": {"type": "string"}}},
        {"type": "OBJECT", "properties": {"a": {"type": "SECRET"}}},
        {"type": ["OBJECT", "NULL"]},
        {"type": "OBJECT", "anyOf": [{"type": 1}], "properties": "odd", "items": "odd"},
        {"description": "no type"},
        {},
    ],
)
def test_a_schema_in_other_words_stays_as_it_is(schema: dict[str, Any]) -> None:
    request = kept(_tools(schema))

    assert request.tools[0].input_schema == schema
    assert all(text in shown(request) for text in map(str, schema.values()) if text.isalnum())


@pytest.mark.spec("GEM-25")
def test_a_schema_in_capitals_is_json_schema_and_goes_back_in_capitals() -> None:
    request = kept(_tools(UPPER) | {"generationConfig": {"responseSchema": UPPER}})

    assert request.tools[0].input_schema == LOWER
    assert request.response_schema == LOWER
    for name in ("openai_chat", "anthropic_messages"):
        written = get(name).to_wire(replace(request, response_schema=None))
        assert "OBJECT" not in str(written)


@pytest.mark.spec("GEM-25")
def test_a_schema_that_was_edited_goes_back_in_capitals_too() -> None:
    request = kept(_tools(UPPER))
    edited = replace(request.tools[0], input_schema=freeze({"type": "object", "properties": {"a": {"type": "string"}}}))

    wire = get("gemini").to_wire(replace(request, tools=(edited,)))

    declared = wire["tools"][0]["functionDeclarations"][0]
    assert declared == {"name": "f", "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}}


@pytest.mark.spec("GEM-25")
def test_a_foreign_schema_is_written_under_the_newer_name() -> None:
    tool = ToolDefinition(name="f", input_schema=freeze(LOWER))
    request = replace(kept(asked({"text": "hi"})), tools=(tool,))

    declared = get("gemini").to_wire(request)["tools"][0]["functionDeclarations"][0]

    assert declared == {"name": "f", "parametersJsonSchema": LOWER}


_SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["STRING", "NUMBER", "string", "odd", 1])}),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["OBJECT", "ARRAY"])},
        optional={"properties": st.dictionaries(st.text(max_size=4), inner), "items": inner, "anyOf": st.lists(inner)},
    ),
    max_leaves=8,
)


@pytest.mark.spec("GEM-25")
@given(schema=_SCHEMAS)
def test_what_is_lowered_is_raised_again(schema: dict[str, Any]) -> None:
    lower = lowered(freeze(schema))

    assert lower is None or raised(lower) == schema
