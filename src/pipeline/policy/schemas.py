"""JSON Schemas for authors: policy input, message and decision. Spec: policy-input.md.

They are generated from the types and tables that produce the documents, so they cannot drift from them.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from cmf.enums import Hook, Role, ViewAction, ViewKind
from cmf.json.codec import loads
from cmf.json.value import json_schema
from cmf.message.message import Extensions, Message, TokenUsage
from cmf.message.request import Sampling
from cmf.message.security import DataPolicy, ObjectSecurityProfile
from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.decision import Action, Effect, Mode, Severity, Verdict

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_DATA: Final[Mapping[str, Any]] = loads(
    importlib.resources.files("pipeline.policy").joinpath("schemas.json").read_bytes()
)
_ENUMS: Final[tuple[type[StrEnum], ...]] = (
    Hook, Role, ViewAction, ViewKind, ApprovalStatus, Action, Effect, Mode, Severity, Verdict,
)  # fmt: skip
_NUMBER: Final = {"type": ["number", "string"]}  # very large integers are strings [VIEW-15]
NAMED: Final[Mapping[str, Any]] = {
    "string": {"type": "string"},
    "strings": {"type": "array", "items": {"type": "string"}},
    "nullable": {"type": ["string", "null"]},
    "count": {"type": "integer", "minimum": 0},
    "number": _NUMBER,
    "boolean": {"type": "boolean"},
    "any_object": {"type": "object"},
    "origin": _DATA["origin"],
    "address": _DATA["address"],
    **{members.__name__: {"type": "string", "enum": [member.value for member in members]} for members in _ENUMS},
}
PROPERTY_KINDS: Final[Mapping[str, frozenset[ViewKind]]] = {
    name: frozenset(ViewKind if "*" in row["kinds"] else map(ViewKind, row["kinds"]))
    for row in _DATA["property_kinds"]
    for name in row["names"]
}
"""The kinds of views that can have each property; no view of another kind ever has it."""


def expanded(shape: Any, named: Mapping[str, Any]) -> Any:
    """The schema that a shape of our data files is short for.

    `"@name"` stands for one of `named`, `{"object": properties, "required": […]}` for an object without other
    properties, and `{"array": shape}` for an array.
    """
    if isinstance(shape, str) and shape.startswith("@"):
        return named[shape[1:]]
    if isinstance(shape, list):
        return [expanded(part, named) for part in shape]
    if not isinstance(shape, dict):
        return shape
    if "array" in shape:
        return {"type": "array", "items": expanded(shape["array"], named)}
    if "object" in shape:
        properties = {name: expanded(part, named) for name, part in shape["object"].items()}
        more = {key: part for key, part in shape.items() if key not in ("object", "required")}
        return {**closed(properties, shape.get("required", ())), **more}
    return {key: expanded(part, named) for key, part in shape.items()}


def closed(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    """The schema of an object without other properties."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def view_schema() -> dict[str, Any]:
    """The `input` of policies: version 1 of the policy input."""
    extensions = json_schema(Extensions)
    definitions = extensions.pop("$defs", {})
    own = extensions["properties"]
    security = definitions["SecurityExtension"]["properties"]
    for gone in ("objects", "data"):
        security.pop(gone)  # the view has its own `object` and `data_policy` instead
    for name, cls in (("object", ObjectSecurityProfile), ("data_policy", DataPolicy)):
        part = json_schema(cls)
        definitions |= part.pop("$defs", {})
        security[name] = part
    tokens, sampling = (json_schema(cls)["properties"] for cls in (TokenUsage, Sampling))
    parts: dict[str, Any] = {
        "sampling": closed({**dict.fromkeys(sampling, _NUMBER), "stop": NAMED["strings"]}),
        "usage": closed({name: {} for name in tokens}),
        "extensions": closed(own),
    }
    parts["properties"] = expanded(_DATA["properties"], {**NAMED, **parts})
    return {"title": "Policy input of one view", **expanded(_DATA["view"], {**NAMED, **parts}), "$defs": definitions}


def message_schema() -> dict[str, Any]:
    """The canonical message."""
    return json_schema(Message)


def decision_schema() -> dict[str, Any]:
    """The output of `cmf eval --format json`."""
    return {"title": "Decision", **expanded(_DATA["decision"], NAMED)}
