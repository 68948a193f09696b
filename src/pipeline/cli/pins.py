"""`cmf pins`: tool definitions as policy data that pins them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cmf.enums import ViewKind
from cmf.errors import ShapeError
from pipeline.cli.options import File, From
from pipeline.cli.reading import one_line_errors, tools_in
from pipeline.decisions.display import escaped_json

if TYPE_CHECKING:
    from cmf.message.tools import ToolDefinition

_SHOWN: Final = ("type", "input_schema", "side_effects", "extra")


def command(
    file: File,
    source: From,
    namespace: Annotated[str | None, typer.Option("--namespace", help="The server that the tools belong to.")] = None,
) -> None:
    """Print the tool definitions of a request or an MCP `tools/list` result as data that pins them."""
    with one_line_errors(file):
        pins = pins_of(tools_in(file, source), namespace)
    data = {"cmf": {"defaults": {"tools": {"definition_pinned": {"pins": pins}}}}}
    typer.echo(escaped_json(data))


def pins_of(tools: Sequence[ToolDefinition], namespace: str | None) -> dict[str, Any]:
    """Tool URI → its definition as shown in its view, which `tools/definition_pinned` compares.

    Raises:
        ShapeError: there is no tool, or two different ones share a URI.
    """
    from cmf.json.value import replace
    from cmf.message.request import Request
    from cmf.views.iterate import iter_views

    if not tools:
        raise ShapeError("no tool definitions found", path="$", hint="give a request, or a tools/list result")
    named = [tool if namespace is None else replace(tool, namespace=namespace) for tool in tools]
    pins: dict[str, Any] = {}
    for view in iter_views(Request(messages=(), tools=tuple(named))):
        if view.kind is not ViewKind.TOOL_DEFINITION:
            continue
        shown = view.to_dict()
        properties = shown["properties"]
        pin = {name: properties[name] for name in _SHOWN if name in properties}
        if "content" in shown:
            pin["description"] = shown["content"]
        if properties["executed_by"] != "client":
            pin["executed_by"] = properties["executed_by"]
        if pins.setdefault(shown["uri"], pin) != pin:
            hint = "remove one of them"
            raise ShapeError("two different definitions of the same tool", path=shown["path"], hint=hint)
    return dict(sorted(pins.items()))
