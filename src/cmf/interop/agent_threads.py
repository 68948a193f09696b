"""Conversations as trees, and the agent-threads JSON form of them (seed 002). Spec: docs/spec/threads.md.

A linear conversation is a tree in which every message has one child. Order among siblings is the order given. What a
message holds beyond that form stands under the key `cmf`, in its metadata or its part, and is read back from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from cmf.errors import DecodeError, SchemaVersionError, ShapeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, same_spelling, thaw
from cmf.json.value import to_json
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
    media_class,
)

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
            raise _cycle()
        seen.add(at)
        branch.append(message)
        at = message.parent_id
    return branch[::-1]


def linearise(messages: Sequence[Message], choose: Mapping[str | None, str] | None = None) -> list[Message]:
    """One conversation out of the tree: along the last child, or the one that `choose` names for its parent.

    Raises:
        ShapeError: there is no root, the parents form a cycle, or `choose` names a message that is no child there.
    """
    branch: list[Message] = []
    at: str | None = None
    while step := children(messages, at):
        if len(branch) > len(messages):
            raise _cycle()
        wanted = (choose or {}).get(at)
        chosen = step[-1] if wanted is None else next((message for message in step if message.id == wanted), None)
        if chosen is None:
            hint = "choose by the id of one of its children"
            raise ShapeError("the chosen message is no child of that parent", code="threads.missing", hint=hint)
        branch.append(chosen)
        at = chosen.id
        if at is None:
            break
    if messages and not branch:
        raise ShapeError("no message is a root", code="threads.missing", hint="give the whole tree")
    return branch


def _cycle() -> ShapeError:
    return ShapeError("the parents form a cycle", code="threads.cycle", hint="let each message follow an earlier one")


# -- the agent-threads form --------------------------------------------------------------------------------------------

_OWN_KEY: Final = "cmf"
_ROLES: Final = frozenset({"user", "assistant", "system", "tool"})
_MESSAGE_KEYS: Final = ("id", "parentMessageId", "role", "parts", "createdAt", "metadata")
_MESSAGE_REST: Final = frozenset({"session_id", "channel", "status", "extensions", "extra"})


def from_agent_threads(body: Any, path: str = "$") -> Message:
    """The message that an agent-threads `CanonicalMessage` describes; `to_agent_threads` gives the same JSON back.

    Raises:
        ShapeError: not that form, with the path. SchemaVersionError: a newer version of it.
    """
    if not isinstance(body, dict) or not isinstance(body.get("parts"), list):
        raise ShapeError("not an agent-threads message", path=path, hint="it has `role` and `parts`")
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or type(metadata.get("schemaVersion")) is not int:
        raise ShapeError("metadata needs a schemaVersion", path=f"{path}.metadata.schemaVersion", hint="write 1")
    if metadata["schemaVersion"] > SCHEMA_VERSION:
        raise SchemaVersionError(
            f"agent-threads version {metadata['schemaVersion']} is newer than {SCHEMA_VERSION}",
            path=f"{path}.metadata.schemaVersion",
            hint="upgrade this installation",
        )
    if not isinstance(body.get("role"), str) or body["role"] not in _ROLES:
        raise ShapeError("unknown role", path=f"{path}.role", hint=f"use one of {', '.join(sorted(_ROLES))}")
    created = body.get("createdAt")
    moment = _moment(created, f"{path}.createdAt")
    metadata, fields = _take_own(metadata, _MESSAGE_REST)
    carried: dict[str, Any] = {"metadata": metadata}
    if rest := {key: item for key, item in body.items() if key not in _MESSAGE_KEYS}:
        carried["rest"] = rest
    if absent := [key for key in _MESSAGE_KEYS if key not in body]:
        carried["absent"] = absent
    if created is not None and (moment is None or to_json(moment) != created):
        carried["created_at"] = created  # another spelling of the time
    extra = {**fields.pop("extra", {}), FORMAT: carried}
    parts = [_part(part, f"{path}.parts[{index}]") for index, part in enumerate(body["parts"])]
    message = {"role": body["role"], "id": body.get("id"), "parent_id": body.get("parentMessageId"), **fields}
    with _at(path):
        return Message.model_validate({**message, "content": parts, "created_at": moment, "extra": extra})


def _take_own(holder: dict[str, Any], names: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`holder` without our own key, and its value; a key of that name with another kind of value is the provider's."""
    own_fields = holder.get(_OWN_KEY)
    if not isinstance(own_fields, dict) or not own_fields or not own_fields.keys() <= names:
        return holder, {}
    if not isinstance(own_fields.get("extra", {}), dict) or FORMAT in own_fields.get("extra", {}):
        return holder, {}
    if any(item is None or (item == {} and name != "extensions") for name, item in own_fields.items()):
        return holder, {}  # we leave out what is empty, but for extensions without any slot
    return {key: item for key, item in holder.items() if key != _OWN_KEY}, dict(own_fields)


def _moment(text: Any, path: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ShapeError("not an ISO 8601 time", path=path, hint="write 2026-01-31T09:00:00Z") from None
    return moment if moment.tzinfo is not None else None


_NEEDS: Final = {
    "text": ("text",),
    "reasoning": ("text",),
    "tool-call": ("toolCallId", "toolName", "input"),
    "tool-result": ("toolCallId", "toolName", "output", "isError"),
    "file": ("mimeType", "url"),
}
_NAMES: Final = {
    "text": "text",
    "toolCallId": "tool_call_id",
    "mimeType": "media_type",
    "url": "data",
    "isError": "is_error",
    "output": "content",
}
_PART_REST: Final = frozenset({"signature", "namespace", "executed_by", "duration_ms", "extra"})


def _part(part: Any, path: str) -> Part:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise ShapeError("a part needs a type", path=path, hint='write {"type": "text", "text": …}')
    kind = part["type"]
    if kind not in _NEEDS:
        return OpaquePart(provider=FORMAT, type=kind, value=FrozenDict(part))
    for name in _NEEDS[kind]:
        if name not in part:
            raise ShapeError(f"a {kind} part needs {name}", path=f"{path}.{name}", hint="add it")
    remaining, fields = _take_own(part, _PART_REST)
    extra = {key: item for key, item in remaining.items() if key not in (*_NEEDS[kind], "type")}
    cls, own = _fields(kind, part)
    if cls is DocumentPart and extra.get("name") is not None:
        own["title"] = extra.pop("name")
    if kind == "tool-result":
        with _at(f"{path}.output"):
            content = ToolResultPart(content=part["output"]).content
        if not same_spelling(to_json(content), part["output"]):
            extra["output"] = part["output"]  # it reads as parts, and was spelled in another way
    carried = {**fields.pop("extra", {}), **({FORMAT: extra} if extra else {})}
    with _at(path):
        canonical: Part = cls(**own, **fields, extra=carried or None)
    return canonical


@contextmanager
def _at(path: str) -> Iterator[None]:
    """Refusals inside have the path that the form has: their own names our fields."""
    try:
        yield
    except ShapeError as error:
        raise ShapeError(error.message, path=path, code=error.code, hint=error.hint) from None


def _fields(kind: str, part: dict[str, Any]) -> tuple[type[Any], dict[str, Any]]:
    """The class that a part of this kind becomes, and its fields by our names."""
    own = {_NAMES[key]: part[key] for key in _NEEDS[kind] if key in _NAMES}
    if kind == "tool-call":
        # `input` may be any JSON there; what is no object keeps its exact text.
        given = part["input"]
        own |= {"arguments": given} if isinstance(given, dict) else {"arguments_raw": dumps(given).decode()}
        return ToolCallPart, {**own, "name": part["toolName"]}
    if kind == "tool-result":
        return ToolResultPart, {**own, "tool_name": part["toolName"]}
    if kind == "file":
        return media_class(str(part["mimeType"])), {**own, "type": "url"}
    return (TextPart if kind == "text" else ThinkingPart), own


def to_agent_threads(message: Message) -> dict[str, Any]:
    """The agent-threads form of a message. Raises UnsupportedError: a role or part that the form has no place for."""
    if message.role.value not in _ROLES:
        role = message.role.value
        raise UnsupportedError(f"agent-threads has no role {role}", path="$.role", hint="export it as `system`")
    own: Mapping[str, Any] = message.extra.get(FORMAT, {}) if message.extra else {}
    metadata = thaw(own.get("metadata", {"schemaVersion": SCHEMA_VERSION}))
    if rest := _rest(message.model_dump(), _MESSAGE_REST):
        metadata[_OWN_KEY] = rest
    body: dict[str, Any] = {
        "id": message.id,
        "parentMessageId": message.parent_id,
        "role": message.role.value,
        "parts": [_write(part, f"$.parts[{index}]") for index, part in enumerate(message.content)],
        "createdAt": to_json(message.created_at),
        "metadata": metadata,
    }
    spelling = own.get("created_at")
    if spelling is not None and _moment(spelling, "$") == message.created_at:
        body["createdAt"] = spelling  # it is still that time; one without a zone was never read as one
    for key in own.get("absent", ()):
        if body.get(key) is None:
            body.pop(key, None)
    further: dict[str, Any] = thaw(own.get("rest", {}))
    return body | further


def _rest(dumped: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    """What of a value the form has no place for; without what is its own."""
    rest = {key: item for key, item in dumped.items() if key in names}
    foreign = {key: item for key, item in rest.pop("extra", {}).items() if key != FORMAT}
    return {**rest, "extra": foreign} if foreign else rest


def _write(part: Part, path: str) -> dict[str, Any]:
    if isinstance(part, OpaquePart) and part.provider == FORMAT:
        value: dict[str, Any] = thaw(part.value)
        return value
    wire = _wire(part, path)
    for name, item in wire.items():
        if item is None and name in ("toolCallId", "toolName", "mimeType"):
            raise UnsupportedError(f"agent-threads needs {name}", path=path, hint="set it before the export")
    if rest := _rest(part.model_dump(), _PART_REST):
        wire[_OWN_KEY] = rest
    own: dict[str, Any] = thaw(part.extra.get(FORMAT, {})) if part.extra else {}
    return wire | own


def _wire(part: Part, path: str) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ThinkingPart():
            return {"type": "reasoning", "text": part.text}
        case ToolCallPart():
            given: Any = part.arguments if part.arguments is not None else {}
            if part.arguments_raw is not None:
                try:
                    given = loads(part.arguments_raw, is_embedded=True)
                except DecodeError:
                    why = "agent-threads needs arguments that are strict JSON"
                    raise UnsupportedError(why, path=path, hint="repair the call before the export") from None
            call = {"type": "tool-call", "toolCallId": part.tool_call_id, "toolName": part.name}
            return {**call, "input": thaw(given)}
        case ToolResultPart():
            result = {"type": "tool-result", "toolCallId": part.tool_call_id, "toolName": part.tool_name}
            return {**result, "output": to_json(part.content), "isError": part.is_error}
        case ImagePart() | VideoPart() | AudioPart() | DocumentPart() if part.type == "url":
            if type(part) is not media_class(part.media_type or ""):
                hint = "set a media type of its kind before the export"
                raise UnsupportedError("agent-threads tells files apart by mimeType alone", path=path, hint=hint)
            title = part.title if isinstance(part, DocumentPart) else None
            named = {} if title is None else {"name": title}
            return {"type": "file", "mimeType": part.media_type, "url": part.data, **named}
        case _:
            hint = "take it out before the export"
            raise UnsupportedError(f"agent-threads has no {part.content_type.value} part", path=path, hint=hint)
