"""`cmf schema`: the JSON Schemas, generated from the types."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import typer

SchemaName = Literal["view", "message", "decision", "profiles", "case", "config"]


def command(name: Annotated[SchemaName, typer.Argument(metavar="NAME", help="The schema to print.")] = "view") -> None:
    """Print a JSON Schema: of the policy input, a message, a decision, tool profiles, test cases, or cmf.yaml."""
    typer.echo(json.dumps(_schema(name), indent=2))


def _schema(name: str) -> dict[str, Any]:
    # Each imports what it describes: the settings, for one, everything that a gateway needs.
    if name == "case":
        from pipeline.authoring.case import case_schema

        return case_schema()
    if name != "config":
        from pipeline.authoring.schemas import schema_of

        return schema_of(name)
    from pipeline.gateway.config.settings import settings_schema
    from pipeline.policy.schemas import DIALECT

    return {"$schema": DIALECT, **settings_schema()}
