"""Wire formats by name. Spec: docs/spec/adapters.md."""

from __future__ import annotations

import importlib
from typing import Final

from cmf.adapters.base import Adapter as Adapter
from cmf.adapters.base import HttpCall as HttpCall
from cmf.adapters.base import WireEvent as WireEvent
from cmf.errors import UnknownFormatError

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


def get(name: str) -> Adapter:
    """The adapter of a format; loaded when first asked for.

    Raises:
        UnknownFormatError: no format goes by that name.
    """
    if name not in FORMATS:
        raise UnknownFormatError(f"no adapter is called {name!r}", hint=f"use one of {', '.join(FORMATS)}")
    adapter: Adapter = importlib.import_module(f"cmf.adapters.{name}").ADAPTER
    return adapter


__all__ = ["FORMATS", "Adapter", "HttpCall", "WireEvent", "get"]
