"""Arguments that a server wants in headers too, as its lists of tools declare. Spec: mcp-proxy.md."""

from __future__ import annotations

from typing import Any

import pytest
from tests.pipeline.mcp.pairs import call

from pipeline.mcp import http_server
from pipeline.mcp.http_server import ParamHeaders


def listed(*tools: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "result": {"tools": list(tools)}}


def tool(properties: Any, name: str = "look") -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def declared(header: Any, kind: Any = "string") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def called(**arguments: Any) -> dict[str, Any]:
    return call("tools/call", {"name": "look", "arguments": arguments})


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize("answer", [None, [], {}, {"error": {}}, {"result": 1}, {"result": {"tools": {}}}])
def test_an_answer_without_a_list_declares_nothing(answer: Any) -> None:
    params = ParamHeaders()

    params.learn(answer)

    assert params.of(called(region="eu")) is None


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize(
    "properties",
    [
        {"region": declared("a b")},
        {"region": declared("a\r\nx")},
        {"region": declared("")},
        {"region": declared("x" * 65)},
        {"region": declared(1)},
        {"region": declared("Region", "object")},
        {"region": declared("Region", ["string"])},
        {"region": declared("Region"), "other": declared("region")},
        {"region": declared("Region"), "other": {"properties": {"a": declared("é")}}},
        {"region": True},
        [],
    ],
)
def test_a_tool_with_an_invalid_declaration_gets_no_header(properties: Any) -> None:
    params = ParamHeaders()

    params.learn(listed(tool(properties)))

    assert params.of(called(region="eu", other="x")) == {}


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize("listed_tool", [1, {"inputSchema": {}}, {"name": 1}, {"name": "look", "inputSchema": 1}])
def test_what_is_no_tool_declares_nothing(listed_tool: Any) -> None:
    params = ParamHeaders()

    params.learn(listed(listed_tool))

    assert not params.of(called(region="eu"))


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu", "eu"),
        ("", ""),
        ("für", "=?base64?ZsO8cg==?="),
        ("a\r\nhost: x", "=?base64?YQ0KaG9zdDogeA==?="),
        (" eu", "=?base64?IGV1?="),
        (True, "true"),
        (False, "false"),
        (7, "7"),
        (1.5, "1.5"),
    ],
)
def test_a_declared_argument_has_its_header(value: Any, header: str) -> None:
    params = ParamHeaders()
    params.learn(listed(tool({"deep": {"type": "object", "properties": {"region": declared("Region")}}})))

    assert params.of(called(deep={"region": value})) == {"mcp-param-region": header}


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize("kind", ["boolean", "integer", "number", "string"])
def test_an_argument_of_any_plain_type_may_be_declared(kind: str) -> None:
    params = ParamHeaders()
    params.learn(listed(tool({"region": declared("Region", kind)})))

    assert params.of(called(region=7)) == {"mcp-param-region": "7"}


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"region": {}}, {"region": ["eu"]}, {"other": "eu"}])
def test_an_argument_that_is_absent_or_no_plain_value_has_no_header(arguments: Any) -> None:
    params = ParamHeaders()
    params.learn(listed(tool({"region": declared("Region")})))

    assert params.of(called(**arguments)) == {}


@pytest.mark.spec("MCPX-68")
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (call("tools/list", {}), {}),
        (call("tools/call"), None),
        (call("tools/call", {"arguments": {}}), None),
        (call("tools/call", {"name": "look"}), {}),
        (call("tools/call", {"name": "look", "arguments": ["eu"]}), {}),
    ],
)
def test_only_calls_of_known_tools_have_headers(body: Any, headers: Any) -> None:
    params = ParamHeaders()
    params.learn(listed(tool({"region": declared("Region")})))

    assert params.of(body) == headers


@pytest.mark.spec("MCPX-68")
def test_the_newest_list_counts_and_the_oldest_tools_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "MAX_TOOLS", 2)
    params = ParamHeaders()
    params.learn(listed(tool({"region": declared("Region")}), tool({}, "b")))
    params.learn(listed(tool({"region": declared("Place")})))

    assert params.of(called(region="eu")) == {"mcp-param-place": "eu"}
    params.learn(listed(tool({}, "c")))
    assert params.of(call("tools/call", {"name": "b"})) is None
    assert params.of(called(region="eu")) == {"mcp-param-place": "eu"}
