"""Reading the nested spelling of CMF messages, as cpex 0.1 dumps them [A1]. Spec: docs/spec/message.md [MSG-16].

There a part other than text and thinking is `{"content_type": …, "content": {…}}`, and the extensions travel beside
the message. It is an import format: nothing here writes it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any, Final

from cmf.enums import ContentType
from cmf.errors import SchemaVersionError, ShapeError
from cmf.message.message import Message

FORMAT: Final = "cpex"
MAJOR: Final = 2  # of the schema version that cpex writes as text, "2.0"

_FIELDS: Final = frozenset({"schema_version", "role", "content", "channel"})
_FIELD_WORDS: Final = ", ".join(sorted(_FIELDS))
_FLAT: Final = frozenset({ContentType.TEXT.value, ContentType.THINKING.value})
_NESTED: Final = frozenset(
    kind.value for kind in ContentType if kind not in (ContentType.REDACTED_THINKING, ContentType.OPAQUE)
) - frozenset(_FLAT)
_VERSION: Final = re.compile(r"(\d{1,6})\.\d{1,6}")


def from_cpex(body: Any, extensions: Any = None, *, path: str = "$") -> Message:
    """The message that a cpex `Message` dump describes, with the extensions that were dumped beside it, if given.

    Raises:
        ShapeError: not that spelling; paths are those of the flat form. SchemaVersionError: a newer major version.
    """
    flat = _flat_message(body, path)
    if extensions is not None:
        flat["extensions"] = _extensions(extensions, f"{path}.extensions")
    try:
        return Message.model_validate(flat)
    except ShapeError as error:
        error.at(path)
        raise


def _flat_message(body: Any, path: str) -> dict[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get("content", []), list):
        raise ShapeError("not a cpex message", path=path, hint="it has `role` and `content`")
    if body.keys() - _FIELDS:
        raise ShapeError("fields that a cpex message does not have", path=path, hint=f"it has {_FIELD_WORDS}")
    version, at = body.get("schema_version", f"{MAJOR}.0"), f"{path}.schema_version"
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise ShapeError("not a cpex schema version", path=at, hint=f'it is text like "{MAJOR}.0"')
    if int(match[1]) > MAJOR:
        why = f"cpex schema version {match[1]} is newer than {MAJOR}"
        raise SchemaVersionError(why, path=at, hint="upgrade this installation")
    parts = [_part(part, f"{path}.content[{index}]") for index, part in enumerate(body.get("content", []))]
    flat = {key: body[key] for key in ("role", "channel") if key in body}
    return {**flat, "content": parts}


def _part(part: Any, path: str) -> Any:
    kind = part.get("content_type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _NESTED:
        return part  # flat there too, unknown (and so opaque), or refused by the message
    fields = part.get("content")
    if not isinstance(fields, dict) or part.keys() != {"content_type", "content"} or "content_type" in fields:
        raise ShapeError(f"a {kind} part holds its fields in `content`", path=path, hint="put them there")
    flat = {"content_type": kind, **fields}
    if kind == ContentType.RESOURCE and isinstance(fields.get("blob"), str):  # bytes, dumped as the text they spell
        try:
            flat["blob"] = base64.b64encode(fields["blob"].encode()).decode()
        except UnicodeEncodeError:
            why, at = "text has a lone surrogate", f"{path}.content.blob"
            raise ShapeError(why, path=at, code="shape.lone-surrogate", hint="send well-formed Unicode") from None
    if kind == ContentType.PROMPT_RESULT and isinstance(fields.get("messages"), list):
        flat["messages"] = _flat_messages(fields["messages"], f"{path}.content.messages")
    return flat


def _flat_messages(messages: list[Any], path: str) -> list[dict[str, Any]]:
    return [_flat_message(message, f"{path}[{index}]") for index, message in enumerate(messages)]


def _extensions(dumped: Any, path: str) -> dict[str, Any]:
    """The slots under our names, which are theirs; their delegation chain counts otherwise, and is kept in `custom`."""
    if not isinstance(dumped, dict):
        raise ShapeError("extensions are not an object", path=path, hint="give the slots by name")
    slots = dict(dumped)
    delegation = slots.pop("delegation", None)
    if delegation is not None:
        slots["custom"] = {**(slots.get("custom") or {}), FORMAT: {"delegation": delegation}}
    agent = slots.get("agent")
    conversation = agent.get("conversation") if isinstance(agent, Mapping) else None
    if isinstance(agent, Mapping) and isinstance(conversation, Mapping):
        history = conversation.get("history")
        if isinstance(history, list):
            history = _flat_messages(history, f"{path}.agent.conversation.history")
            slots["agent"] = {**agent, "conversation": {**conversation, "history": history}}
    return slots
