"""`cmf review`: the pages on which people review decisions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from pipeline.audit.exporting import read_heads
from pipeline.audit.heads import PublicKey
from pipeline.cli.audit import opened_for_search
from pipeline.cli.local_page import HOST, listening_at, own_hosts, serve
from pipeline.cli.reading import Exit, fail, one_line_errors, read_seal_key
from pipeline.cli.recorded import opened_store
from pipeline.decisions.errors import ConfigError
from pipeline.review.access import Authenticator, Named, Person, Proxied, Role
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
    """Serve the site on the loopback interface until interrupted; print its address."""
    if (person is None) == (proxy_secret is None):
        fail("give your id with --as WHO, or the proxy's secret with --proxy-secret FILE", Exit.USAGE)
    with one_line_errors():
        check_is_store(store)
        if heads is not None:
            read_heads(heads)  # the integrity page reads it on each request: report a bad one now
        opens = None if seal_key is None else read_seal_key(seal_key)
        trusted = [PublicKey.at(file) for file in keys] or None
        secret = "" if proxy_secret is None else _secret(proxy_secret)
        hand = PoliciesAtHand.of_directories(policies)
    reads = person is not None and role is Role.VIEWER  # viewers record nothing, so no key is needed
    with (
        one_line_errors(),
        listening_at(port) as listening,
        opened_for_search(store) if reads else opened_store(store, key) as opened,
    ):
        port = listening.getsockname()[1]
        keeper: Authenticator
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
        raise ConfigError(
            "the proxy's secret cannot be read", path=str(file), hint="give a readable text file"
        ) from None
    if len(secret) < MIN_SECRET:
        raise ConfigError(
            "the proxy's secret is too short", path=str(file), hint=f"use at least {MIN_SECRET} characters"
        )
    return secret


__all__ = ["run"]
