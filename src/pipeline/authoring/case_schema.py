"""The JSON Schema of case files, for editors, generated from the types that read them. Spec: cases.md [CASE-6]."""

from __future__ import annotations

from typing import Any, Final, get_args

from cmf.adapters import FORMATS
from cmf.enums import Role
from cmf.json.value import Value, json_schema
from cmf.message.message import Message
from cmf.message.security import SubjectExtension
from cmf.message.tools import ToolDefinition
from pipeline.authoring.case import DEFAULTS, KEYS, Expectation, SessionBefore
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Verdict
from pipeline.policy.schemas import DIALECT
from pipeline.provenance.claims import HistoryTrust

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "minLength": 1}
_PART_KEYS: Final[dict[str, dict[str, Any]]] = {
    "tool_call": {"id": _TEXT, "args": {"type": "object"}, "name": _TEXT},
    "tool_result": {"id": _TEXT, "name": _TEXT, "content": {}},
}


def case_schema() -> dict[str, Any]:
    """The schema of one file; it leaves open what a matrix may fill in."""
    definitions: dict[str, Any] = {}

    def of(cls: type[Value]) -> dict[str, Any]:
        schema = json_schema(cls)
        definitions.update(schema.pop("$defs", {}))
        definitions[cls.__name__] = schema
        return {"$ref": f"#/$defs/{cls.__name__}"}

    expectation = {"anyOf": [{"enum": list(Verdict)}, of(Expectation)]}
    keys: dict[str, Any] = {
        "name": _NAME,
        "description": _TEXT,
        "conversation": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/turn"}}, {"$ref": "#/$defs/wire"}]},
        "reply": _turn(required=()),
        "model": _TEXT,
        "tools": {"type": "array", "items": of(ToolDefinition)},
        "subject": of(SubjectExtension),
        "context": of(Context),
        "session": of(SessionBefore),
        "profiles": _TEXT,
        "history": {"enum": [*get_args(HistoryTrust)]},
        "expect": expectation,
        "matrix": {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}},
        "expect_table": {"type": "array"},
        "skip": _TEXT,
    }
    of(Message)
    definitions |= {"turn": {"anyOf": [_turn(), {"$ref": "#/$defs/Message"}]}, "wire": _wire()}
    case = _object({key: keys[key] for key in sorted(KEYS)}, "name")
    defaults = _object({key: keys[key] for key in sorted(DEFAULTS)})
    cases = {"type": "array", "minItems": 1, "items": case}
    file = _object({"name": _TEXT, "description": _TEXT, "defaults": defaults, "cases": cases}, "cases")
    return {"$schema": DIALECT, "title": "Test cases", **file, "$defs": definitions}


def _object(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _turn(required: tuple[str, ...] = ("role",)) -> dict[str, Any]:
    """A message in its short spelling."""
    parts = {kind: _one_or_more({"type": "object", "properties": known}) for kind, known in _PART_KEYS.items()}
    facts = {"role": {"enum": list(Role)}, "text": _TEXT, **parts}
    return _object(facts if required else {**facts, "content": {"type": "array"}}, *required)


def _one_or_more(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "array", "items": schema}]}


def _wire() -> dict[str, Any]:
    """A conversation in a wire format."""
    facts = {
        "from": {"enum": ["canonical", *FORMATS]},
        "file": _TEXT,
        "body": {},
        "kind": {"enum": ["request", "response", "message"]},
    }
    return {**_object(facts, "from"), "oneOf": [{"required": ["file"]}, {"required": ["body"]}]}


__all__ = ["case_schema"]
