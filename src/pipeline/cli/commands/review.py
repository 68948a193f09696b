"""The command `cmf review` and its options; its code is imported when it runs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pipeline.cli.commands.options import Place, PublicKeys, SigningKey
from pipeline.decisions.errors import needs


class RoleChoice(StrEnum):
    """The roles on the site; each includes the ones before it."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    SIGNER = "signer"
    ADMIN = "admin"


def review(
    store: Place,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0 for any free one.")] = 8788,
    person: Annotated[
        str | None, typer.Option("--as", metavar="WHO", help="Your id; recorded with everything you do.")
    ] = None,
    role: Annotated[RoleChoice, typer.Option("--role", help="Your role.")] = RoleChoice.REVIEWER,
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
        from pipeline.cli import review as work
        from pipeline.review.access import Role

    work.run(
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
    """Register the command with `app`."""
    app.command("review")(review)


__all__ = ["add_to"]
