"""`cmf serve` and `cmf config`: the gateway and its settings."""

from __future__ import annotations

import asyncio
import errno
import importlib.resources
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import typer
import yaml

from cmf.json.codec import dumps
from pipeline.audit.heads import Signer
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.decisions.display import counted
from pipeline.decisions.errors import ConfigError, needs
from pipeline.decisions.json_log import log_to_standard_error

with needs("gateway"):
    from pipeline.gateway.auth.identity import hash_of, new_key
    from pipeline.gateway.config.config_file import Loaded, load
    from pipeline.gateway.config.settings import Audit, Settings
    from pipeline.gateway.http.server import address_of, allow_files, listening, server_of
    from pipeline.gateway.operations.admin import App
    from pipeline.gateway.processes import workers
    from pipeline.gateway.processes.running import admin_app, run

_BINDING: Final = {
    errno.EADDRINUSE: "stop the program that listens there, or give another port ({option})",
    errno.EACCES: "use port 1024 or higher",
    errno.EADDRNOTAVAIL: "use an address of this machine, or 0.0.0.0 for all",
}


def serve(config: Path | None, *, port: int | None, quiet: bool) -> None:
    """Serve until interrupted or terminated, then finish requests in flight. None serves the demo."""
    demo = config is None
    with one_line_errors(), _settings(config) as settings, ExitStack() as opened:
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
    typer.echo(f"gateway: http://{address_of(clients)}")
    if beside is not None:
        typer.echo(f"operations: http://{address_of(beside)}")
    if demo:
        typer.echo(
            "demo: replies come from a script, nothing leaves this machine; use the key `demo`, or none", err=True
        )


def show(config: Path, *, as_json: bool) -> None:
    """Print the effective settings, each with its origin."""
    with one_line_errors():
        loaded = load(config)
    if as_json:
        values = {path: {"value": value, "source": source} for path, value, source in loaded.effective()}
        typer.echo(dumps(values).decode())
        return
    shown = list(loaded.effective())
    widest = max(len(path) for path, _, _ in shown)
    for path, value, source in shown:
        typer.echo(f"{path:<{widest}} {value:<40} {source}".rstrip())


def check(config: Path) -> None:
    """Read everything that serving reads, and report whether it could start; the store is not touched."""
    with one_line_errors():
        from pipeline.gateway.service import vet_policies

        settings = load(config).settings
        vet_policies(settings)
        check_begins(settings)
        check_store(settings.store, "store")
        check_audit(settings.audit)
    typer.echo(f"ok: {served(settings)}")


def check_begins(settings: Settings) -> None:
    """Check that the gateway could start: secrets, scripts, profiles, policies and the rest are all read.

    Raises:
        ConfigError, PolicyError: why it could not.
    """
    from pipeline.gateway.service import built
    from pipeline.run.assembly import REDIS

    shared = settings.sessions.store
    with tempfile.TemporaryDirectory() as scratch:
        audit = settings.audit.model_copy(update={"key_file": None, "heads_file": None})
        scratched = {"store": Path(scratch) / "check.db", "watch": False, "audit": audit}
        if shared is not None and not shared.startswith(REDIS):
            scratched["sessions"] = settings.sessions.model_copy(update={"store": None})
            check_store(shared, "sessions.store")
        settings = settings.model_copy(update=scratched)
        with built(settings), reviewed(settings):
            pass


def served(settings: Settings) -> str:
    """A summary of what these settings serve."""
    parts = [counted(len(settings.routes), "route"), counted(len(settings.upstreams), "upstream")]
    parts += [counted(len(settings.mcp), "MCP server")] if settings.mcp else []
    parts += ["checks"] if settings.check is not None else []
    return ", ".join(parts)


def check_store(place: str | Path, setting: str) -> None:
    """Check that this user could open or create the store; servers are not contacted. ConfigError if not."""
    from pipeline.store.engine import file_of

    if (file := file_of(place)) is not None:
        _can_be_kept(file, setting)


def _can_be_kept(file: Path, setting: str) -> None:
    """Check that this user could open or create that file; ConfigError if not."""
    home = file.parent
    if not home.is_dir():
        raise ConfigError(f"the directory of `{setting}` does not exist", path=str(home), hint=f"mkdir -p {home}")
    for place in (home, *([file] if file.exists() else ())):
        if not os.access(place, os.R_OK | os.W_OK):
            hint = f"give this user write permission, or set another `{setting}`"
            raise ConfigError(f"this user cannot write `{setting}`", path=str(place), hint=hint)


def check_audit(audit: Audit) -> None:
    """Check that records could be signed and heads exported; ConfigError if not. No key is created."""
    if audit.heads_file is not None:
        _can_be_kept(audit.heads_file, "audit.heads_file")
    if audit.key_file is None:
        return
    if audit.key_file.exists():
        Signer.at(audit.key_file)
    else:
        _can_be_kept(audit.key_file, "audit.key_file")


def make_key(name: str, subject: str, roles: Sequence[str]) -> None:
    """Print a new key, once, on standard error, and its entry for the settings on standard output."""
    key = new_key()
    who: dict[str, object] = {"id": subject} | ({"roles": list(roles)} if roles else {})
    typer.echo(yaml.safe_dump([{"name": name, "hash": hash_of(key), "subject": who}], sort_keys=False), nl=False)
    typer.echo(f"the key, shown once: {key}", err=True)


def new() -> None:
    """Print initial settings; on standard error, the next steps and the key whose hash the settings hold, once."""
    key = new_key()
    text = importlib.resources.files("pipeline").joinpath("gateway", "begin.yaml").read_text(encoding="utf-8")
    typer.echo(text.replace("HASH", hash_of(key)), nl=False)
    typer.echo(f"a client's key, shown once: {key}", err=True)
    typer.echo("next: save this as cmf.yaml, set OPENAI_API_KEY, then: cmf config check && cmf serve", err=True)


@contextmanager
def _settings(config: Path | None) -> Iterator[Settings]:
    if config is not None:
        yield load(config).settings
        return
    place = importlib.resources.files("pipeline").joinpath("gateway", "demo.yaml")
    with importlib.resources.as_file(place) as file, tempfile.TemporaryDirectory() as scratch:
        loaded: Loaded = load(file)
        yield loaded.settings.model_copy(update={"store": Path(scratch) / "demo.db"})


@contextmanager
def reviewed(settings: Settings) -> Iterator[App | None]:
    """The review site inside the block; None if the settings have none. Errors: see `reviewing`."""
    if settings.review is None:
        yield None
        return
    from pipeline.gateway.review_site import reviewing  # costs 10 MB, so only imported if the site is on

    with reviewing(settings) as site:
        yield site


@contextmanager
def _listening(host: str, port: int, option: str = "--port, 0 for any") -> Iterator[socket.socket]:
    try:
        made = listening(host, port)
    except OSError as error:
        hint = _BINDING.get(error.errno or 0, "check the address").format(option=option)
        fail(f"{host} port {port} cannot be used: {str(error.strerror).lower()}; {hint}", Exit.USAGE)
    with made:
        yield made


__all__ = [
    "check",
    "check_audit",
    "check_begins",
    "check_store",
    "make_key",
    "new",
    "reviewed",
    "serve",
    "served",
    "server_of",
    "show",
]
