"""JSON Schemas for authors: policy input, message and decision. Spec: policy-input.md.

They are generated from the types and tables that produce the documents, so they cannot drift from them.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
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
_STRING: Final = {"type": "string"}
_STRINGS: Final = {"type": "array", "items": _STRING}
_COUNT: Final = {"type": "integer", "minimum": 0}
_NUMBER: Final = {"type": ["number", "string"]}
_BOOLEAN: Final = {"type": "boolean"}
_ANY_OBJECT: Final = {"type": "object"}
_ANYTHING: Final[dict[str, Any]] = {}


def _values(members: type[StrEnum]) -> dict[str, Any]:
    return {"type": "string", "enum": [member.value for member in members]}


def _object(properties: dict[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
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
    facts = {
        "kind": _values(ViewKind),
        "role": _values(Role),
        "hook": _values(Hook),
        "path": _STRING,
        "is_pre": {"type": "boolean"},
        "is_post": {"type": "boolean"},
        "action": _values(ViewAction),
        "uri": _STRING,
        "name": _STRING,
        "content": _STRING,
        "plain": _STRING,
        "folded": _STRING,
        "decoded": {"type": "array", "items": _object({"text": _STRING, "span": {"type": "array", "items": _COUNT}})},
        "spelled": _STRINGS,
        "spelled_context": _STRINGS,
        "size_bytes": _COUNT,
        "mime_type": _STRING,
        "arguments": {"type": "object"},
        "properties": _properties_schema(),
        "extensions": _object(own),
        "session": _object(
            {
                "labels": _STRINGS,
                "counters": {"type": "object"},
                "events": {"type": "array", "items": {"type": "object"}},
                "approvals": {"type": "array", "items": {"type": "object"}},
            }
        ),
        "origins": {"type": "array", "items": _part("origin")},
        "addresses": {"type": "array", "items": _part("address")},
    }
    required = ("kind", "role", "path", "is_pre", "is_post", "action", "properties", "extensions")
    return {"title": "Policy input of one view", **_object(facts, required), "$defs": definitions}


def _properties_schema() -> dict[str, Any]:
    """The properties of all kinds of views. Very large integers are strings [VIEW-15]."""
    finding = _object({"path": _STRING, "problem": _STRING})
    choice = _object({"stop_reason": _STRING, "raw_stop_reason": _STRING, "extra": _ANY_OBJECT})
    error = {"message": _STRING, "type": _STRING, "code": _STRING, "status": _NUMBER, "retry_after_seconds": _COUNT}
    tokens, sampling = (json_schema(cls)["properties"] for cls in (TokenUsage, Sampling))
    message_strings = ("id", "parent_id", "channel", "session_id", "status")
    facts = {
        **dict.fromkeys(_STRING_PROPERTIES, _STRING),
        **dict.fromkeys(("message_count", "tool_count", "choice_count", "joined"), _COUNT),
        **dict.fromkeys(("arguments_invalid", "is_error", "redacted", "stream"), _BOOLEAN),
        **dict.fromkeys(("duration_ms", "range_start", "range_end"), _NUMBER),
        **dict.fromkeys(("annotations", "extra", "response_schema"), _ANY_OBJECT),
        **dict.fromkeys(("big_integers", "other_models"), _STRINGS),
        "choices": {"type": "array", "items": choice},
        "data": {"type": "array", "items": _ANY_OBJECT},
        "error": _object(error),
        "executed_by": {"type": "string", "enum": ["client", "provider"]},
        "input_schema": {"type": ["object", "boolean"]},
        "message": _object({**dict.fromkeys(message_strings, _STRING), "extra": _ANY_OBJECT}),
        "sampling": _object({**dict.fromkeys(sampling, _NUMBER), "stop": _STRINGS}),
        "schema_findings": {"type": "array", "items": finding},
        "tool_choice": _object({"mode": _STRING, "name": _STRING, "allowed": _STRINGS}),
        "usage": _object(dict.fromkeys(tokens, _ANYTHING)),
    }
    return _object(facts)


_MEDIA: Final = (ViewKind.IMAGE, ViewKind.VIDEO, ViewKind.AUDIO, ViewKind.DOCUMENT)
_OF_TOOLS: Final = (ViewKind.TOOL_DEFINITION, ViewKind.TOOL_CALL, ViewKind.TOOL_RESULT)
_OF_REQUESTS: Final = (
    "tool_choice", "response_schema", "response_schema_name", "reasoning_effort", "stream", "sampling", "session_id",
    "other_models",
)  # fmt: skip
PROPERTY_KINDS: Final[Mapping[str, frozenset[ViewKind]]] = {
    name: frozenset(kinds)
    for names, kinds in (
        (("executed_by",), _OF_TOOLS),
        (("namespace",), (ViewKind.TOOL_DEFINITION, ViewKind.TOOL_CALL)),
        (("tool_id",), (ViewKind.TOOL_CALL, ViewKind.TOOL_RESULT)),
        (("arguments_invalid", "arguments_raw"), (ViewKind.TOOL_CALL,)),
        (("tool_name",), (ViewKind.TOOL_RESULT,)),
        (("side_effects", "input_schema", "schema_findings"), (ViewKind.TOOL_DEFINITION,)),
        (("is_error",), (ViewKind.TOOL_RESULT, ViewKind.PROMPT_RESULT)),
        (("resource_type",), (ViewKind.RESOURCE, ViewKind.RESOURCE_REF)),
        (("raw_uri",), (ViewKind.RESOURCE, ViewKind.RESOURCE_REF, *_MEDIA)),
        (("version", "description", "annotations"), (ViewKind.RESOURCE,)),
        (("range_start", "range_end", "selector"), (ViewKind.RESOURCE_REF,)),
        (
            ("request_id",),
            (ViewKind.RESOURCE, ViewKind.RESOURCE_REF, ViewKind.PROMPT_REQUEST, ViewKind.PROMPT_RESULT),
        ),
        (("server_id",), (ViewKind.PROMPT_REQUEST,)),
        (("error_message",), (ViewKind.PROMPT_RESULT,)),
        (("message_count",), (ViewKind.REQUEST, ViewKind.PROMPT_RESULT)),
        (("source_type",), _MEDIA),
        (("duration_ms",), (ViewKind.VIDEO, ViewKind.AUDIO)),
        (("title",), (ViewKind.DOCUMENT,)),
        (("joined",), (ViewKind.TEXT, ViewKind.THINKING)),
        (("redacted",), (ViewKind.THINKING,)),
        (("data",), (ViewKind.RESOURCE, ViewKind.THINKING, *_MEDIA)),
        (("provider",), (ViewKind.OPAQUE,)),
        (("type",), (ViewKind.TOOL_DEFINITION, ViewKind.OPAQUE)),
        (_OF_REQUESTS, (ViewKind.REQUEST,)),
        (("tool_count",), (ViewKind.REQUEST, ViewKind.RESPONSE)),
        (("choice_count", "usage", "error", "choices"), (ViewKind.RESPONSE,)),
        (("container", "message", "extra", "big_integers"), tuple(ViewKind)),
    )
    for name in names
}
"""The kinds of views that can have each property; no view of another kind ever has it."""

_STRING_PROPERTIES: Final = (
    "arguments_raw", "container", "description", "error_message", "namespace", "provider", "raw_uri",
    "reasoning_effort", "request_id", "resource_type", "response_schema_name", "selector", "server_id", "session_id",
    "side_effects", "source_type", "title", "tool_id", "tool_name", "type", "version",
)  # fmt: skip


@cache
def _part(name: str) -> dict[str, Any]:
    """The schema of a part of the input: `origin` of a value of a call [PROV-1], [PROV-2], or `address` [INP-9]."""
    parts = importlib.resources.files("pipeline.policy").joinpath("input_parts.json").read_bytes()
    part: dict[str, Any] = loads(parts)[name]
    return part


def message_schema() -> dict[str, Any]:
    """The canonical message."""
    return json_schema(Message)


def decision_schema() -> dict[str, Any]:
    """The output of `cmf eval --format json`."""
    hit = _object(
        {
            "rule": _STRING,
            "code": _STRING,
            "effect": _values(Effect),
            "reason": _STRING,
            "severity": _values(Severity),
            "detail": {"type": "object"},
            "mode": _values(Mode),
            "excused": _object({"owner": _STRING, "until": _STRING, "override": _STRING}, ("owner", "until")),
        },
        ("rule", "code", "effect", "reason", "severity"),
    )
    nullable = {"type": ["string", "null"]}
    view = _object(
        {
            "path": _STRING,
            "kind": _values(ViewKind),
            "role": _values(Role),
            "uri": nullable,
            "name": nullable,
            "action": _values(ViewAction),
            "direction": {"type": "string", "enum": ["pre", "post"]},
            "verdict": _values(Verdict),
            "outcome": _values(Action),
            "hits": {"type": "array", "items": hit},
            "origins": {"type": "array", "items": _part("origin")},
            "reused": {"const": True},
        },
        ("path", "kind", "role", "uri", "name", "action", "direction", "verdict", "outcome", "hits"),
    )
    skipped = _object({"path": _STRING, "reason": _STRING}, ("path", "reason"))
    coverage = _object(
        {"produced": _COUNT, "evaluated": _COUNT, "skipped": {"type": "array", "items": skipped}, "reused": _COUNT},
        ("produced", "evaluated", "skipped"),
    )
    approval = _object({"id": _STRING, "path": _STRING, "status": _values(ApprovalStatus)}, ("path", "status"))
    facts = {
        "verdict": _values(Verdict),
        "action": _values(Action),
        "mode": _values(Mode),
        "revision": _STRING,
        "decision_id": _STRING,
        "coverage": coverage,
        "excused": _COUNT,
        "views": {"type": "array", "items": view},
        "approvals": {"type": "array", "items": approval},
        "request": {},
    }
    required = ("verdict", "action", "mode", "revision", "decision_id", "coverage", "views")
    return {"title": "Decision", **_object(facts, required)}
