"""`cmf playground`: a local page for trying out policies while typing."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.reading import one_line_errors
from pipeline.decisions.errors import needs


def command(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8787,
    policies: Annotated[
        Path | None,
        typer.Option("--policies", "-p", metavar="DIR", help="A project or its policies; by default the current one."),
    ] = None,
    readonly: Annotated[bool, typer.Option("--readonly", help="Never write: cases cannot be saved.")] = False,
) -> None:
    """Try out policies as you type, on a local web page; nothing leaves this machine."""
    with needs("review"):
        from pipeline.authoring.playground.project import Project
        from pipeline.authoring.playground.server import build_app
        from pipeline.cli.review import HOST, listening_at, own_hosts, serve

    directory = policies or (Path() if (Path() / "policy").is_dir() else None)
    with one_line_errors():
        project = None if directory is None else Project.at(directory)
        if project is not None:
            project.files()
    listening = listening_at(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    app = build_app(token=token, hosts=own_hosts(port), project=project, readonly=readonly)
    typer.echo(f"playground: http://{HOST}:{port}/#t={token}")
    serve(app, listening)
