"""Arguments that a Gemini stream sends in pieces, each with the path where it belongs. Spec: gemini.md [GEM-23]."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

MAX_STEPS: Final = 32  # of a path inside streamed arguments

_STEP: Final = re.compile(r"""\.([A-Za-z_]\w*)|\[(\d{1,6})\]|\['([^'\\]*)'\]|\["([^"\\]*)"\]""")
_VALUES: Final[dict[str, tuple[type, ...]]] = {
    "stringValue": (str,),
    "numberValue": (int, float),
    "boolValue": (bool,),
    "nullValue": (type(None), str),
}


class StreamedArguments:
    """The arguments of one call so far, in a tree of our own. Texts are kept in pieces until they are settled."""

    def __init__(self) -> None:
        self._growing: set[str] = set()  # paths of texts that go on
        self._tree: Any = None

    def grow(self, call: dict[str, Any], piece: Any) -> bool:
        """Put one piece in its place in the arguments of `call`, if it has one: whether it has."""
        found = _piece(piece)
        arguments = call.get("args", {})
        if found is None or not isinstance(arguments, dict):
            return False
        path, steps, value = found
        if arguments is not self._tree:
            self._tree = _copied(arguments, _same)
        if not self._put(path, steps, value):
            return False
        call["args"] = self._tree
        if isinstance(value, str) and piece.get("willContinue") is True:
            self._growing.add(path)
        else:
            self._growing.discard(path)
        return True

    def _put(self, path: str, steps: list[str | int], value: Any) -> bool:
        before = _at(self._tree, steps) if isinstance(value, str) and path in self._growing else None
        if isinstance(before, _Run):
            before.pieces.append(value)
            return True
        return _placed(self._tree, steps, _Run(before, value) if isinstance(before, str) else value)

    def settle(self, call: dict[str, Any]) -> None:
        """Join what came in pieces of the arguments of `call`."""
        if self._tree is not None and call.get("args") is self._tree:
            call["args"] = self._tree = _copied(self._tree, _joined)


class _Run:
    """A text in pieces."""

    __slots__ = ("pieces",)

    def __init__(self, *pieces: str) -> None:
        self.pieces = list(pieces)


def _same(leaf: Any) -> Any:
    return leaf


def _joined(leaf: Any) -> Any:
    return "".join(leaf.pieces) if isinstance(leaf, _Run) else leaf


def _copied(value: Any, leaf: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item, leaf) for key, item in value.items()}
    return [_copied(item, leaf) for item in value] if isinstance(value, list) else leaf(value)


# -- places ------------------------------------------------------------------------------------------------------------


def _piece(piece: Any) -> tuple[str, list[str | int], Any] | None:
    """Path, its steps, and the value of one piece; None if it has anything else."""
    if not isinstance(piece, dict) or not isinstance(path := piece.get("jsonPath"), str):
        return None
    kinds = [key for key in piece if key in _VALUES]
    if len(kinds) != 1 or not piece.keys() <= {"jsonPath", "willContinue", kinds[0]}:
        return None
    value = piece[kinds[0]]
    if not isinstance(value, _VALUES[kinds[0]]) or (kinds[0] == "numberValue" and isinstance(value, bool)):
        return None
    if kinds[0] == "nullValue":
        if value not in (None, "NULL_VALUE"):
            return None
        value = None
    steps = _steps(path)
    return None if steps is None else (path, steps, value)


def _steps(path: str) -> list[str | int] | None:
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) <= MAX_STEPS:
        found = _STEP.match(path, at)
        if found is None:
            return None
        name, index, quoted, double = found.groups()
        steps.append(int(index) if index is not None else name or quoted or double or "")
        at = found.end()
    return steps if steps and len(steps) <= MAX_STEPS and isinstance(steps[0], str) else None


def _at(value: Any, steps: list[str | int]) -> Any:
    """The value at the end of the steps; None if there is none."""
    for step in steps:
        if not _leads(value, step):
            return None
        value = value[step]
    return value


def _leads(holder: Any, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(holder, dict) and step in holder
    return isinstance(holder, list) and step < len(holder)


def _placed(holder: Any, steps: list[str | int], new: Any) -> bool:
    """Put `new` at the end of the steps, and make what leads there; whether nothing is in the way."""
    depth = 0
    while depth < len(steps) - 1 and _leads(holder, steps[depth]):
        holder, depth = holder[steps[depth]], depth + 1
    step, *rest = steps[depth:]
    for inner in reversed(rest):
        if isinstance(inner, int) and inner > 0:
            return False
        new = {inner: new} if isinstance(inner, str) else [new]
    if isinstance(step, str) and isinstance(holder, dict):
        holder[step] = new
    elif isinstance(step, int) and isinstance(holder, list) and step <= len(holder):
        holder[step : step + 1] = [new]
    else:
        return False
    return True
