"""Reading older schema versions into the current one [A14]. Spec: docs/spec/evolution.md.

Version 1 is the metis shape (seed 000 §4): blocks with `type`, and everything else in `metadata`. Migration runs when a
message is read, wherever it stands; writing the new shape back is the caller's own act.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from cmf.errors import SchemaVersionError, ShapeError

CURRENT: Final = 2
FORMAT: Final = "metis"  # where what version 1 had no name for is kept
_FIELDS_V1: Final = frozenset({"id", "session_id", "role", "content", "metadata", "created_at", "schema_version"})
_log: Final = logging.getLogger("cmf.message.schema_versions")


def upgrade_message(data: dict[str, Any]) -> dict[str, Any]:
    """`data` in the shape of the current schema version; `data` itself where nothing has to change.

    Raises:
        SchemaVersionError: written by a newer version; the message names both numbers.
        ShapeError: a version 1 message that does not fit its own schema, with the path.
    """
    refuse_newer(data)
    version = data.get("schema_version", CURRENT)
    if type(version) is int and version == 1:
        return _from_v1(data)
    if "provider_raw" in data:  # layout is made by adapters alone, and accepted from no stored or sent form [A15]
        return {key: item for key, item in data.items() if key != "provider_raw"}
    return data


def refuse_newer(fields: Mapping[str, Any]) -> None:
    """Nothing, for a message of a version that this reader knows, or of none at all.

    Raises:
        SchemaVersionError: as `upgrade_message`.
    """
    version = fields.get("schema_version", CURRENT)
    if type(version) is int and version > CURRENT:
        raise SchemaVersionError(
            f"schema version {version} is newer than {CURRENT}, the newest this reader knows",
            path="$.schema_version",
            hint="upgrade this installation",
        )


def _from_v1(data: dict[str, Any]) -> dict[str, Any]:
    content = data.get("content")
    metadata = data.get("metadata") or {}
    if not isinstance(content, list):
        raise _misfit("content is not an array", "$.content")
    if not isinstance(metadata, dict):
        raise _misfit("metadata is not an object", "$.metadata")
    if data.keys() - _FIELDS_V1 - {"provider_raw"}:
        raise _misfit("fields that version 1 does not have", "$")
    upgraded: dict[str, Any] = {key: data[key] for key in ("role", "id", "session_id", "created_at") if key in data}
    upgraded["content"] = [_part(block, f"$.content[{index}]") for index, block in enumerate(content)]
    upgraded["schema_version"] = CURRENT
    left = {key: item for key, item in metadata.items() if item is not None}
    left.pop("provider_raw", None)
    if "status" in left:
        upgraded["status"] = left.pop("status")
    answered = next((part["tool_call_id"] for part in upgraded["content"] if "tool_call_id" in part), None)
    if left.get("parent_tool_use_id") == answered:
        left.pop("parent_tool_use_id", None)  # derived; one with another value is kept with the unknown fields
    extensions = _extensions(left)
    if extensions:
        upgraded["extensions"] = extensions
    return upgraded


def _misfit(problem: str, path: str) -> ShapeError:
    return ShapeError(problem, path=path, code="migration.v1", hint="version 1 is the metis shape")


# -- blocks ------------------------------------------------------------------------------------------------------------

_BLOCKS: Final[dict[str, tuple[str, dict[str, str]]]] = {
    "text": ("text", {"text": "text"}),
    "thinking": ("thinking", {"text": "text", "signature": "signature"}),
    "redacted_thinking": ("redacted_thinking", {"data": "data"}),
    "tool_use": ("tool_call", {"id": "tool_call_id", "name": "name", "input": "arguments"}),
    "tool_result": ("tool_result", {"tool_use_id": "tool_call_id", "content": "content", "is_error": "is_error"}),
    "image": ("image", {"source": "source", "media_type": "media_type"}),
}
"""Block type of version 1 → content type, and each field's name there and here."""

_REQUIRED: Final = {
    "tool_use": ("id", "input"),
    "tool_result": ("tool_use_id", "content"),
    "image": ("source", "media_type"),
}
"""What version 1 requires beyond what a part of today does."""


def _part(block: Any, path: str) -> dict[str, Any]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise _misfit("a block needs a type", path)
    kind = block["type"]
    if kind not in _BLOCKS:
        return {"content_type": "opaque", "provider": FORMAT, "type": kind, "value": block}
    content_type, names = _BLOCKS[kind]
    for name in _REQUIRED.get(kind, ()):
        if block.get(name) is None:
            raise _misfit(f"a {kind} block needs its {name}", f"{path}.{name}")
    part = {"content_type": content_type, **{names[key]: item for key, item in block.items() if key in names}}
    unknown = {key: item for key, item in block.items() if key not in names and key != "type"}
    if kind == "tool_result":
        if not isinstance(part["content"], list):
            raise _misfit("a result's content is not an array", f"{path}.content")
        part["content"] = [_part(inner, f"{path}.content[{at}]") for at, inner in enumerate(part["content"])]
    if kind == "image":
        source = part.pop("source")
        if not isinstance(source, dict) or source.keys() != {"kind", "data"}:
            raise _misfit("an image's source has `kind` and `data`", f"{path}.source")
        part |= {"type": source["kind"], "data": source["data"]}
    if unknown:
        part["extra"] = {FORMAT: unknown}
    return part


# -- metadata ----------------------------------------------------------------------------------------------------------

_TOKENS: Final = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_creation_input_tokens")
_COSTS: Final = ("cost_usd", "pricing_version", "latency_ms")
_ROUTING: Final = ("mode", "chosen_model", "reason", "rule_name", "confidence", "alternatives_considered")


def _extensions(left: dict[str, Any]) -> dict[str, Any]:
    """Each fact of version 1's metadata in its one home; what it does not know in `custom` [A12]."""
    extensions: dict[str, Any] = {}
    llm = {new: left.pop(old) for old, new in (("model", "model_id"), ("provider", "provider")) if old in left}
    if llm:
        extensions["llm"] = llm
    if "routing" in left:
        extensions["routing"] = _known(left, "routing", _ROUTING)
    if "usage" in left:
        usage = _known(left, "usage", _TOKENS + _COSTS)
        tokens: dict[str, Any] = {name: usage.pop(name) for name in _TOKENS if name in usage}
        if all(type(count) is int for count in tokens.values()):
            tokens["total_tokens"] = sum(tokens.values())
        extensions["completion"] = {"tokens": tokens, **usage}
    subject: dict[str, Any] = {"id": left.pop("user_id")} if "user_id" in left else {}
    if "team_id" in left:
        subject["teams"] = [left.pop("team_id")]
    if subject:
        extensions["security"] = {"subject": subject}
    if left:
        _log.warning("unknown metadata kept in `custom`: %s", ", ".join(sorted(left)))
        extensions["custom"] = left
    return extensions


def _known(left: dict[str, Any], name: str, fields: tuple[str, ...]) -> dict[str, Any]:
    """The record called `name`, with what version 1 does not know of it left where it was."""
    record = left.pop(name)
    if not isinstance(record, dict):
        raise _misfit(f"{name} is not an object", f"$.metadata.{name}")
    unknown = {key: item for key, item in record.items() if key not in fields}
    if unknown:
        left[name] = unknown
    return {key: item for key, item in record.items() if key in fields}
