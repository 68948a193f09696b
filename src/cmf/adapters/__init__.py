"""Wire formats by name. Spec: docs/spec/adapters.md."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from cmf.errors import UnknownFormatError

if TYPE_CHECKING:
    from cmf.adapters.wire.base import Adapter as Adapter
    from cmf.adapters.wire.base import HttpCall as HttpCall
    from cmf.adapters.wire.base import WireEvent as WireEvent

FORMATS: Final = (
    "aisdk",
    "anthropic_messages",
    "gemini",
    "mcp",
    "ollama",
    "openai_chat",
    "openai_responses",
    "openrouter",
)


@cache
def get(name: str) -> Adapter:
    """The adapter of a format; loaded when first asked for.

    Raises:
        UnknownFormatError: no format goes by that name.
    """
    if name not in FORMATS:
        raise UnknownFormatError(f"no adapter is called {name!r}", hint=f"use one of {', '.join(FORMATS)}")
    adapter: Adapter = importlib.import_module(f"cmf.adapters.{name}").ADAPTER
    return adapter


def __getattr__(name: str) -> Any:
    """The types that adapters share, imported when first asked for: the names of the formats need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("cmf.adapters.wire.base"), name)


def __dir__() -> list[str]:
    """The names below and the formats, which are modules here."""
    return sorted([*__all__, *FORMATS])


__all__ = ["FORMATS", "Adapter", "HttpCall", "WireEvent", "get"]
