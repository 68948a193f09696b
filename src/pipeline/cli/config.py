"""`cmf config`: the gateway's settings. Spec: docs/spec/cli.md [CLI-60]."""

from __future__ import annotations

import importlib.resources
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cmf.json.codec import dumps
from pipeline.cli.groups import command_group
from pipeline.cli.options import OutputAs
from pipeline.cli.reading import one_line_errors
from pipeline.decisions.display import counted
from pipeline.decisions.errors import ConfigError, needs

if TYPE_CHECKING:
    from pipeline.gateway.config.config_file import Loaded
    from pipeline.gateway.config.settings import Audit, Settings
    from pipeline.gateway.operations.admin import App

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file.")]
DEFAULT = Path("cmf.yaml")
command = command_group("The gateway's settings.")


def load_settings(config: Path) -> Loaded:
    """The settings in that file; they are imported now, so that help and completion are fast."""
    with needs("gateway"):
        from pipeline.gateway.config.config_file import load

    return load(config)


@command.command("new")
def new() -> None:
    """Print an initial cmf.yaml, and a client's key: cmf config new > cmf.yaml."""
    with needs("gateway"):
        from pipeline.gateway.auth.identity import hash_of, new_key

    key = new_key()
    text = importlib.resources.files("pipeline").joinpath("gateway", "begin.yaml").read_text(encoding="utf-8")
    typer.echo(text.replace("HASH", hash_of(key)), nl=False)
    typer.echo(f"a client's key, shown once: {key}", err=True)
    typer.echo("next: save this as cmf.yaml, set OPENAI_API_KEY, then: cmf config check && cmf serve", err=True)


@command.command("show")
def show(config: ConfigOption = DEFAULT, output: OutputAs = "text") -> None:
    """Print every effective setting and its origin. Secrets are named, never shown."""
    with one_line_errors():
        loaded = load_settings(config)
    if output == "json":
        values = {path: {"value": value, "source": source} for path, value, source in loaded.effective()}
        typer.echo(dumps(values).decode())
        return
    widest = max(len(path) for path, _, _ in loaded.effective())
    for path, value, source in loaded.effective():
        typer.echo(f"{path:<{widest}} {value:<40} {source}".rstrip())


@command.command("check")
def check(config: ConfigOption = DEFAULT) -> None:
    """Report whether the gateway could start: settings, secrets, scripts, profiles and policies are all read."""
    with one_line_errors():
        settings = load_settings(config).settings
        from pipeline.gateway.service import vet_policies  # with the extra, without which there are no settings

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
        from pipeline.audit.heads import Signer

        Signer.at(audit.key_file)
    else:
        _can_be_kept(audit.key_file, "audit.key_file")


@command.command("key")
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")],
    subject: Annotated[str, typer.Option("--subject", help="The subject id of clients with this key.")],
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role (repeatable).")] = None,
) -> None:
    """Create a client key: its entry for `keys:` goes to standard output, the key itself, once, to standard error."""
    with needs("gateway"):
        import yaml

        from pipeline.gateway.auth.identity import hash_of, new_key

    key = new_key()
    who: dict[str, object] = {"id": subject} | ({"roles": list(role or ())} if (role or ()) else {})
    typer.echo(yaml.safe_dump([{"name": name, "hash": hash_of(key), "subject": who}], sort_keys=False), nl=False)
    typer.echo(f"the key, shown once: {key}", err=True)


@contextmanager
def reviewed(settings: Settings) -> Iterator[App | None]:
    """The review site inside the block; None if the settings have none. Errors: see `reviewing`."""
    if settings.review is None:
        yield None
        return
    from pipeline.gateway.review_site import reviewing  # costs 10 MB, so only imported if the site is on

    with reviewing(settings) as site:
        yield site
