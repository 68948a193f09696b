"""Text for people: of the traffic, made safe to print; counts; what a misspelt word meant. Spec: docs/spec/cli.md."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator
from typing import Any


def visible(text: str) -> str:
    """`text` with control, bidi and other invisible characters spelled as escapes: a log line must not lie."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else f"\\u{{{ord(character):x}}}" for character in text)


def shortened(text: str, length: int = 120) -> str:
    """`text`, or its beginning if it is longer than `length` characters, and how long it is."""
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters)"


def counted(number: int, thing: str) -> str:
    """`1 record`, `2 records`: a count as people write it."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def meant(word: str, known: Iterable[str], otherwise: str) -> str:
    """`did you mean …?` of the known word that is most like `word`; `otherwise` where none is like it."""
    near = difflib.get_close_matches(word, [*known], 1)
    return f"did you mean {near[0]}?" if near else otherwise


def escaped_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON, indented or on one line, with every invisible character as an escape."""
    return escaped(json.dumps(value, ensure_ascii=False, indent=indent))


def escaped(text: str) -> str:
    """JSON text, or lines of it, with every invisible character as an escape: it is parsed to the same values."""
    lines = text.split("\n")
    return "\n".join(
        line if line.isprintable() else "".join(one if one.isprintable() else json.dumps(one)[1:-1] for one in line)
        for line in lines
    )


def rego_paths(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every value of the input with the Rego reference that reaches it; empty containers are values too."""
    yield from _paths("input", document)


def _paths(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            plain = key.isascii() and key.isidentifier()
            yield from _paths(f"{path}.{key}" if plain else f"{path}[{escaped_json(key)}]", item)
    elif isinstance(value, list | tuple) and value:
        for index, item in enumerate(value):
            yield from _paths(f"{path}[{index}]", item)
    else:
        yield path, value
