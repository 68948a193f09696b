"""`cmf serve` and `cmf config`: the gateway, and what it is told to do."""

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

from cmf.codec import dumps
from pipeline.audit.heads import Signer
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.display import counted
from pipeline.errors import ConfigError
from pipeline.gateway import workers
from pipeline.gateway.admin import App
from pipeline.gateway.config_file import Loaded, load
from pipeline.gateway.identity import hash_of, new_key
from pipeline.gateway.running import admin_app, run
from pipeline.gateway.server import address_of, allow_files, listening, server_of
from pipeline.gateway.settings import Audit, Settings
from pipeline.json_log import log_to_standard_error

_BINDING: Final = {
    errno.EADDRINUSE: "end what listens there, or give another port ({option})",
    errno.EACCES: "take a port from 1024 on",
    errno.EADDRNOTAVAIL: "give an address of this machine, or 0.0.0.0 for all",
}


def serve(config: Path | None, *, port: int | None, quiet: bool) -> None:
    """Serve until it is interrupted or told to end, and let what is in work end first. None serves the demo."""
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
        from pipeline.gateway.service import assembled  # with all that judges: a crew, above, takes 19 MB less without

        service = opened.enter_context(assembled(settings))
        _announce(clients, beside, demo=demo)
        asyncio.run(run(service, settings, clients, admin_app(settings, service.operations, review), beside))


def _announce(clients: socket.socket, beside: socket.socket | None, *, demo: bool) -> None:
    typer.echo(f"gateway: http://{address_of(clients)}")
    if beside is not None:
        typer.echo(f"operations: http://{address_of(beside)}")
    if demo:
        typer.echo("demo: a script answers, nothing leaves this machine; key `demo`, or none", err=True)


def show(config: Path, *, as_json: bool) -> None:
    """Print what holds, value by value, with where it was said."""
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
    """Read everything that serving reads, and say whether it could begin; the store is not touched."""
    with one_line_errors():
        said = load(config).settings
        check_begins(said)
        check_store(said.store, "store")
        check_audit(said.audit)
    typer.echo(f"ok: {served(said)}")


def check_begins(said: Settings) -> None:
    """Nothing if the gateway could be put together: secrets, scripts, profiles, policies and the rest are all read.

    Raises:
        ConfigError, PolicyError: what it could not begin with.
    """
    from pipeline.assembly import REDIS
    from pipeline.gateway.service import built

    shared = said.sessions.store
    with tempfile.TemporaryDirectory() as scratch:
        audit = said.audit.model_copy(update={"key_file": None, "heads_file": None})
        scratched = {"store": Path(scratch) / "check.db", "watch": False, "audit": audit}
        if shared is not None and not shared.startswith(REDIS):
            scratched["sessions"] = said.sessions.model_copy(update={"store": None})
            check_store(shared, "sessions.store")
        settings = said.model_copy(update=scratched)
        with built(settings), reviewed(settings):
            pass


def served(said: Settings) -> str:
    """How much these settings have served, in words."""
    parts = [counted(len(said.routes), "route"), counted(len(said.upstreams), "upstream")]
    parts += [counted(len(said.mcp), "MCP server")] if said.mcp else []
    parts += ["checks"] if said.check is not None else []
    return ", ".join(parts)


def check_store(place: str | Path, setting: str) -> None:
    """Nothing if this user could open the store, or make it; a server is not asked. ConfigError if not."""
    from pipeline.store.engine import file_of

    if (file := file_of(place)) is not None:
        _can_be_kept(file, setting)


def _can_be_kept(file: Path, setting: str) -> None:
    """Nothing if this user could open that file, or make it; ConfigError if not."""
    home = file.parent
    if not home.is_dir():
        raise ConfigError(f"the directory of `{setting}` is not there", path=str(home), hint=f"mkdir -p {home}")
    for place in (home, *([file] if file.exists() else ())):
        if not os.access(place, os.R_OK | os.W_OK):
            hint = f"give it to the user who serves, or name another `{setting}`"
            raise ConfigError(f"this user cannot write `{setting}`", path=str(place), hint=hint)


def check_audit(audit: Audit) -> None:
    """Nothing if records could be signed and their heads exported; ConfigError if not. No key is made."""
    if audit.heads_file is not None:
        _can_be_kept(audit.heads_file, "audit.heads_file")
    if audit.key_file is None:
        return
    if audit.key_file.exists():
        Signer.at(audit.key_file)
    else:
        _can_be_kept(audit.key_file, "audit.key_file")


def make_key(name: str, subject: str, roles: Sequence[str]) -> None:
    """Print a new key once, on standard error, and what belongs in the file on standard output."""
    key = new_key()
    who: dict[str, object] = {"id": subject} | ({"roles": list(roles)} if roles else {})
    typer.echo(yaml.safe_dump([{"name": name, "hash": hash_of(key), "subject": who}], sort_keys=False), nl=False)
    typer.echo(f"the key, shown once: {key}", err=True)


def new() -> None:
    """Print settings to begin with; on standard error what to do next, and the key whose hash they hold, once."""
    key = new_key()
    text = importlib.resources.files("pipeline").joinpath("gateway", "begin.yaml").read_text(encoding="utf-8")
    typer.echo(text.replace("HASH", hash_of(key)), nl=False)
    typer.echo(f"the key of a client, shown once: {key}", err=True)
    typer.echo("next: with this as cmf.yaml, and OPENAI_API_KEY set: cmf config check && cmf serve", err=True)


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
    """The review site until the end of the block; None where settings say nothing of one. Errors: see `reviewing`."""
    if settings.review is None:
        yield None
        return
    from pipeline.gateway.reviewing import reviewing  # 10 MB of pages and of what replays, for who has the site

    with reviewing(settings) as site:
        yield site


@contextmanager
def _listening(host: str, port: int, option: str = "--port, 0 for any") -> Iterator[socket.socket]:
    try:
        made = listening(host, port)
    except OSError as error:
        hint = _BINDING.get(error.errno or 0, "look at the address").format(option=option)
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
