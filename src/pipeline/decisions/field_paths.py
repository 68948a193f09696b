"""Paths to fields inside a JSON value, and patterns over them. Spec: docs/spec/profiles.md [PRF-3].

A pattern is steps joined by dots: a key, `*` (any one step), `**` (any number of steps), `[n]`, `[*]`, `["any key"]`.
It names what it matches and everything below. A final `~` means the key itself instead of what stands under it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from typing import Any, Final, TypeAlias

MAX_STEPS: Final = 32  # steps in one pattern; profiles name fields, and no tool nests deeper


class Mark(Enum):
    """Steps that are no key: `KEY` ends the path of a key, the others stand in patterns."""

    KEY = "~"
    ANY = "*"
    DEEP = "**"


Step: TypeAlias = str | int | Mark
Path: TypeAlias = tuple[Step, ...]

_STEP: Final = re.compile(
    r"""\*\*|\*|\[\*\]|\[(?P<index>0|[1-9]\d{0,8})\]|\["(?P<quoted>[^"]*)"\]|(?P<key>[^.\[\]*~"\s][^.\[\]*~"]*)"""
)
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ -]{0,39}")


@lru_cache(maxsize=4096)
def compiled(pattern: str) -> Path:
    """The steps of a pattern.

    Raises:
        ValueError: not a pattern; the text says why and quotes nothing.
    """
    text = pattern[1:].removeprefix(".") if pattern.startswith("$") else pattern
    key_only = text.endswith("~")
    text = text[:-1] if key_only else text
    steps: list[Step] = []
    at = 0
    if text.startswith("/"):
        raise ValueError("this is no JSON pointer: items[*].body, and not /items/0/body")
    while at < len(text):
        if steps and text[at] != "[":
            if text[at] != ".":
                raise ValueError("steps are joined by dots")
            at += 1
        match = _STEP.match(text, at)
        if match is None:
            raise ValueError('a step is a key, *, **, [n], [*] or ["key"]')
        steps.append(_step(match))
        at = match.end()
    if key_only and not steps:
        raise ValueError("~ follows the key that it means")
    if len(steps) > MAX_STEPS:
        raise ValueError(f"more than {MAX_STEPS} steps")
    return (*steps, Mark.KEY) if key_only else tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["index"] is not None:
        return int(match["index"])
    if match["quoted"] is not None:
        return match["quoted"]
    if match["key"] is not None:
        return match["key"]
    return Mark.DEEP if match[0] == "**" else Mark.ANY


def names(pattern: Path, path: Path) -> bool:
    """Whether `pattern` names `path` or something above it; keys are named only by patterns that end in `~`."""
    if (path[-1:] == (Mark.KEY,)) != (pattern[-1:] == (Mark.KEY,)):
        return False
    # The set of places in the pattern where reading `path` so far may stand: linear in both.
    states = _opened(pattern, {0})
    for step in path:
        if len(pattern) in states:
            return True
        moved = set()
        for state in states:
            wanted = pattern[state]
            if wanted is Mark.DEEP:
                moved.add(state)
            elif wanted == step or (wanted is Mark.ANY and step is not Mark.KEY):
                moved.add(state + 1)
        states = _opened(pattern, moved)
    return len(pattern) in states


def _opened(pattern: Path, states: set[int]) -> set[int]:
    """`states`, and the states reachable from them because `**` may match no step."""
    opened = set(states)
    for state in states:
        place = state
        while place < len(pattern) and pattern[place] is Mark.DEEP:
            place += 1
            opened.add(place)
    return opened


def shape(path: Path) -> str:
    """`path` as text with every index as `[*]` and every key that is no plain name as `*`: bounded, no content."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += "[*]"
        elif step is Mark.KEY:
            text += "~"
        else:
            plain = isinstance(step, str) and _PLAIN_KEY.fullmatch(step) is not None
            text += f"{'.' if text else ''}{step if plain else '*'}"
    return text


def record_of(path: Path) -> Path:
    """The path of the item of a list that `path` lies in; of the whole where it lies in none."""
    for at in range(len(path), 0, -1):
        if isinstance(path[at - 1], int):
            return path[:at]
    return ()


def escaped(key: str) -> str:
    """`key` as a step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1") if "~" in key or "/" in key else key


_HOLDING: Final = (dict, list, tuple)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every leaf of a JSON value with its path, in order; before what stands under a key, the key itself."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key, Mark.KEY), key
            if isinstance(item, _HOLDING):
                yield from leaves(item, (*path, key))
            else:
                yield (*path, key), item
    elif isinstance(value, _HOLDING):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value
