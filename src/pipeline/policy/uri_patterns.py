"""Whether a view can have the URI, or match the pattern, that a rule names. Spec: docs/spec/policies.md [POL-37]."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from typing import Final
from urllib.parse import unquote

from cmf.enums import ViewKind
from cmf.views.uris import segment

_SEGMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("NAMESPACE", "NAME"),
    "tool_result": ("NAME",),
    "prompt": ("SERVER", "NAME"),
    "prompt_result": ("NAME",),
    "llm": ("PROVIDER", "MODEL"),
    "opaque": ("FORMAT", "TYPE"),
}
"""The schemes of the product's own URIs, and what their segments are."""

_SCHEMES: Final[Mapping[ViewKind, str]] = {
    ViewKind.TOOL_CALL: "tool",
    ViewKind.TOOL_DEFINITION: "tool",
    ViewKind.TOOL_RESULT: "tool_result",
    ViewKind.PROMPT_REQUEST: "prompt",
    ViewKind.PROMPT_RESULT: "prompt_result",
    ViewKind.REQUEST: "llm",
    ViewKind.RESPONSE: "llm",
    ViewKind.OPAQUE: "opaque",
}
"""The scheme of each kind that has one; resources and media have any URI, texts none."""

WITHOUT_URI: Final = frozenset({ViewKind.TEXT, ViewKind.THINKING})
"""The kinds that never have a URI."""


def hint_for(uri: str, kinds: Set[ViewKind] | None, *, is_pattern: bool = False) -> str | None:
    """What to write instead of a URI, or pattern, that no view has; None if one can.

    `kinds` are those that the rule is evaluated for; None if they are not known.
    """
    scheme, separator, rest = uri.partition("://")
    if is_pattern and ("*" in scheme if separator else "**" in uri.split("/")):
        return None
    schemes = {_SCHEMES.get(kind) for kind in (kinds or ()) if kind not in WITHOUT_URI}
    if schemes and None not in schemes and (not separator or scheme not in schemes):
        forms = " or ".join(sorted(f"{one}://{'/'.join(_SEGMENTS[one])}" for one in schemes if one is not None))
        return f"for the rule's kinds it is {forms}"
    names = _SEGMENTS.get(scheme) if separator else None
    if names is None:
        is_relative = is_pattern and not re.search("[:*]", uri)
        return "a URI begins with a scheme, as in tool://NAMESPACE/NAME" if is_relative else None
    parts = rest.split("/")
    written = f"{scheme}://{'/'.join(_written(part, is_pattern=is_pattern) for part in parts)}"
    if written != uri and len(parts) == len(names):
        return f"write {written}"
    if is_pattern and "**" in parts and len(parts) - parts.count("**") <= len(names):
        return None
    if len(parts) == len(names):
        return None
    if len(names) == 2 and len(parts) == 1:
        return f"write {scheme}://_/{rest}, or another namespace for `_` (none)"
    return f"it is {scheme}://{'/'.join(names)}"


def _written(part: str, *, is_pattern: bool) -> str:
    """A segment of a URI or pattern as views spell it."""
    pieces = part.split("*") if is_pattern and "*" in part else [part]
    return "*".join(segment(unquote(piece)) if piece or len(pieces) == 1 else "" for piece in pieces)
