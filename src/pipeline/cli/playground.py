"""`cmf playground`: a local page on which policy is tried out while it is typed."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

import typer
import uvicorn

from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.playground.project import Project
from pipeline.playground.server import build_app

HOST = "127.0.0.1"


def run(*, port: int, policies: Path | None, readonly: bool) -> None:
    """Serve the page on this machine alone until it is interrupted; print the address that opens it."""
    directory = policies or (Path() if (Path() / "policy").is_dir() else None)
    with one_line_errors():
        project = None if directory is None else Project.at(directory)
        if project is not None:
            project.files()
    listening = listening_at(port)
    port = listening.getsockname()[1]
    token = secrets.token_urlsafe(24)
    hosts = frozenset({f"{HOST}:{port}", f"localhost:{port}"})
    app = build_app(token=token, hosts=hosts, project=project, readonly=readonly)
    typer.echo(f"playground: http://{HOST}:{port}/#t={token}")
    typer.echo("this machine alone can reach it; Ctrl-C ends it", err=True)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            limit_concurrency=64,
            timeout_keep_alive=10,
            timeout_graceful_shutdown=1,
        )
    )
    try:
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        raise typer.Exit(int(Exit.OK)) from None


def listening_at(port: int) -> socket.socket:
    """A socket on this machine alone; the command ends where the port cannot be used."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except (OSError, OverflowError):
        listening.close()
        fail(f"port {port} cannot be used; give another one with --port, or 0 for any", Exit.USAGE)
    return listening


__all__ = ["HOST", "listening_at", "run"]
