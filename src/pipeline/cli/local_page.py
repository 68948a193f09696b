"""Serving pages on the loopback interface while a command runs."""

from __future__ import annotations

import socket

import typer

from pipeline.cli.reading import Exit, fail
from pipeline.decisions.errors import needs

with needs("review"):
    import uvicorn
    from starlette.types import ASGIApp

HOST = "127.0.0.1"
_KEEP_ALIVE_SECONDS = 10


def listening_at(port: int) -> socket.socket:
    """A socket on the loopback interface; the command fails if the port cannot be used."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except (OSError, OverflowError):
        listening.close()
        fail(f"port {port} cannot be used; give another one with --port, or 0 for any free one", Exit.USAGE)
    return listening


def own_hosts(port: int) -> frozenset[str]:
    """The `Host` headers of a local browser; any other may be a foreign page (DNS rebinding)."""
    return frozenset({f"{HOST}:{port}", f"localhost:{port}"})


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until interrupted, which is the normal end."""
    typer.echo("reachable from this machine only; press Ctrl-C to stop", err=True)
    settings = uvicorn.Config(
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
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    except KeyboardInterrupt:
        raise typer.Exit(int(Exit.OK)) from None
