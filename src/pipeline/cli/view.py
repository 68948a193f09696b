"""`cmf view`: what a policy sees of a file."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.text import Text

from pipeline.cli.options import File, FromOrSeen, KindOrSeen
from pipeline.cli.reading import one_line_errors, read_wire
from pipeline.cli.rendering import console, write_line
from pipeline.decisions.display import escaped_json, rego_paths, visible

ViewFormat = Literal["tree", "json", "paths"]


def command(
    file: File,
    source: FromOrSeen = None,
    kind: KindOrSeen = None,
    output: Annotated[ViewFormat, typer.Option("--format", help="The output format.")] = "tree",
) -> None:
    """Show what a policy sees of FILE: every value with its Rego path."""
    from cmf.views.iterate import iter_views

    with one_line_errors(file):
        documents = [view.to_dict() for view in iter_views(read_wire(file, source, kind).traffic)]
    if output == "json":
        write_line(documents)
        return
    if output == "paths":
        for document in documents:
            for path, item in rego_paths(document):
                typer.echo(f"{document['path']}\t{path}\t{escaped_json(item)}")
        return
    out = console()
    for document in documents:
        uri = f"  {visible(document['uri'])}" if "uri" in document else ""
        out.print(Text.assemble((document["path"], "bold"), f"  {document['kind']}{uri}"))
        for path, item in rego_paths(document):
            value = Text(escaped_json(item), "green" if isinstance(item, str) else "cyan")
            out.print(Text.assemble(f"  {path} = ", value))
