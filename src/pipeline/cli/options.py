"""Options and arguments that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from cmf.adapters import FORMATS

Wire = StrEnum("Wire", {"canonical": "canonical", **{name: name for name in FORMATS}})  # type: ignore[misc]  # known at run time
Kind = Literal["request", "response"]
ReportAs = Literal["text", "json", "junit", "github"]
FindingsAs = Literal["text", "json", "junit", "github", "sarif"]
WrittenAs = Literal["text", "json"]
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256", "HS384", "HS512"
]  # fmt: skip
TraceLevel = Literal["notes", "fails", "full"]  # as OPA names them
SHIPPED: Final = "shipped"
"""The word for the shipped policies, wherever a command takes the path of policies."""


def policy_place(text: str) -> Path:
    """The path that the word `shipped` or a path names; a directory of that name is `./shipped`."""
    if text != SHIPPED:
        return Path(text)
    from pipeline.policy.shipped import shipped

    return shipped()


def policy_option(help: str) -> Any:
    """`--policies`, for places that a command takes policies from."""
    return typer.Option("--policies", "-p", metavar="DIR", parser=policy_place, help=help)


File = Annotated[str, typer.Argument(metavar="FILE", help="A JSON file, or - for standard input.")]
From = Annotated[Wire, typer.Option("--from", help="The format of FILE.")]
FromOrSeen = Annotated[
    Wire | None, typer.Option("--from", help="The format of FILE; by default detected from its shape.")
]
KindOrSeen = Annotated[Kind | None, typer.Option("--kind", help="What FILE holds; by default detected from its shape.")]
RecordId = Annotated[str, typer.Argument(metavar="ID", help="The record's id.")]
Project = Annotated[Path, typer.Argument(metavar="DIR", help="A project, or a policy directory.")]
ContextFile = Annotated[
    Path | None, typer.Option("--context", help="The context, with subject and session: JSON or YAML.")
]
SubjectId = Annotated[str | None, typer.Option("--subject", help="The subject's id.")]
SessionId = Annotated[str | None, typer.Option("--session", help="The session's id.")]
Entrypoint = Annotated[str | None, typer.Option("--entrypoint", help="data.<package>.<rule> of your own Rego.")]
Records = Annotated[
    str, typer.Option("--records", help="Recorded inputs: a file from `cmf eval --record` (also .gz), or a store.")
]
RecordsKey = Annotated[
    Path | None, typer.Option("--signing-key", metavar="PEM", help="The key that signs a store's records.")
]
SealKey = Annotated[Path | None, typer.Option("--seal-key", help="A file with the seal key, 64 hexadecimal digits.")]
AlgorithmOption = Annotated[Algorithm, typer.Option("--algorithm", help="The key's algorithm, as OPA names it.")]
ProfilesOption = Annotated[Path | None, typer.Option("--profiles", help="Tool profiles: JSON or YAML.")]
PolicyOption = Annotated[
    list[Path] | None,
    policy_option(
        "Policies (repeatable): a directory, a bundle, or the word shipped; data alone extends the shipped ones."
    ),
]
Place = Annotated[
    str, typer.Argument(metavar="STORE", help="The database: a SQLite file, sqlite:////… or postgresql://…")
]
SessionStore = Annotated[
    str,
    typer.Argument(metavar="STORE", help="The session store: a SQLite file, sqlite:////…, postgresql://… or redis://…"),
]
SigningKey = Annotated[
    Path | None,
    typer.Option(
        "--signing-key",
        metavar="PEM",
        help="The key that signs the store's records; by default the one beside a SQLite file.",
    ),
]
PublicKeys = Annotated[
    list[Path] | None,
    typer.Option("--public-key", metavar="PEM", help="A trusted public key (repeatable)."),
]
Person = Annotated[str, typer.Option("--as", metavar="WHO", help="Your id; it is recorded.")]
Second = Annotated[str | None, typer.Option("--second", metavar="WHO", help="A second person, who agrees.")]
Reason = Annotated[str, typer.Option("--reason", help="The reason; it is recorded.")]
OutputAs = Annotated[WrittenAs, typer.Option("--format", help="The output format.")]
