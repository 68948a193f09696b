"""The JSON Schemas that `cmf schema` prints, by name. Spec: policy-input.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pipeline.policy.schemas import DIALECT, decision_schema, message_schema, view_schema
from pipeline.provenance.profile import profiles_schema

_SCHEMAS: Final[dict[str, Callable[[], dict[str, Any]]]] = {
    "view": view_schema,
    "message": message_schema,
    "decision": decision_schema,
    "profiles": profiles_schema,
}


def schema_of(name: str) -> dict[str, Any]:
    """The schema called `view`, `message`, `decision` or `profiles`."""
    return {"$schema": DIALECT, **_SCHEMAS[name]()}
