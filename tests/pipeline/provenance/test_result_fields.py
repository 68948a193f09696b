"""Text is read into fields only where no other reading is possible."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cmf.message.message import ToolCallPart, ToolResultPart
from pipeline.provenance.result_fields import argument_values, read_fields, result_values

JSON_TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=8)
DOCUMENT = st.recursive(
    JSON_TEXT | st.integers(-9, 9) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(JSON_TEXT, inner, max_size=3),
    max_leaves=8,
).filter(lambda document: isinstance(document, list | dict))


@pytest.mark.spec("PROV-7")
@pytest.mark.parametrize(
    "text",
    [
        "- &a x\n- *a",
        "- *a\n- x",
        "a: !!str 5",
        "a: &x y",
        "a: 1\na: 2",
        "? [a]\n: b",
        "--- \na: 1",
        "--- a: 1",
        "a: 1\n---\nb: 2",
        "{a: 1}",
        "[a, b]",
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": "x',
        "{'a': 'it\\'s \"x\"', 'b': 1}}",
        "{'a': 'it\\'s'}",
        "{'a': \"it's\" }",
        "{'a': (1, 2)}",
        "{1: 'a'}",
        "{'a': b'x'}",
        "{'a': '\\d'}",
        "{'a': " + "[" * 80 + "]" * 80 + "}",
        "[" * 500 + "]" * 500,
        "\n".join(f"{'  ' * depth}a:" for depth in range(80)),
        "just words",
        "Dear all:\nplease pay\nevil: now\n  x",
        "",
        "5",
        "'quoted' text",
        "a: [1",
    ],
)
def test_what_could_be_read_in_another_way_is_text(text: str) -> None:
    assert read_fields(text, "auto") is None


@pytest.mark.spec("PROV-7")
@pytest.mark.parametrize(
    ("form", "text"),
    [("json", "- a"), ("yaml", "['a']"), ("python", '{"a": null}'), ("text", '{"a": 1}'), ("yaml", "[1]")],
)
def test_only_the_stated_form_is_read(form: str, text: str) -> None:
    assert read_fields(text, form) is None


@pytest.mark.spec("PROV-7")
@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"a": [1, "x"]}', {"a": [1, "x"]}),
        ("- a: x\n  b: 'it''s: fine'\n- a: null\n", [{"a": "x", "b": "it's: fine"}, {"a": None}]),
        ("a: []\nb: 2024-05-26 17:00:00", {"a": [], "b": "2024-05-26 17:00:00"}),
        ("{'a': \"it's\", 'b': None}", {"a": "it's", "b": None}),
        ("{'a': 'x\\ny'}", {"a": "x\ny"}),
    ],
)
def test_what_tools_write_is_read(text: str, fields: Any) -> None:
    assert read_fields(text, "auto") == fields


@pytest.mark.spec("PROV-7")
@given(DOCUMENT)
def test_no_value_moves_to_another_field(document: Any) -> None:
    assert read_fields(json.dumps(document), "auto") == document
    assert read_fields(repr(document), "python") in (document, None)

    as_yaml = read_fields(yaml.safe_dump(document, default_flow_style=False), "yaml")
    assert as_yaml is None or spelled(as_yaml) == spelled(document)


def spelled(document: Any) -> Any:
    """Numbers as they are spelled in YAML, which has no types here."""
    if isinstance(document, dict):
        return {key: spelled(item) for key, item in document.items()}
    if isinstance(document, list):
        return [spelled(item) for item in document]
    return None if document is None else str(document)


@pytest.mark.spec("PROV-7")
def test_values_are_texts_and_numbers_and_of_a_picture_its_names() -> None:
    picture = {"content_type": "image", "type": "base64", "data": "QUJD", "media_type": "image/png"}
    link = {"content_type": "image", "type": "url", "data": "https://x.example/a.png"}
    text = {"content_type": "text", "text": '{"a": 1, "b": null, "c": true, "d": "e"}'}
    part = ToolResultPart.model_validate({"tool_call_id": "1", "content": [picture, link, text]})

    found = [(path[:1], value) for path, value in result_values(part, "auto") if path[1:] == ()]

    assert [value for path, value in found if not path] == ["base64", "image/png", "url", "https://x.example/a.png"]
    assert [value for path, value in found if path] == [1, "e"]


@pytest.mark.spec("PROV-7")
def test_arguments_that_are_no_object_are_one_text() -> None:
    assert list(argument_values(ToolCallPart(name="a", arguments_raw="[1"))) == [((), "[1")]
    assert list(argument_values(ToolCallPart(name="a", arguments_raw=""))) == []
    assert list(argument_values(ToolCallPart(name="a", arguments={"b": None, "c": True, "d": 2}))) == [(("d",), 2)]
