"""Reading older schema versions into the current one [A14]. Spec: docs/spec/evolution.md.

Version 1 is the metis shape (seed 000 §4): blocks with `type`, and everything else in `metadata`. Migration runs when a
message is read; writing the new shape back is the caller's own act.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from cmf.errors import SchemaVersionError, ShapeError

CURRENT: Final = 2
_log: Final = logging.getLogger("cmf.migrations")


def upgrade_message(data: dict[str, Any]) -> dict[str, Any]:
    """`data` in the shape of the current schema version; `data` itself where nothing has to change.

    Raises:
        SchemaVersionError: written by a newer version; the message names both numbers.
        ShapeError: a version 1 message that does not fit its own schema, with the path.
    """
    version = data.get("schema_version", CURRENT)
    if type(version) is int and version > CURRENT:
        raise SchemaVersionError(
            f"schema version {version} is newer than {CURRENT}, the newest this reader knows",
            path="$.schema_version",
            hint="upgrade this installation",
        )
    if type(version) is int and version == 1:
        return _from_v1(data)
    if "provider_raw" in data:  # layout is made by adapters alone, and accepted from no stored or sent form [A15]
        return {key: item for key, item in data.items() if key != "provider_raw"}
    return data


def _from_v1(data: dict[str, Any]) -> dict[str, Any]:
    content = data.get("content")
    metadata = data.get("metadata") or {}
    if not isinstance(content, list):
        raise ShapeError("content is not an array", path="$.content", code="migration.v1")
    if not isinstance(metadata, dict):
        raise ShapeError("metadata is not an object", path="$.metadata", code="migration.v1")
    upgraded = {key: item for key, item in data.items() if key not in ("content", "metadata", "schema_version")}
    upgraded["content"] = [_part(block, f"$.content[{index}]") for index, block in enumerate(content)]
    upgraded["schema_version"] = CURRENT
    if "status" in metadata:
        upgraded["status"] = metadata["status"]
    extensions = _extensions(metadata)
    if extensions:
        upgraded["extensions"] = extensions
    return upgraded


def _part(block: Any, path: str) -> dict[str, Any]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise ShapeError("a block needs a type", path=path, code="migration.v1")
    kind = block["type"]
    fields = {key: item for key, item in block.items() if key != "type"}
    if kind in ("text", "thinking", "redacted_thinking"):
        return {"content_type": kind, **fields}
    if kind == "tool_use":
        names = {"id": "tool_call_id", "input": "arguments"}
        return {"content_type": "tool_call", **_renamed(fields, names)}
    if kind == "tool_result":
        inner = fields.get("content", [])
        if not isinstance(inner, list):
            raise ShapeError("a result's content is not an array", path=f"{path}.content", code="migration.v1")
        parts = [_part(one, f"{path}.content[{index}]") for index, one in enumerate(inner)]
        return {"content_type": "tool_result", **_renamed(fields, {"tool_use_id": "tool_call_id"}), "content": parts}
    if kind == "image":
        source = fields.pop("source", None)
        if not isinstance(source, dict):
            raise ShapeError("an image needs a source", path=f"{path}.source", code="migration.v1")
        return {"content_type": "image", **fields, **_renamed(source, {"kind": "type"})}
    return {"content_type": "opaque", "provider": "metis", "type": kind, "value": block}


def _renamed(fields: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): item for key, item in fields.items()}


def _extensions(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Each fact of version 1's metadata in its one home."""
    left = {key: item for key, item in metadata.items() if item is not None}
    for gone in ("status", "provider_raw", "parent_tool_use_id"):
        left.pop(gone, None)  # a field of the message; layout, never imported; derived
    made: dict[str, Any] = {}
    llm = {new: left.pop(old) for old, new in (("model", "model_id"), ("provider", "provider")) if old in left}
    if llm:
        made["llm"] = llm
    if "routing" in left:
        made["routing"] = left.pop("routing")
    if "usage" in left:
        made["completion"] = _completion(left.pop("usage"))
    subject: dict[str, Any] = {}
    if "user_id" in left:
        subject["id"] = left.pop("user_id")
    if "team_id" in left:
        subject["teams"] = [left.pop("team_id")]
    if subject:
        made["security"] = {"subject": subject}
    if left:
        _log.warning("unknown metadata kept in `custom`: %s", ", ".join(sorted(left)))
        made["custom"] = left
    return made


_TOKENS: Final = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_creation_input_tokens")


def _completion(usage: Any) -> dict[str, Any]:
    if not isinstance(usage, dict):
        raise ShapeError("usage is not an object", path="$.metadata.usage", code="migration.v1")
    tokens = {name: usage[name] for name in _TOKENS if name in usage}
    if all(type(count) is int for count in tokens.values()):
        tokens["total_tokens"] = sum(tokens.values())
    rest = {key: item for key, item in usage.items() if key not in _TOKENS}
    return {"tokens": tokens, **rest}
