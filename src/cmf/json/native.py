"""What the native module does for values, where it is built; where it is not, Python does the same, more slowly.

A function that gives None has no answer, and leaves it to who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

_built: Any = None
with suppress(ImportError):  # a checkout without Rust
    from cmf import _native

    _built = _native


def _no_answer(*_: Any) -> None:
    """Nothing is known without the native module."""


spaces_in: Final[Callable[[str], int | None]] = _no_answer if _built is None else _built.spaces_in
"""How many bytes of a text that a parser has found to be an object are spaces between tokens.

None if it may differ in more than spaces from what `cmf.json.codec.dumps` writes, or opens more than 64 brackets.
"""

same_but_spaces: Final[Callable[[bytes, bytes], bool] | None] = None if _built is None else _built.same_but_spaces
"""Whether two texts are the same once the spaces of JSON are left out of both; None without the native module."""

is_token: Final[Callable[[str, str], bool | None]] = _no_answer if _built is None else _built.is_token
"""Whether a text is 1 to 64 letters, digits, `_` and `-` of ASCII, and does not begin with what comes second."""

plain_copy: Final[Callable[[list[Any], bytes, int], list[Any] | None]] = (
    _no_answer if _built is None else _built.plain_copy
)
"""A copy of a list whose JSON is this text; None if that cannot be told easily, or it has a null or more levels.

The text is what `cmf.json.codec.dumps` wrote of a list.
"""

shape_maker: Final[Callable[..., Callable[..., Any]] | None] = None if _built is None else _built.shape_maker
"""Fills whole values; None without the native module."""

filler: Final[Callable[[Callable[[type], Any]], tuple[Any, Any]] | None] = None if _built is None else _built.filler
"""Creates values from the names of their fields, and copies them; None without the native module."""

dict_maker: Final[Callable[[type], Callable[[Any], Any]] | None] = None if _built is None else _built.dict_maker
"""Creates dicts of a type whose constructor does something else; None without the native module."""

freezing: Final[Callable[..., tuple[Callable[..., Any], ...]] | None] = None if _built is None else _built.freezing
"""Freezes JSON and compares values for equality; None without the native module."""

normal_form: Final[Callable[[str], str | None]] = (lambda uri: uri) if _built is None else _built.normal_form
"""The normal form of a URI, as `cmf.views.uris.normalise` says; None for an address that has none. Without the native
module, which judges everything, the URI as it stands."""
