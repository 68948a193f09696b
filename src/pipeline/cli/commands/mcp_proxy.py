"""The command `mcp-proxy` and its options; its code is imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class ProxyMode(StrEnum):
    """Whether decisions are enforced."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


def mcp_proxy(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="The command that starts the server, after --.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="A server over streamable HTTP, instead of a command.")
    ] = None,
    key_env: Annotated[
        str | None, typer.Option("--key-env", help="The environment variable with the server's bearer token.")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The server's name in URIs: tool://NAME/…")] = None,
    policies: Annotated[
        list[Path] | None, typer.Option("--policies", "-p", metavar="DIR", help="A policy directory (repeatable).")
    ] = None,
    mode: Annotated[ProxyMode, typer.Option("--mode", help="Whether policy is enforced.")] = ProxyMode.ENFORCE,
    profiles: Annotated[
        list[Path] | None, typer.Option("--profiles", metavar="FILE", help="Tool profiles (repeatable).")
    ] = None,
    pins: Annotated[Path | None, typer.Option("--pins", help="The file that pins tool definitions.")] = None,
    store: Annotated[Path | None, typer.Option("--store", help="A file for sessions and records.")] = None,
    session: Annotated[str | None, typer.Option("--session", help="The session's id; by default a new one.")] = None,
    subject: Annotated[str | None, typer.Option("--subject", help="The client's subject id.")] = None,
    role: Annotated[
        list[str] | None, typer.Option("--role", metavar="ROLE", help="A role of the client (repeatable).")
    ] = None,
    answer_seconds: Annotated[
        float, typer.Option("--answer-seconds", min=0.1, max=86_400, help="Timeout of a call.")
    ] = 300.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not log allowed messages.")] = False,
) -> None:
    """Proxy an MCP client on standard input and output to one server, judging every message.

    Exit codes: 0 ended, 1 the server ended first, 2 usage, 3 policy does not compile, 5 the store cannot be opened.
    """
    from pipeline.cli import mcp_proxy as work

    work.run(
        work.Options(
            command=tuple(command or ()),
            url=url,
            key_env=key_env,
            name=name,
            policies=policies,
            mode=mode.value,
            profiles=tuple(profiles or ()),
            pins=pins,
            store=store,
            session=session,
            subject=subject,
            roles=tuple(role or ()),
            answer_seconds=answer_seconds,
            quiet=quiet,
        )
    )


def add_to(app: typer.Typer) -> None:
    """Register the command with `app`."""
    app.command("mcp-proxy")(mcp_proxy)


__all__ = ["add_to"]
