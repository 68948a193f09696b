"""`cmf review`: the pages on which people review decisions; and serving such pages on the loopback interface."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pipeline.cli.options import Place, PublicKeys, SigningKey
from pipeline.cli.reading import Exit, fail, one_line_errors, read_seal_key
from pipeline.cli.stores import opened_for_search, opened_store
from pipeline.decisions.errors import ConfigError, needs

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pipeline.review.access import Authenticator

MIN_SECRET = 16
HOST = "127.0.0.1"
_KEEP_ALIVE_SECONDS = 10


RoleChoice = Literal["viewer", "reviewer", "signer", "admin"]


def command(
    store: Place,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8788,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Your id; recorded with everything you do.")
    ] = None,
    role: Annotated[RoleChoice, typer.Option("--role", help="Your role.")] = "reviewer",
    policies: Annotated[
        list[Path] | None,
        typer.Option(
            "--policies",
            "-p",
            metavar="DIR",
            help="Policies to explain and compare decisions with (repeatable); the shipped ones are always included.",
        ),
    ] = None,
    heads: Annotated[Path | None, typer.Option("--heads", help="The file that heads were exported to.")] = None,
    keys: PublicKeys = None,
    signing_key: SigningKey = None,
    seal_key: Annotated[
        Path | None, typer.Option("--seal-key", help="A file with the key that opens the content of approvals.")
    ] = None,
    proxy_secret: Annotated[
        Path | None, typer.Option("--proxy-secret", help="Trust a proxy that sends this secret as X-Cmf-Proxy-Secret.")
    ] = None,
    user_header: Annotated[
        str, typer.Option("--user-header", help="The header with the user's id.")
    ] = "X-Forwarded-User",
    role_header: Annotated[
        str, typer.Option("--role-header", help="The header with the user's role.")
    ] = "X-Forwarded-Groups",
) -> None:
    """Review decisions on local pages: sessions that need attention, sign-offs, evidence."""
    with needs("review"):
        from pipeline.audit.exporting import read_heads
        from pipeline.audit.heads import PublicKey
        from pipeline.review.access import Named, Person, Proxied, Role
        from pipeline.review.rules import PoliciesAtHand
        from pipeline.review.site import Site
        from pipeline.review.web import build_site
        from pipeline.store.engine import check_is_store

    if (person is None) == (proxy_secret is None):
        fail("give your id with --as WHO, or the proxy's secret with --proxy-secret FILE", Exit.USAGE)
    with one_line_errors():
        check_is_store(store)
        if heads is not None:
            read_heads(heads)  # the integrity page reads it on each request: report a bad one now
        opens = None if seal_key is None else read_seal_key(seal_key)
        trusted = [PublicKey.at(file) for file in (keys or ())] or None
        secret = "" if proxy_secret is None else _secret(proxy_secret)
        hand = PoliciesAtHand.of_directories(policies or ())
    reads = person is not None and Role(role) is Role.VIEWER  # viewers record nothing, so no key is needed
    with (
        one_line_errors(),
        listening_at(port) as listening,
        opened_for_search(store) if reads else opened_store(store, signing_key) as opened,
    ):
        port = listening.getsockname()[1]
        keeper: Authenticator = Proxied(user_header, role_header, secret)
        hosts, token = None, ""
        if person is not None:
            keeper = named = Named(Person(person, Role(role)), f"cmf_review_{port}")
            hosts, token = own_hosts(port), f"?t={named.token}"
        site = Site(opened, policies=hand, seal_key=opens, heads=heads, keys=trusted)
        site.catalog.catch_up()
        typer.echo(f"review: http://{HOST}:{port}/{token}")
        serve(build_site(site, keeper, hosts=hosts), listening)


def _secret(file: Path) -> str:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        hint = "give a readable text file"
        raise ConfigError("the proxy's secret cannot be read", path=str(file), hint=hint) from None
    if len(secret) < MIN_SECRET:
        hint = f"use at least {MIN_SECRET} characters"
        raise ConfigError("the proxy's secret is too short", path=str(file), hint=hint)
    return secret


# -- serving pages on the loopback interface while a command runs -----------------------------------------------------


def listening_at(port: int) -> socket.socket:
    """A socket on the loopback interface; the command fails if the port cannot be used."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, port))
        listening.listen(64)
    except (OSError, OverflowError):
        listening.close()
        fail(f"port {port} cannot be used; give another one with --port, or 0 for any free one", Exit.USAGE)
    return listening


def own_hosts(port: int) -> frozenset[str]:
    """The `Host` headers of a local browser; any other may be a foreign page (DNS rebinding)."""
    return frozenset({f"{HOST}:{port}", f"localhost:{port}"})


def serve(app: ASGIApp, listening: socket.socket) -> None:
    """Serve until interrupted, which is the normal end."""
    with needs("review"):
        import uvicorn

    typer.echo("reachable from this machine only; press Ctrl-C to stop", err=True)
    settings = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        limit_concurrency=64,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=1,
    )
    try:
        uvicorn.Server(settings).run(sockets=[listening])
    except KeyboardInterrupt:
        raise typer.Exit(int(Exit.OK)) from None
