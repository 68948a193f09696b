"""`cmf schema`: the JSON Schemas, generated from the types."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

SchemaName = Literal["view", "message", "decision", "profiles", "case", "config"]


def command(name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="The schema to print.")] = "view") -> None:
    """Print a JSON Schema: of the policy input, a message, a decision, tool profiles, test cases, or cmf.yaml."""
    typer.echo(json.dumps(schema_of(name), indent=2))


def schema_of(name: SchemaName) -> dict[str, Any]:
    """The schema of that name."""
    from pipeline.policy import schemas

    match name:  # each imports what it describes: the settings, for one, everything that a gateway needs
        case "view":
            schema = schemas.view_schema()
        case "message":
            schema = schemas.message_schema()
        case "decision":
            schema = schemas.decision_schema()
        case "profiles":
            from pipeline.provenance.profile import profiles_schema

            schema = profiles_schema()
        case "case":
            from pipeline.authoring.case import case_schema

            schema = case_schema()
        case "config":
            from pipeline.gateway.config.settings import settings_schema

            schema = settings_schema()
    return {"$schema": schemas.DIALECT, **schema}
