"""Tool definitions, their registry and their schemas."""

from __future__ import annotations

from typing import Any

import pytest

from cmf import Request, ToolDefinition, iter_views
from cmf.errors import ToolNameError, ToolSchemaError, UnknownToolError
from cmf.message.tools import ToolRegistry, input_problem, schema_findings


def tool(name: str = "read_file", schema: Any = None, **fields: Any) -> ToolDefinition:
    return ToolDefinition(name=name, input_schema=schema, **{"side_effects": "read", **fields})


@pytest.mark.spec("TOOL-2")
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"$ref": "#/x"}, "$.$ref"),
        ({"oneOf": []}, "$.oneOf"),
        ({"anyOf": []}, "$.anyOf"),
        ({"allOf": []}, "$.allOf"),
        ({"not": {}}, "$.not"),
        ({"if": {}}, "$.if"),
        ({"patternProperties": {}}, "$.patternProperties"),
        ({"additionalProperties": {"type": "string"}}, "$.additionalProperties"),
        ({"type": "array", "items": {"oneOf": []}}, "$.items.oneOf"),
        ({"properties": {"a": {"properties": {"b": {"const": 1}}}}}, "$.properties.a.properties.b.const"),
        ({"minimum": 1}, "$.minimum"),
        ({"type": "date"}, "$.type"),
        ({"type": ["string", "integer"]}, "$.type"),
        ({"type": ["string", "integer", "null"]}, "$.type"),
        ({"type": [{}, "null"]}, "$.type"),
        ({"properties": []}, "$.properties"),
        ({"properties": {"a": True}}, "$.properties.a"),
        ({"items": [{}]}, "$.items"),
    ],
)
def test_a_construct_outside_the_subset_is_refused_with_its_path(schema: dict[str, Any], path: str) -> None:
    with pytest.raises(ToolSchemaError) as caught:
        ToolRegistry().register(tool(schema=schema))

    assert caught.value.path == path
    assert [finding.path for finding in schema_findings(schema)] == [path]


@pytest.mark.spec("TOOL-2")
def test_the_whole_subset_is_accepted() -> None:
    schema = {
        "type": "object",
        "title": "T",
        "description": "d",
        "properties": {
            "a": {"type": ["string", "null"], "format": "date", "default": None, "enum": ["x", None]},
            "b": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["a"],
        "additionalProperties": False,
    }

    ToolRegistry([tool(schema=schema), tool("other", {}), tool("third")])


@pytest.mark.spec("TOOL-1")
@pytest.mark.parametrize("name", ["ReadFile", "read-file", "1read", "read__file", "", "read_", "read\n", "läsa"])
def test_a_name_that_is_not_snake_case_is_refused(name: str) -> None:
    with pytest.raises(ToolNameError):
        ToolRegistry([tool(name)])


@pytest.mark.spec("TOOL-1")
def test_a_name_is_taken_once_in_a_namespace_and_side_effects_are_declared() -> None:
    registry = ToolRegistry([tool(), tool(namespace="fs")])

    with pytest.raises(ToolNameError, match="already"):
        registry.register(tool())
    with pytest.raises(ToolSchemaError, match="side effects"):
        registry.register(tool("x", side_effects=None))
    assert len(registry) == len(list(registry)) == 2


@pytest.mark.spec("TOOL-3")
def test_a_bare_name_finds_only_what_is_unambiguous() -> None:
    registry = ToolRegistry([tool("a", namespace="x"), tool("b", namespace="x"), tool("b", namespace="y"), tool("c")])

    assert registry.find("a").namespace == "x"
    assert registry.find("b", "y").namespace == "y"
    assert registry.find("c").namespace is None
    for name, namespace in (("b", None), ("d", None), ("a", "y"), ("c", "x")):
        with pytest.raises(UnknownToolError):
            registry.find(name, namespace)


@pytest.mark.spec("TOOL-4")
def test_a_wire_tool_is_kept_verbatim_and_policy_is_shown_its_findings() -> None:
    wild = ToolDefinition(name="Wild Name", input_schema={"oneOf": [{"type": "string"}]})

    view = list(iter_views(Request(tools=[wild])))[1]

    assert view.properties["schema_findings"] == [{"path": "$.oneOf", "problem": "this keyword is not allowed"}]
    assert view.properties["input_schema"] == {"oneOf": [{"type": "string"}]}
    assert "schema_findings" not in list(iter_views(Request(tools=[tool(schema={})])))[1].properties


@pytest.mark.spec("TOOL-5")
@pytest.mark.parametrize(
    ("schema", "arguments", "path"),
    [
        (None, {"a": 1}, None),
        ({"type": "object", "required": ["a"]}, {}, "$"),
        ({"properties": {"a": {"type": "string"}}}, {"a": 1}, "$.a"),
        ({"properties": {"a": {"items": {"enum": [1]}}}}, {"a": [1, 2]}, "$.a[1]"),
        ({"properties": {"a": {"type": "string"}}}, {"a": "x"}, None),
        ({"$ref": "https://elsewhere.example/schema"}, {}, "$"),
        ({"type": 7}, {}, "$"),
    ],
)
def test_arguments_are_held_to_the_schema(schema: Any, arguments: Any, path: str | None) -> None:
    assert input_problem(tool(schema=schema), arguments) == path
