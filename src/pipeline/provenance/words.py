"""Words, names and codes as data: two tables kept by hand, and `cldr.json`, which `scripts/cldr.py` makes of CLDR."""

from __future__ import annotations

import importlib.resources
import re
from functools import cache
from typing import Any, Final

from cmf.json.codec import loads

MAX_NAME: Final = 256  # characters of a name that are read
_WORD: Final = re.compile(r"[^\W\d_]+|\d+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in lower case, however they are joined: camelCase, snake_case, kebab-case, dots."""
    return tuple(word.lower() for word in _WORD.findall(_HUMP.sub(" ", name[:MAX_NAME])))


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
