"""`cmf playground`: a local page for trying out policies while typing."""

from __future__ import annotations

import secrets
from pathlib import Path

import typer

from pipeline.authoring.playground.project import Project
from pipeline.cli.reading import one_line_errors
from pipeline.decisions.errors import needs

with needs("review"):
    from pipeline.authoring.playground.server import build_app
    from pipeline.cli.local_page import HOST, listening_at, own_hosts, serve


def run(*, port: int, policies: Path | None, readonly: bool) -> None:
    """Serve the page on the loopback interface until interrupted; print its address."""
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


__all__ = ["run"]
