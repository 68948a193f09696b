"""`cmf schema`: the JSON Schemas, generated from the types."""

from __future__ import annotations

import json

import typer

from pipeline.case_schema import case_schema
from pipeline.schemas import schema_of


def run(name: str) -> None:
    """Print one schema, indented."""
    typer.echo(json.dumps(case_schema() if name == "case" else schema_of(name), indent=2))
