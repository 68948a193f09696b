"""`cmf serve` and `cmf config`: the gateway, and what it is told to do."""

from __future__ import annotations

import importlib.resources
import logging
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
import uvicorn
import yaml

from cmf.codec import dumps
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.gateway.app import Gateway
from pipeline.gateway.config_file import Loaded, load
from pipeline.gateway.identity import hash_of, new_key
from pipeline.gateway.service import built
from pipeline.gateway.settings import Listen, Settings

GRACE_SECONDS = 20  # what is in work may end, then it is ended
BACKLOG = 1024


def serve(*, config: Path, demo: bool, port: int | None, quiet: bool) -> None:
    """Serve until it is interrupted, and then let what is in work end."""
    with one_line_errors(), _settings(config, demo=demo) as settings:
        listen = settings.listen if port is None else settings.listen.model_copy(update={"port": port})
        log_to_standard_error(quiet=quiet)
        with built(settings) as gateway, _listening(listen) as listening:
            host, bound = listening.getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            typer.echo(f"gateway: http://{shown}:{bound}")
            if demo:
                typer.echo("demo: a script answers, nothing leaves this machine; key `demo`, or none", err=True)
            try:
                server_of(gateway).run(sockets=[listening])
            except KeyboardInterrupt:
                raise typer.Exit(int(Exit.OK)) from None


def server_of(gateway: Gateway) -> uvicorn.Server:
    """The HTTP server: strict, silent about itself, and it lets what is in work end."""
    logging.getLogger("uvicorn.access").disabled = True  # its lines hold paths, which are the client's words
    return uvicorn.Server(
        uvicorn.Config(
            gateway,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            loop="asyncio",
            http="h11",
            ws="none",
            backlog=BACKLOG,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE_SECONDS,
            h11_max_incomplete_event_size=32 * 1024,
        )
    )


def show(config: Path, *, as_json: bool) -> None:
    """Print what holds, value by value, with where it was said."""
    with one_line_errors():
        loaded = load(config)
    if as_json:
        values = {path: {"value": value, "source": source} for path, value, source in loaded.effective()}
        typer.echo(dumps(values).decode())
        return
    for path, value, source in loaded.effective():
        typer.echo(f"{path:<40} {value:<40} {source}".rstrip())


def check(config: Path) -> None:
    """Read everything that serving reads, and say whether it could begin; the store is not touched."""
    with one_line_errors():
        loaded = load(config)
        with tempfile.TemporaryDirectory() as scratch:
            settings = loaded.settings.model_copy(update={"store": Path(scratch) / "check.db"})
            with built(settings):
                pass
    routes, upstreams = len(loaded.settings.routes), len(loaded.settings.upstreams)
    typer.echo(f"ok: {routes} route{'s'[: routes != 1]}, {upstreams} upstream{'s'[: upstreams != 1]}")


def make_key(name: str, subject: str, roles: Sequence[str]) -> None:
    """Print a new key once, on standard error, and what belongs in the file on standard output."""
    key = new_key()
    who: dict[str, object] = {"id": subject} | ({"roles": list(roles)} if roles else {})
    typer.echo(yaml.safe_dump([{"name": name, "hash": hash_of(key), "subject": who}], sort_keys=False), nl=False)
    typer.echo(f"the key, shown once: {key}", err=True)


@contextmanager
def _settings(config: Path, *, demo: bool) -> Iterator[Settings]:
    if not demo:
        yield load(config).settings
        return
    place = importlib.resources.files("pipeline").joinpath("gateway", "demo.yaml")
    with importlib.resources.as_file(place) as file, tempfile.TemporaryDirectory() as scratch:
        loaded: Loaded = load(file)
        yield loaded.settings.model_copy(update={"store": Path(scratch) / "demo.db"})


@contextmanager
def _listening(listen: Listen) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((listen.host, listen.port))
            listening.listen(BACKLOG)
        except (OSError, OverflowError):
            fail(f"{listen.host} port {listen.port} cannot be used; give another one, or 0 for any", Exit.USAGE)
        yield listening


def log_to_standard_error(*, quiet: bool) -> None:
    """Write the log of what is served, one line each, beside what the command says."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger("pipeline")
    log.addHandler(handler)
    log.setLevel(logging.WARNING if quiet else logging.INFO)


__all__ = ["check", "log_to_standard_error", "make_key", "serve", "server_of", "show"]
