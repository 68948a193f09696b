"""`cmf mcp-proxy`: an MCP server behind policy. Spec: docs/spec/mcp-proxy.md."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from cmf.security import SubjectExtension
from pipeline.assembly import Config, Policies
from pipeline.cli.reading import Exit, fail, one_line_errors
from pipeline.context import Context
from pipeline.decision import Mode
from pipeline.guard import Guard
from pipeline.json_log import log_to_standard_error
from pipeline.mcp_proxy.frames import MAX_MESSAGE_BYTES
from pipeline.mcp_proxy.link import Link
from pipeline.mcp_proxy.pins import Pins
from pipeline.mcp_proxy.pipes import Pipes
from pipeline.mcp_proxy.process import Process
from pipeline.mcp_proxy.stdio_proxy import ProcessServer, Server, StdioProxy, UrlServer
from pipeline.profiles import Profiles
from pipeline.ulids import new_ulid

if TYPE_CHECKING:
    from pipeline.mcp_proxy.http_server import Address
    from pipeline.recorder import Recorder
    from pipeline.sessions import SessionStore

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_READS, _WRITES = 0, 1
SHIPPED: Final = "shipped"
POLICY_SECONDS: Final = 5.0  # somebody's own machine may be busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command was told."""

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


def run(wanted: Wanted) -> None:
    """Serve one client on standard input and output until either side ends."""
    _check(wanted)
    with one_line_errors(), ExitStack() as opened:
        log_to_standard_error(quiet=wanted.quiet)
        address = None if wanted.url is None else _address(wanted, wanted.url)
        pins = Pins(wanted.pins)
        sessions, recorder = (None, None) if wanted.store is None else _kept(wanted.store, opened)
        policies: Policies = None if wanted.policies is None else [_place(one) for one in wanted.policies]
        guard = opened.enter_context(
            Guard(
                policies,
                config=Config(mode=Mode(wanted.mode), timeout_seconds=POLICY_SECONDS),
                sessions=sessions,
                profiles=Profiles.load(*wanted.profiles),
                recorder=recorder,
            )
        )
        link = Link(
            guard,
            _context(wanted),
            server=wanted.name,
            pins=pins,
            clock=time.monotonic,
            answer_seconds=wanted.answer_seconds,
            enforce=wanted.mode == "enforce",
        )
        ended = asyncio.run(_serve(link, wanted, address))
    if not ended:
        fail("the server ended first", Exit.REFUSED)


# A client starts a proxy for each of its servers, and waits: HTTP and the database are loaded where they are asked for.


def _kept(file: Path, opened: ExitStack) -> tuple[SessionStore, Recorder]:
    """Sessions and records in the database that the file is, until all that is opened is closed."""
    from pipeline.recorder import Recorder
    from pipeline.store.database import Store

    store = opened.enter_context(Store.at(file))
    return store.sessions(), Recorder(store)


async def _serve(link: Link, wanted: Wanted, address: Address | None) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, stop.set)
    async with _server(link, wanted, address) as server:
        return await StdioProxy(link, Pipes(_READS, _WRITES, MAX_MESSAGE_BYTES), server).run(stop)


@asynccontextmanager
async def _server(link: Link, wanted: Wanted, address: Address | None) -> AsyncIterator[Server]:
    if address is None:
        yield ProcessServer(await Process.begin(wanted.command, None, MAX_MESSAGE_BYTES))
        return
    from pipeline.mcp_proxy.http_server import HttpServer, connections

    async with connections() as http:
        yield UrlServer(HttpServer(http, address), link)


def _place(policies: Path) -> str | Path:
    """The directory; the word `shipped`, where no directory goes by that name, is the shipped ones."""
    return str(policies) if policies == Path(SHIPPED) and not policies.exists() else policies


def _check(wanted: Wanted) -> None:
    if (wanted.url is None) == (not wanted.command):
        fail("give the server's command after --, or --url, one of them", Exit.USAGE)
    if wanted.name is not None and not _NAME.fullmatch(wanted.name):
        fail("the name is up to 64 letters, digits and ._-", Exit.USAGE)
    if wanted.subject == "" or (wanted.roles and wanted.subject is None):
        fail("--role says what roles --subject has: name a subject", Exit.USAGE)
    if wanted.key_env is not None and wanted.url is None:
        fail("--key-env goes with --url; a command has its own environment", Exit.USAGE)


def _address(wanted: Wanted, url: str) -> Address:
    from pipeline.gateway.config_file import secret_of
    from pipeline.gateway.mcp_settings import endpoint
    from pipeline.gateway.sections import Secret
    from pipeline.mcp_proxy.http_server import Address

    try:
        endpoint(url)
    except ValueError as error:
        fail(f"the URL cannot be used: {error}", Exit.USAGE)
    headers = {}
    if wanted.key_env is not None:
        headers["authorization"] = f"Bearer {secret_of(Secret(env=wanted.key_env))}"
    return Address(url=url, headers=headers)


def _context(wanted: Wanted) -> Context:
    subject = None if wanted.subject is None else SubjectExtension(id=wanted.subject, roles=frozenset(wanted.roles))
    return Context(subject=subject, session=wanted.session or f"mcp_{new_ulid()}")


__all__ = ["Wanted", "run"]
