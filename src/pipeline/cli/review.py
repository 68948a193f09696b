"""`cmf review`: the pages on which people read and judge what was decided."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from pipeline.audit.exporting import read_heads
from pipeline.audit.heads import PublicKey
from pipeline.cli.audit import looking_through
from pipeline.cli.local_page import HOST, listening_at, own_hosts, serve
from pipeline.cli.reading import Exit, fail, one_line_errors, read_seal_key
from pipeline.cli.recorded import opened_store
from pipeline.errors import ConfigError
from pipeline.review.access import Doorkeeper, Named, Person, Proxied, Role
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.site import Site
from pipeline.review.web import build_site
from pipeline.store.engine import check_is_store

MIN_SECRET = 16


def run(
    store: str,
    *,
    port: int,
    person: str | None,
    role: Role,
    policies: Sequence[Path],
    heads: Path | None,
    keys: Sequence[Path],
    key: Path | None,
    seal_key: Path | None,
    proxy_secret: Path | None,
    user_header: str,
    role_header: str,
) -> None:
    """Serve the site on this machine alone until it is interrupted; print the address that opens it."""
    if (person is None) == (proxy_secret is None):
        fail("say who you are with --as WHO, or who the proxy is with --proxy-secret FILE", Exit.USAGE)
    with one_line_errors():
        check_is_store(store)
        if heads is not None:
            read_heads(heads)  # the page about integrity reads it too, each time: one that is none is said now
        opens = None if seal_key is None else read_seal_key(seal_key)
        trusted = [PublicKey.at(file) for file in keys] or None
        secret = "" if proxy_secret is None else _secret(proxy_secret)
        hand = PoliciesAtHand.of_directories(policies)
    reads = person is not None and role is Role.VIEWER  # nothing is put on record: no key is asked for
    with (
        one_line_errors(),
        listening_at(port) as listening,
        looking_through(store) if reads else opened_store(store, key) as opened,
    ):
        port = listening.getsockname()[1]
        keeper: Doorkeeper
        hosts: frozenset[str] | None
        if person is None:
            keeper, hosts, where = Proxied(user_header, role_header, secret), None, f"http://{HOST}:{port}/"
        else:
            named = Named(Person(person, role), f"cmf_review_{port}")
            keeper, hosts = named, own_hosts(port)
            where = f"http://{HOST}:{port}/?t={named.token}"
        site = Site(opened, policies=hand, seal_key=opens, heads=heads, keys=trusted)
        site.catalog.catch_up()
        typer.echo(f"review: {where}")
        serve(build_site(site, keeper, hosts=hosts), listening)


def _secret(file: Path) -> str:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise ConfigError("the proxy's secret cannot be read", path=str(file), hint="give a file of text") from None
    if len(secret) < MIN_SECRET:
        raise ConfigError("the proxy's secret is too short", path=str(file), hint=f"{MIN_SECRET} characters or more")
    return secret


__all__ = ["run"]
