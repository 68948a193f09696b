"""Words, names and codes as data: two tables kept by hand, and `cldr.json`, which `scripts/cldr.py` makes of CLDR."""

from __future__ import annotations

import importlib.resources
from functools import cache
from typing import Any

from cmf.json.codec import loads


@cache
def words(table: str) -> Any:
    """A table of `words.json`."""
    return _read("words.json")[table]


@cache
def names_of(table: str) -> dict[str, list[str]]:
    """Code → what people say for it: a table of `cldr.json`, with what `words.json` adds to it."""
    known, more = _read("cldr.json")[table], _read("words.json")[table]
    return {code: [*names, *more.get(code, ())] for code, names in known.items()}


def inferred_words() -> dict[str, Any]:
    """The words by which tools, arguments and fields are told apart: `tool_words.json`."""
    read: dict[str, Any] = _read("tool_words.json")
    return read


@cache
def _read(name: str) -> Any:
    return loads(importlib.resources.files("pipeline.provenance").joinpath(name).read_bytes())


__all__ = ["inferred_words", "names_of", "words"]
