"""`cmf schema`: the JSON Schemas, generated from the types."""

from __future__ import annotations

import json
from typing import Any

import typer

from pipeline.authoring.case_schema import case_schema
from pipeline.authoring.schemas import schema_of
from pipeline.policy.schemas import DIALECT


def run(name: str) -> None:
    """Print one schema, indented."""
    typer.echo(json.dumps(_schema(name), indent=2))


def _schema(name: str) -> dict[str, Any]:
    if name == "case":
        return case_schema()
    if name != "config":
        return schema_of(name)
    from pipeline.gateway.config.settings_schema import settings_schema  # imports everything a gateway needs

    return {"$schema": DIALECT, **settings_schema()}
