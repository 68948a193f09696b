"""Undefined names: variables that are never bound, and paths of `data` that do not exist. Spec: [POL-25]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pipeline.decisions.display import meant
from pipeline.policy.analysis import Definition, Path, Read, Survey, data_at, offset_of
from pipeline.policy.metadata import Module
from pipeline.policy.portability import DEFAULTS, Finding, warning

_NO_CODE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*', re.DOTALL)


def findings(survey: Survey, modules: Sequence[Module], data: Mapping[str, Any]) -> list[Finding]:
    """Unbound variables, which OPA refuses and the embedded engine takes for undefined rules.

    Also full paths that are neither rule nor data: on a server, such data may be added later.
    """
    texts = dict(modules)
    found = {
        finding
        for definition in survey.definitions()
        for read in definition.reads
        if read.path[0] == "data" and read.path[:3] != DEFAULTS and not _exists(survey, data, read.path)
        for finding in _of(survey, definition, read, texts, data)
    }
    return sorted(found, key=lambda one: (not one.refuses, one.place, one.code))


def _of(
    survey: Survey,
    definition: Definition,
    read: Read,
    texts: Mapping[str, str],
    data: Mapping[str, Any],
) -> Iterator[Finding]:
    path, package = read.path, survey.packages[definition.place.module]
    name = path[len(package)] if path[: len(package)] == package and len(path) > len(package) else ""
    text = texts[read.place.module]
    at = offset_of(text, read.place.line, read.place.column)
    if not name or not text.startswith(name, at):
        yield _undefined_path(survey, data, read)
    elif not _may_be_bound(definition, name, text, at):
        known = {rule.path[len(package)] for rule in survey.rules if rule.path[: len(package)] == package}
        hint = meant(name, known, f"bind it: `{name} := …`, or `some {name} in …`")
        message = f"{name} is never given a value"
        yield Finding("policy.unknown-name", read.place, message, hint)


def _exists(survey: Survey, data: Mapping[str, Any], path: Path) -> bool:
    return survey.leads_to_rule(path) or data_at(data, path[1:]) is not None


def _may_be_bound(definition: Definition, name: str, text: str, at: int) -> bool:
    """Whether something may bind the name: another occurrence, an index, an enclosing comprehension, or `walk`."""
    start = offset_of(text, definition.place.line, definition.place.column)
    ends = [one[1] for body in definition.raw["bodies"] for one in (body["span"], body["value"]) if one is not None]
    value = definition.raw["value"]
    end = len(text.encode()[: max([*ends, *([] if value is None else [value[1]])], default=0)].decode())
    code = _NO_CODE.sub(lambda match: " " * len(match[0]), text[start : max(end, at + len(name))])
    if len(re.findall(rf"(?<![\w.]){re.escape(name)}(?!\w)", code)) > 1 or "walk" in code:
        return True
    before = code[: at - start].rstrip()
    is_index = before.endswith("[") and re.search(r"[\w)\]]$", before[:-1]) is not None
    return is_index or _in_comprehension(code, at - start)


def _in_comprehension(code: str, at: int) -> bool:
    open_at: list[int] = []
    around: list[tuple[int, int]] = []
    for number, character in enumerate(code):
        if character in "[{(":
            open_at.append(number)
        elif character in "]})" and open_at:
            around.append((open_at.pop(), number))
    return any(first < at < last and "|" in code[first:last] for first, last in around)


def _undefined_path(survey: Survey, data: Mapping[str, Any], read: Read) -> Finding:
    path = read.path
    length = next(size for size in range(2, len(path) + 1) if not _exists(survey, data, path[:size]))
    above, name = path[: length - 1], path[length - 1]
    known = {rule.path[len(above)] for rule in survey.rules if rule.path[: len(above)] == above}
    here = data_at(data, above[1:])
    hint = meant(name, {*known, *(here if isinstance(here, Mapping) else ())}, "define it, or remove it")
    message = f"{'.'.join(path[:length])} is neither a rule nor data"
    return warning("policy.unknown-data", read.place, message, hint)
