"""`cmf mcp-proxy`: an MCP server behind policy. Spec: docs/spec/mcp-proxy.md."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from pipeline.cli.options import SHIPPED
from pipeline.cli.reading import Exit, fail, one_line_errors

if TYPE_CHECKING:
    from pipeline.mcp.http_server import Address
    from pipeline.mcp.link import Link
    from pipeline.run.assembly import Policies
    from pipeline.sessions.base import SessionStore
    from pipeline.store.recorder import Recorder

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READS, _WRITES = 0, 1
POLICY_SECONDS: Final = 5.0  # generous, because a workstation may be busy


ProxyMode = Literal["enforce", "observe"]


def command(
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
    mode: Annotated[ProxyMode, typer.Option("--mode", help="Whether policy is enforced.")] = "enforce",
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
    from cmf.message.security import SubjectExtension
    from pipeline.decisions.context import Context
    from pipeline.decisions.decision import Mode
    from pipeline.decisions.json_log import log_to_standard_error
    from pipeline.decisions.timestamps import new_ulid
    from pipeline.guard import Guard
    from pipeline.mcp.link import Link
    from pipeline.mcp.pins import Pins
    from pipeline.provenance.profiles import Profiles
    from pipeline.run.assembly import Config

    if (url is None) == (not command):
        fail("give either the server's command after --, or --url", Exit.USAGE)
    if name is not None and not _NAME.fullmatch(name):
        fail("--name takes up to 64 letters, digits and ._-", Exit.USAGE)
    if subject == "":
        fail("--subject is empty: give the client's subject id", Exit.USAGE)
    if role and subject is None:
        fail("--role needs --subject", Exit.USAGE)
    if key_env is not None and url is None:
        fail("--key-env needs --url; a command inherits its environment", Exit.USAGE)
    client = None if subject is None else SubjectExtension(id=subject, roles=frozenset(role or ()))
    with one_line_errors(), ExitStack() as opened:
        log_to_standard_error(quiet=quiet)
        server = command or () if url is None else _address(url, key_env)
        pinned = Pins(pins)
        sessions, recorder = (None, None) if store is None else _kept(store, opened)
        places: Policies = None if policies is None else [_place(policy) for policy in policies]
        guard = opened.enter_context(
            Guard(
                places,
                config=Config(mode=Mode(mode), timeout_seconds=POLICY_SECONDS),
                sessions=sessions,
                profiles=Profiles.load(*(profiles or ())),
                recorder=recorder,
            )
        )
        link = Link(
            guard,
            Context(subject=client, session=session or f"mcp_{new_ulid()}"),
            server=name,
            pins=pinned,
            clock=time.monotonic,
            answer_seconds=answer_seconds,
            enforce=mode == "enforce",
        )
        ended = asyncio.run(_serve(link, server))
    if not ended:
        logging.getLogger("pipeline.mcp").error("the server ended first")  # the log waits for no reader
        raise typer.Exit(int(Exit.REFUSED))


# A client starts one proxy per server and waits for it: HTTP and the database are imported only when needed.


def _kept(file: Path, opened: ExitStack) -> tuple[SessionStore, Recorder]:
    """The session store and recorder of the database file, open as long as `opened`."""
    from pipeline.store.database import Store
    from pipeline.store.recorder import Recorder

    store = opened.enter_context(Store.at(file))
    return store.sessions(), Recorder(store)


async def _serve(link: Link, place: Sequence[str] | Address) -> bool:
    from pipeline.mcp.frames import MAX_MESSAGE_BYTES
    from pipeline.mcp.stdio import Pipes, Process, StdioProxy, UrlServer

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with AsyncExitStack() as opened:
        server: Process | UrlServer
        if isinstance(place, Sequence):
            server = await Process.begin(place, None, MAX_MESSAGE_BYTES)
        else:
            from pipeline.mcp.http_server import HttpServer, connections

            server = UrlServer(HttpServer(await opened.enter_async_context(connections()), place), link)
        return await StdioProxy(link, Pipes(_READS, _WRITES, MAX_MESSAGE_BYTES), server).run(stop)


def _place(policies: Path) -> str | Path:
    """The directory; `shipped` means the shipped policies unless a directory has that name."""
    return str(policies) if policies == Path(SHIPPED) and not policies.exists() else policies


def _address(url: str, key_env: str | None) -> Address:
    from pipeline.gateway.config.config_file import secret_of
    from pipeline.gateway.config.settings import endpoint
    from pipeline.gateway.config.settings_base import Secret
    from pipeline.mcp.http_server import Address

    try:
        endpoint(url)
    except ValueError as error:
        fail(f"the URL cannot be used: {error}", Exit.USAGE)
    headers = {}
    if key_env is not None:
        headers["authorization"] = f"Bearer {secret_of(Secret(env=key_env))}"
    return Address(url=url, headers=headers)
