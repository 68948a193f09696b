"""What the input of a plain part looks like: an outline with holes, declared once. Spec: policy-input.md [INP-6].

Most views are of a few kinds of plain parts. `cmf.facts` writes the showers of these kinds from the outlines; the
native module fills them itself, for plain parts alone. A field that is new has to be named here, and is then in both.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from cmf.content import TextPart, ThinkingPart, ToolCallPart, ToolResultPart


class Hole(NamedTuple):
    """An entry of the input and what it is.

    `field`: a field of the part, if not None; `content`: the same, a text, whose bytes are counted in `size_bytes`;
    `spelled`: the JSON of a field, as such a text; `again`: that JSON itself; `address`: the URI; `constant`: `of`.
    """

    name: str
    what: Literal["address", "again", "constant", "content", "field", "spelled"]
    of: str = ""


class Address(NamedTuple):
    """`<scheme>://<field>/<field>`, each field as one segment, `_` where it is None or empty.

    The last field is the name of the entity, the one before it its namespace [B9].
    """

    scheme: str
    fields: tuple[str, ...]


class Outline(NamedTuple):
    """The input of a plain part. `none`: the fields without a hole, which are None in a plain part."""

    none: tuple[str, ...]
    entries: tuple[Hole, ...]
    properties: tuple[Hole, ...] = ()
    address: Address | None = None


_TEXT: Final = (Hole("content", "content", "text"),)
OUTLINES: Final[dict[type, Outline]] = {
    TextPart: Outline(("extra",), _TEXT),
    ThinkingPart: Outline(("extra", "signature"), _TEXT),
    ToolCallPart: Outline(
        ("extra", "arguments_raw"),
        (
            Hole("uri", "address"),
            Hole("name", "field", "name"),
            Hole("content", "spelled", "arguments"),
            Hole("mime_type", "constant", "application/json"),
            Hole("arguments", "again", "arguments"),
        ),
        (
            Hole("namespace", "field", "namespace"),
            Hole("tool_id", "field", "tool_call_id"),
            Hole("executed_by", "field", "executed_by"),
        ),
        Address("tool", ("namespace", "name")),
    ),
    ToolResultPart: Outline(
        ("extra",),
        (Hole("uri", "address"), Hole("content", "content", "content"), Hole("name", "field", "tool_name")),
        (
            Hole("is_error", "field", "is_error"),
            Hole("executed_by", "field", "executed_by"),
            Hole("tool_name", "field", "tool_name"),
            Hole("tool_id", "field", "tool_call_id"),
        ),
        Address("tool_result", ("tool_name",)),
    ),
}
