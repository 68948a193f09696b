"""`cmf mcp-proxy`: an MCP server behind policy. Spec: docs/spec/mcp-proxy.md."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import typer

from cmf.message.security import SubjectExtension
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Mode
from pipeline.decisions.ids import new_ulid
from pipeline.decisions.json_log import log_to_standard_error
from pipeline.guard import Guard
from pipeline.mcp.frames import MAX_MESSAGE_BYTES
from pipeline.mcp.link import Link
from pipeline.mcp.pins import Pins
from pipeline.mcp.pipes import Pipes
from pipeline.mcp.process import Process
from pipeline.mcp.stdio import ProcessServer, Server, StdioProxy, UrlServer
from pipeline.provenance.profiles import Profiles
from pipeline.run.assembly import Config, Policies

if TYPE_CHECKING:
    from pipeline.mcp.http_server import Address
    from pipeline.sessions.base import SessionStore
    from pipeline.store.recorder import Recorder

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READS, _WRITES = 0, 1
SHIPPED: Final = "shipped"
POLICY_SECONDS: Final = 5.0  # generous, because a workstation may be busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The command's options."""

    command: tuple[str, ...] = ()
    url: str | None = None
    key_env: str | None = None
    name: str | None = None
    policies: list[Path] | None = None
    mode: Literal["enforce", "observe"] = "enforce"
    profiles: tuple[Path, ...] = ()
    pins: Path | None = None
    store: Path | None = None
    session: str | None = None
    subject: str | None = None
    roles: tuple[str, ...] = ()
    answer_seconds: float = 300.0
    quiet: bool = False


def run(options: Options) -> None:
    """Serve one client on standard input and output until either side ends."""
    _check(options)
    with one_line_errors(), ExitStack() as opened:
        log_to_standard_error(quiet=options.quiet)
        address = None if options.url is None else _address(options, options.url)
        pins = Pins(options.pins)
        sessions, recorder = (None, None) if options.store is None else _kept(options.store, opened)
        policies: Policies = None if options.policies is None else [_place(one) for one in options.policies]
        guard = opened.enter_context(
            Guard(
                policies,
                config=Config(mode=Mode(options.mode), timeout_seconds=POLICY_SECONDS),
                sessions=sessions,
                profiles=Profiles.load(*options.profiles),
                recorder=recorder,
            )
        )
        link = Link(
            guard,
            _context(options),
            server=options.name,
            pins=pins,
            clock=time.monotonic,
            answer_seconds=options.answer_seconds,
            enforce=options.mode == "enforce",
        )
        ended = asyncio.run(_serve(link, options, address))
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


async def _serve(link: Link, options: Options, address: Address | None) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with _server(link, options, address) as server:
        return await StdioProxy(link, Pipes(_READS, _WRITES, MAX_MESSAGE_BYTES), server).run(stop)


@asynccontextmanager
async def _server(link: Link, options: Options, address: Address | None) -> AsyncIterator[Server]:
    if address is None:
        yield ProcessServer(await Process.begin(options.command, None, MAX_MESSAGE_BYTES))
        return
    from pipeline.mcp.http_server import HttpServer, connections

    async with connections() as http:
        yield UrlServer(HttpServer(http, address), link)


def _place(policies: Path) -> str | Path:
    """The directory; `shipped` means the shipped policies unless a directory has that name."""
    return str(policies) if policies == Path(SHIPPED) and not policies.exists() else policies


def _check(options: Options) -> None:
    if (options.url is None) == (not options.command):
        fail("give either the server's command after --, or --url", Exit.USAGE)
    if options.name is not None and not _NAME.fullmatch(options.name):
        fail("--name takes up to 64 letters, digits and ._-", Exit.USAGE)
    if options.subject == "":
        fail("--subject is empty: give the client's subject id", Exit.USAGE)
    if options.roles and options.subject is None:
        fail("--role needs --subject", Exit.USAGE)
    if options.key_env is not None and options.url is None:
        fail("--key-env needs --url; a command inherits its environment", Exit.USAGE)


def _address(options: Options, url: str) -> Address:
    from pipeline.gateway.config.config_file import secret_of
    from pipeline.gateway.config.mcp_settings import endpoint
    from pipeline.gateway.config.settings_base import Secret
    from pipeline.mcp.http_server import Address

    try:
        endpoint(url)
    except ValueError as error:
        fail(f"the URL cannot be used: {error}", Exit.USAGE)
    headers = {}
    if options.key_env is not None:
        headers["authorization"] = f"Bearer {secret_of(Secret(env=options.key_env))}"
    return Address(url=url, headers=headers)


def _context(options: Options) -> Context:
    subject = None if options.subject is None else SubjectExtension(id=options.subject, roles=frozenset(options.roles))
    return Context(subject=subject, session=options.session or f"mcp_{new_ulid()}")


__all__ = ["Options", "run"]
