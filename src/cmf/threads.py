"""Conversations as trees, and the agent-threads JSON form of them (seed 002). Spec: docs/spec/threads.md.

A linear conversation is a tree in which every message has one child. Order among siblings is the order given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cmf.codec import dumps, loads
from cmf.content import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.errors import SchemaVersionError, ShapeError, UnsupportedError
from cmf.frozen import FrozenDict, freeze, thaw
from cmf.message import Message
from cmf.value import to_json

FORMAT: Final = "agent_threads"
SCHEMA_VERSION: Final = 1  # of the agent-threads form; its numbering is its own [A14]


# -- the tree ----------------------------------------------------------------------------------------------------------


def children(messages: Iterable[Message], parent_id: str | None) -> list[Message]:
    """The messages whose parent is `parent_id`, in order; None gives the roots."""
    return [message for message in messages if message.parent_id == parent_id]


def leaves(messages: Sequence[Message]) -> list[Message]:
    """The messages that nothing follows, in order."""
    parents = {message.parent_id for message in messages}
    return [message for message in messages if message.id not in parents]


def path_to_root(messages: Iterable[Message], leaf_id: str) -> list[Message]:
    """The branch that ends in `leaf_id`, root first.

    Raises:
        ShapeError: no such message, a parent that is missing, or a cycle.
    """
    by_id = {message.id: message for message in messages}
    branch: list[Message] = []
    seen: set[str] = set()
    at: str | None = leaf_id
    while at is not None:
        message = by_id.get(at)
        if message is None:
            raise ShapeError("a message's parent is missing", code="threads.missing", hint="give the whole tree")
        if at in seen:
            raise ShapeError("the parents form a cycle", code="threads.cycle")
        seen.add(at)
        branch.append(message)
        at = message.parent_id
    return branch[::-1]


def linearise(messages: Sequence[Message], choose: Mapping[str, str] | None = None) -> list[Message]:
    """One conversation out of the tree: along the last child, or the one that `choose` names for its parent."""
    branch: list[Message] = []
    step = children(messages, None)
    while step:
        wanted = (choose or {}).get(str(step[0].parent_id))
        message = next((one for one in step if one.id == wanted), step[-1])
        if len(branch) > len(messages):
            raise ShapeError("the parents form a cycle", code="threads.cycle")
        branch.append(message)
        step = children(messages, message.id) if message.id is not None else []
    return branch


# -- the agent-threads form --------------------------------------------------------------------------------------------

_ROLES: Final = frozenset({"user", "assistant", "system", "tool"})
_MESSAGE_KEYS: Final = frozenset({"id", "parentMessageId", "role", "parts", "createdAt", "metadata"})
_MEDIA: Final[tuple[tuple[str, type[ImagePart | VideoPart | AudioPart]], ...]] = (
    ("image/", ImagePart),
    ("video/", VideoPart),
    ("audio/", AudioPart),
)


def from_agent_threads(body: Any, path: str = "$") -> Message:
    """The message that an agent-threads `CanonicalMessage` describes; `to_agent_threads` gives the same JSON back.

    Raises:
        ShapeError: not that form, with the path. SchemaVersionError: a newer version of it.
    """
    if not isinstance(body, dict) or not isinstance(body.get("parts"), list):
        raise ShapeError("not an agent-threads message", path=path, hint="it has `role` and `parts`")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or type(metadata.get("schemaVersion")) is not int:
        raise ShapeError("metadata needs a schemaVersion", path=f"{path}.metadata.schemaVersion")
    if metadata["schemaVersion"] > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"agent-threads version {metadata['schemaVersion']} is newer than {SCHEMA_VERSION}",
            path=f"{path}.metadata.schemaVersion",
            hint="upgrade this installation",
        )
    if body.get("role") not in _ROLES:
        raise ShapeError("unknown role", path=f"{path}.role", hint=f"use one of {', '.join(sorted(_ROLES))}")
    rest = {key: item for key, item in body.items() if key not in _MESSAGE_KEYS}
    created, moment = body.get("createdAt"), _moment(body.get("createdAt"), f"{path}.createdAt")
    if created is not None and (moment is None or to_json(moment) != created):
        rest["createdAt"] = created  # another spelling of the same time
    carried: dict[str, Any] = {"metadata": metadata}
    if rest:
        carried["rest"] = rest
    return Message(
        role=body["role"],
        content=tuple(_part(part, f"{path}.parts[{index}]") for index, part in enumerate(body["parts"])),
        id=body.get("id"),
        parent_id=body.get("parentMessageId"),
        created_at=moment,
        extra=FrozenDict({FORMAT: carried}),
    )


def _moment(text: Any, path: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ShapeError("not an ISO 8601 time", path=path) from None
    return moment if moment.tzinfo is not None else None


def _part(part: Any, path: str) -> Part:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ShapeError("a part needs a type", path=path)
    reader = _READERS.get(part["type"])
    if reader is None or not reader[0] <= part.keys():
        return OpaquePart(provider=FORMAT, type=part["type"], value=FrozenDict(part))
    needs, read = reader
    extra = {key: item for key, item in part.items() if key not in needs | {"type"}}
    return read(part, FrozenDict({FORMAT: extra}) if extra else None)


_Reader = Callable[[dict[str, Any], FrozenDict | None], Part]


def _read_text(part: dict[str, Any], extra: FrozenDict | None) -> Part:
    return TextPart(text=part["text"], extra=extra)


def _read_reasoning(part: dict[str, Any], extra: FrozenDict | None) -> Part:
    return ThinkingPart(text=part["text"], extra=extra)


def _read_call(part: dict[str, Any], extra: FrozenDict | None) -> Part:
    names = {"tool_call_id": part["toolCallId"], "name": part["toolName"], "extra": extra}
    if isinstance(part["input"], dict):
        return ToolCallPart(arguments=part["input"], **names)
    # `input` may be any JSON there; what is no object keeps its exact text.
    return ToolCallPart(arguments_raw=dumps(part["input"]).decode(), **names)


def _read_result(part: dict[str, Any], extra: FrozenDict | None) -> Part:
    return ToolResultPart(
        tool_call_id=part["toolCallId"],
        tool_name=part["toolName"],
        content=freeze(part["output"]),
        is_error=part["isError"],
        extra=extra,
    )


def _read_file(part: dict[str, Any], extra: FrozenDict | None) -> Part:
    mime, url = str(part["mimeType"]), part["url"]
    for prefix, cls in _MEDIA:
        if mime.startswith(prefix):
            return cls(type="url", data=url, media_type=mime, extra=extra)
    return DocumentPart(type="url", data=url, media_type=mime, extra=extra)


_READERS: Final[dict[str, tuple[frozenset[str], _Reader]]] = {
    "text": (frozenset({"text"}), _read_text),
    "reasoning": (frozenset({"text"}), _read_reasoning),
    "tool-call": (frozenset({"toolCallId", "toolName", "input"}), _read_call),
    "tool-result": (frozenset({"toolCallId", "toolName", "output", "isError"}), _read_result),
    "file": (frozenset({"mimeType", "url"}), _read_file),
}


def to_agent_threads(message: Message) -> dict[str, Any]:
    """The agent-threads form of a message.

    Raises:
        UnsupportedError: a role or part that the form has no place for.
    """
    if message.role.value not in _ROLES:
        raise UnsupportedError(f"agent-threads has no role {message.role.value}", path="$.role")
    own = message.extra.get(FORMAT, {}) if message.extra else {}
    body: dict[str, Any] = {
        "id": message.id,
        "parentMessageId": message.parent_id,
        "role": message.role.value,
        "parts": [_write(part, f"$.parts[{index}]") for index, part in enumerate(message.content)],
        "createdAt": to_json(message.created_at),
        "metadata": thaw(own.get("metadata", {"schemaVersion": SCHEMA_VERSION})),
    }
    rest: dict[str, Any] = thaw(own.get("rest", {}))
    return body | rest


def _write(part: Part, path: str) -> dict[str, Any]:
    extra = thaw(part.extra.get(FORMAT, {})) if part.extra else {}
    match part:
        case TextPart():
            return {"type": "text", "text": part.text, **extra}
        case ThinkingPart():
            return {"type": "reasoning", "text": part.text, **extra}
        case ToolCallPart():
            return {
                "type": "tool-call",
                "toolCallId": part.tool_call_id,
                "toolName": part.name,
                **_input(part),
                **extra,
            }
        case ToolResultPart() if not isinstance(part.content, tuple):
            return {
                "type": "tool-result",
                "toolCallId": part.tool_call_id,
                "toolName": part.tool_name,
                "output": thaw(part.content),
                "isError": part.is_error,
                **extra,
            }
        case ImagePart() | VideoPart() | AudioPart() | DocumentPart() if part.type == "url":
            return {"type": "file", "mimeType": part.media_type, "url": part.data, **extra}
        case OpaquePart(provider=provider) if provider == FORMAT:
            value: dict[str, Any] = thaw(part.value)
            return value
        case _:
            raise UnsupportedError(f"agent-threads has no {part.content_type.value} part", path=path)


def _input(part: ToolCallPart) -> dict[str, Any]:
    if part.arguments_raw is None:
        return {"input": thaw(part.arguments if part.arguments is not None else {})}
    return {"input": loads(part.arguments_raw)}
