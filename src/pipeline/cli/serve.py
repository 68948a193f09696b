"""`cmf serve`: the gateway. Spec: docs/spec/cli.md [CLI-61]."""

from __future__ import annotations

import asyncio
import errno
import importlib.resources
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from pipeline.cli.config import DEFAULT, ConfigOption, load_settings, reviewed
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.decisions.errors import needs

if TYPE_CHECKING:
    from pipeline.gateway.config.settings import Settings

_BINDING: Final = {
    errno.EADDRINUSE: "stop the program that listens there, or give another port ({option})",
    errno.EACCES: "use port 1024 or higher",
    errno.EADDRNOTAVAIL: "use an address of this machine, or 0.0.0.0 for all",
}


def command(
    context: typer.Context,
    config: ConfigOption = DEFAULT,
    demo: Annotated[
        bool, typer.Option("--demo", help="Use scripted replies instead of providers: needs no settings and no keys.")
    ] = False,
    port: Annotated[
        int | None, typer.Option("--port", min=0, max=65535, help="The port, instead of the one in the settings.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log requests.")] = False,
) -> None:
    """Serve models to clients of OpenAI, Anthropic, Gemini and Ollama; every request and reply is judged.

    Exit codes: 0 ended, 2 settings, 3 policy does not compile, 5 the store cannot be opened.
    """
    from pipeline.decisions.json_log import log_to_standard_error

    with needs("gateway"):
        from pipeline.gateway.http.server import allow_files
        from pipeline.gateway.processes import workers
        from pipeline.gateway.processes.workers import admin_app, run

    source = context.get_parameter_source("config")
    if demo and (source is None or source.name != "DEFAULT"):
        fail("--demo has its own settings: leave out --config or --demo", Exit.USAGE)
    with one_line_errors(), _settings(None if demo else config) as settings, ExitStack() as opened:
        log_to_standard_error(quiet=quiet)
        allow_files(settings.limits)
        at = settings.listen if port is None else settings.listen.model_copy(update={"port": port})
        clients = opened.enter_context(_listening(at.host, at.port))
        beside = None
        if settings.admin is not None:
            beside = opened.enter_context(_listening(settings.admin.host, settings.admin.port, "admin.port"))
        review = opened.enter_context(reviewed(settings))
        if settings.workers > 1:
            _announce(clients, beside, demo=demo)
            asyncio.run(workers.serve(settings, clients, beside, quiet=quiet, review=review))
            return
        # Imports the engine: the workers' parent, above, saves 19 MB without it.
        from pipeline.gateway.service import assembled, vet_policies

        vet_policies(settings)
        service = opened.enter_context(assembled(settings))
        _announce(clients, beside, demo=demo)
        asyncio.run(run(service, settings, clients, admin_app(settings, service.operations, review), beside))


def _announce(clients: socket.socket, beside: socket.socket | None, *, demo: bool) -> None:
    from pipeline.gateway.http.server import address_of

    typer.echo(f"gateway: http://{address_of(clients)}")
    if beside is not None:
        typer.echo(f"operations: http://{address_of(beside)}")
    if demo:
        said = "replies come from a script, nothing leaves this machine; use the key `demo`, or none"
        typer.echo(f"demo: {said}", err=True)


@contextmanager
def _settings(config: Path | None) -> Iterator[Settings]:
    if config is not None:
        yield load_settings(config).settings
        return
    place = importlib.resources.files("pipeline").joinpath("gateway", "demo.yaml")
    with importlib.resources.as_file(place) as file, tempfile.TemporaryDirectory() as scratch:
        yield load_settings(file).settings.model_copy(update={"store": Path(scratch) / "demo.db"})


@contextmanager
def _listening(host: str, port: int, option: str = "--port, 0 for any") -> Iterator[socket.socket]:
    from pipeline.gateway.http.server import listening

    try:
        bound = listening(host, port)
    except OSError as error:
        hint = _BINDING.get(error.errno or 0, "check the address").format(option=option)
        fail(f"{host} port {port} cannot be used: {str(error.strerror).lower()}; {hint}", Exit.USAGE)
    with bound:
        yield bound
