"""The commands of the gateway: `serve`, `doctor`, `config`. Their options; what they do is imported late."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli import proxying
from pipeline.cli.replaying import WrittenAs
from pipeline.cli.sections import Whole

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The settings.")]
DEFAULT = Path("cmf.yaml")
config_commands = typer.Typer(cls=Whole, help="The gateway's settings.", no_args_is_help=True, rich_markup_mode=None)


def serve(
    context: typer.Context,
    config: ConfigOption = DEFAULT,
    demo: Annotated[bool, typer.Option("--demo", help="A script instead of providers: no settings, no keys.")] = False,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Instead of the settings' port.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log no line for each request.")] = False,
) -> None:
    """Serve models to clients of OpenAI, Anthropic, Gemini and Ollama; every request and reply is judged.

    Exit codes: 0 ended, 2 settings, 3 policy does not compile, 5 the store cannot be opened.
    """
    from pipeline.cli import serve as work
    from pipeline.cli.reading import Exit, fail

    source = context.get_parameter_source("config")
    if demo and (source is None or source.name != "DEFAULT"):
        fail("--demo has settings of its own: leave out --config, or --demo", Exit.USAGE)
    work.serve(None if demo else config, port=port, quiet=quiet)


@config_commands.command("new")
def new() -> None:
    """Print a cmf.yaml to begin with, and a client's key: cmf config new > cmf.yaml."""
    from pipeline.cli import serve as work

    work.new()


@config_commands.command("show")
def show(
    config: ConfigOption = DEFAULT,
    output: Annotated[WrittenAs, typer.Option("--format", help="How to write them.")] = WrittenAs.TEXT,
) -> None:
    """Print every setting that holds, and where it was said. Secrets are named, never shown."""
    from pipeline.cli import serve as work

    work.show(config, as_json=output is WrittenAs.JSON)


@config_commands.command("check")
def check(config: ConfigOption = DEFAULT) -> None:
    """Say whether the gateway could begin: settings, secrets, scripts, profiles and policies are all read."""
    from pipeline.cli import serve as work

    work.check(config)


@config_commands.command("key")
def key(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the key.")],
    subject: Annotated[str, typer.Option("--subject", help="Who a client is with it: an id.")],
    role: Annotated[list[str] | None, typer.Option("--role", metavar="ROLE", help="A role (repeatable).")] = None,
) -> None:
    """Make a key for a client: an entry for `keys:` on standard output; on standard error the key, once."""
    from pipeline.cli import serve as work

    work.make_key(name, subject, role or ())


def doctor(
    config: Annotated[
        Path | None, typer.Option("--config", "-c", help="The settings; by default cmf.yaml, if it is here.")
    ] = None,
    upstreams: Annotated[
        bool, typer.Option("--upstreams", help="Connect to upstreams, MCP servers and issuers; nothing is sent.")
    ] = False,
    output: Annotated[WrittenAs, typer.Option("--format", help="How to write them.")] = WrittenAs.TEXT,
) -> None:
    """Say of everything that is needed whether it is there and works, and what to do where it does not.

    Nothing is changed, and policies' tests are not run. What is printed can stand in an issue: no secrets, no content.

    Exit codes: 0 no problem (there may be warnings), 1 a problem.
    """
    from pipeline.cli import doctor as work

    found = config if config is not None or not DEFAULT.exists() else DEFAULT
    work.run(found, upstreams=upstreams, as_json=output is WrittenAs.JSON)


def add_to(app: typer.Typer) -> None:
    """Make these commands part of `app`."""
    app.command("serve")(serve)
    app.command("doctor")(doctor)
    app.add_typer(config_commands, name="config")
    proxying.add_to(app)


__all__ = ["add_to"]
