"""The gateway's commands, `serve`, `doctor` and `config`, and their options; their code is imported when they run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import OutputAs, WrittenAs
from pipeline.cli.commands.sections import FullHelpGroup

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file.")]
DEFAULT = Path("cmf.yaml")
config_commands = typer.Typer(
    cls=FullHelpGroup, help="The gateway's settings.", no_args_is_help=True, rich_markup_mode=None
)


def serve(
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
    from pipeline.cli import serve as work
    from pipeline.cli.reading import Exit, fail

    source = context.get_parameter_source("config")
    if demo and (source is None or source.name != "DEFAULT"):
        fail("--demo has its own settings: leave out --config or --demo", Exit.USAGE)
    work.serve(None if demo else config, port=port, quiet=quiet)


@config_commands.command("new")
def new() -> None:
    """Print an initial cmf.yaml, and a client's key: cmf config new > cmf.yaml."""
    from pipeline.cli import serve as work

    work.new()


@config_commands.command("show")
def show(
    config: ConfigOption = DEFAULT,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Print every effective setting and its origin. Secrets are named, never shown."""
    from pipeline.cli import serve as work

    work.show(config, as_json=output is WrittenAs.JSON)


@config_commands.command("check")
def check(config: ConfigOption = DEFAULT) -> None:
    """Report whether the gateway could start: settings, secrets, scripts, profiles and policies are all read."""
    from pipeline.cli import serve as work

    work.check(config)


@config_commands.command("key")
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")],
    subject: Annotated[str, typer.Option("--subject", help="The subject id of clients with this key.")],
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role (repeatable).")] = None,
) -> None:
    """Create a client key: its entry for `keys:` goes to standard output, the key itself, once, to standard error."""
    from pipeline.cli import serve as work

    work.make_key(name, subject, role or ())


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The settings file; by default cmf.yaml, if it exists.")
    ] = None,
    upstreams: Annotated[
        bool, typer.Option("--upstreams", help="Connect to upstreams, MCP servers and issuers; nothing is sent.")
    ] = False,
    output: OutputAs = WrittenAs.TEXT,
) -> None:
    """Check that everything needed is present and works, and say what to do if not.

    Changes nothing and does not run the policies' tests. The output is safe to paste: no secrets, no content.

    Exit codes: 0 no problem (there may be warnings), 1 a problem.
    """
    from pipeline.cli import doctor as work

    found = config if config is not None or not DEFAULT.exists() else DEFAULT
    work.run(found, upstreams=upstreams, as_json=output is WrittenAs.JSON)


def add_to(app: typer.Typer) -> None:
    """Register these commands with `app`."""
    app.command("serve")(serve)
    app.command("doctor")(doctor)
    app.add_typer(config_commands, name="config")


__all__ = ["add_to"]
