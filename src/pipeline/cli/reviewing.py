"""The command `cmf review` and its options; what it does is imported late."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.auditing import Place, PublicKeys, SigningKey


class RoleChoice(StrEnum):
    """What somebody may do on the site; each may do what those before it may."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    SIGNER = "signer"
    ADMIN = "admin"


def review(
    store: Place,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Where to listen; 0 for any port.")] = 8788,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Who you are; on record with all you do.")
    ] = None,
    role: Annotated[RoleChoice, typer.Option("--role", help="What you may do.")] = RoleChoice.REVIEWER,
    policies: Annotated[
        list[Path] | None,
        typer.Option(
            "--policies",
            "-p",
            metavar="DIR",
            help="Policies that decided, or might (repeatable); the shipped ones are known.",
        ),
    ] = None,
    heads: Annotated[
        Path | None, typer.Option("--heads", help="The heads that were exported to a second place.")
    ] = None,
    keys: PublicKeys = None,
    signing_key: SigningKey = None,
    seal_key: Annotated[
        Path | None, typer.Option("--seal-key", help="A file with the key that opens what approvals are about.")
    ] = None,
    proxy_secret: Annotated[
        Path | None, typer.Option("--proxy-secret", help="Believe a proxy that sends this text as X-Cmf-Proxy-Secret.")
    ] = None,
    user_header: Annotated[
        str, typer.Option("--user-header", help="Where the proxy says who it is.")
    ] = "X-Forwarded-User",
    role_header: Annotated[
        str, typer.Option("--role-header", help="Where the proxy says their role.")
    ] = "X-Forwarded-Groups",
) -> None:
    """Read and judge what was decided, on pages of this machine: sessions that need eyes, sign-offs, evidence."""
    from pipeline.cli import review as does
    from pipeline.review.access import Role

    does.run(
        store,
        port=port,
        person=person,
        role=Role(role.value),
        policies=policies or (),
        heads=heads,
        keys=keys or (),
        key=signing_key,
        seal_key=seal_key,
        proxy_secret=proxy_secret,
        user_header=user_header,
        role_header=role_header,
    )


def add_to(app: typer.Typer) -> None:
    """Make the command part of `app`."""
    app.command("review")(review)


__all__ = ["add_to"]
