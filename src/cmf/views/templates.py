"""Templates of the policy input for the common kinds of part, declared once for Python and for the native module.

`cmf.views.render` makes its functions for these kinds from the outlines; the native module fills them itself, for plain
parts only. A new field is named here, and is then in both. Spec: docs/spec/policy-input.md [INP-6].
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from cmf.message.message import TextPart, ThinkingPart, ToolCallPart, ToolResultPart


class Hole(NamedTuple):
    """An entry of the input, and what fills it.

    `field`: a field of the part, left out if None. `content`: the same, for a text whose UTF-8 bytes `size_bytes`
    counts. `spelled`: the JSON of a field, as such a text. `again`: that JSON itself. `address`: the URI. `constant`:
    the value in `of`.
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
    """The input of a plain part. `none` names the fields that are not in it: a part is plain if they are None."""

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
