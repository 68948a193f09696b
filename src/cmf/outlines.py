"""What somebody must know who writes policy inputs elsewhere than in Python, told once. Spec: policy-input.md [INP-6].

Most views are of a few kinds of plain parts, whose input is a fixed outline with holes. What an outline gives is what
the shower of `cmf.facts` gives, whose word is the last; where something has no hole there is no outline.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from cmf.content import TextPart, ThinkingPart, ToolCallPart, ToolResultPart
from cmf.enums import Hook, Role
from cmf.facts import KINDS, Keys, called, resulted
from cmf.value import Entry, Value, encoded, entries
from cmf.view import MessageView, head


def form_of(cls: type) -> str | tuple[Entry, ...] | Callable[[Any], Any]:
    """What `cmf.value.to_bytes` makes of a type that is not JSON's own.

    The name of a JSON type; or the fields of an object; or what is called for something that can be written.
    """
    if issubclass(cls, Value):
        fields = entries(cls)
        # Whether a field is like a default that is a value itself, only Python can tell.
        plain = all(field.absent != "equal" or isinstance(field.default, str | int) for field in fields)
        return fields if plain else encoded
    if issubclass(cls, dict):
        return "object"
    if issubclass(cls, list):
        return "array"
    if issubclass(cls, StrEnum):
        return "text"
    return "set" if cls is frozenset else encoded


class Hole(NamedTuple):
    """An entry of the input and what it is.

    `field`: a field of the part, if not None; `content`: the same, a text, whose bytes are counted in `size_bytes`;
    `spelled`: the JSON of a field, as such a text; `again`: that JSON itself; `given`: the URI; `constant`: `of`.
    """

    name: str
    what: str
    of: str = ""


class Outline(NamedTuple):
    """The input of a plain part. `none`: the fields without a hole, which must be None."""

    none: tuple[str, ...]
    entries: tuple[Hole, ...]
    properties: tuple[Hole, ...] = ()
    address: Callable[[Any], tuple[str, Keys]] | None = None


_TEXT: Final = (Hole("content", "content", "text"),)
OUTLINES: Final[dict[type, Outline]] = {
    TextPart: Outline(("extra",), _TEXT),
    ThinkingPart: Outline(("extra", "signature"), _TEXT),
    ToolCallPart: Outline(
        ("extra", "arguments_raw"),
        (
            Hole("uri", "given"),
            Hole("name", "field", "name"),
            Hole("content", "spelled", "arguments"),
            Hole("mime_type", "constant", "application/json"),
            Hole("arguments", "again"),
        ),
        (
            Hole("namespace", "field", "namespace"),
            Hole("tool_id", "field", "tool_call_id"),
            Hole("executed_by", "field", "executed_by"),
        ),
        lambda part: called(part.name, part.namespace),
    ),
    ToolResultPart: Outline(
        ("extra",),
        (Hole("uri", "given"), Hole("content", "content", "content"), Hole("name", "field", "tool_name")),
        (
            Hole("is_error", "field", "is_error"),
            Hole("executed_by", "field", "executed_by"),
            Hole("tool_name", "field", "tool_name"),
            Hole("tool_id", "field", "tool_call_id"),
        ),
        lambda part: resulted(part.tool_name),
    ),
}

Place = tuple[type, Role, Hook | None]
"""What an outline and the beginning of an input follow from."""


Filling = tuple[Place, Any, str, str | None, Mapping[str, Any] | None, Mapping[str, Any] | None]
"""What goes into the holes of an outline: its place, the part itself, its path, its URI, and what its scope adds: the
facts of the message, and the profiles of the entity."""


def filling(view: MessageView) -> Filling | None:
    """What to fill the outline of a view with; None where it has none."""
    part = view._part
    kind = type(part)
    outline = OUTLINES.get(kind)
    if outline is None or view._container is not None:
        return None
    scope = view._scope
    uri = security = None
    if (address := outline.address) is not None:
        uri, keys = address(part)
        if scope.registries:
            security = scope.entity(keys, None) or None
    message = scope.facts
    if message is None or view._first:
        message = scope.message_facts(view._first)
    return (kind, view.role, scope.hook), part, view.path, uri, message or None, security


def beginning(place: Place) -> tuple[dict[str, Any], dict[str, Any]]:
    """What an input begins with, before its `path` and behind it."""
    part_type, role, hook = place
    shown = list(head(KINDS[part_type][0], role, False, hook).items())
    at = [name for name, _ in shown].index("path")
    return dict(shown[:at]), dict(shown[at + 1 :])
