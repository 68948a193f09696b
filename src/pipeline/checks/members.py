"""Members of a rule's sets that lack what every effect needs, and names that nothing defines. Spec: [POL-55]."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pipeline.checks.portability import Finding, effect_paths
from pipeline.engines.survey import Definition, Path, Place, Survey, data_at
from pipeline.policies.metadata import Module, Rule

_NEEDED: Final = ("code", "reason")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*|[{}\[\]():,|]', re.DOTALL)


def findings(
    survey: Survey, modules: Sequence[Module], data: Mapping[str, Any], rules: Sequence[Rule]
) -> list[Finding]:
    """All that is found, by place."""
    texts = {module.path: module.text.encode() for module in modules}
    found = [
        *(one for rule in rules for path in effect_paths(rule) for one in _members(survey, path, texts)),
        *_nameless(survey, data),
    ]
    return sorted(found, key=lambda one: (one.place, one.code))


def _members(survey: Survey, path: Path, texts: Mapping[str, bytes]) -> Iterator[Finding]:
    """Members that are written out and are no object with what every effect needs: each hit would be refused unread."""
    surveyed = survey.rule(path)
    for definition in surveyed.definitions if surveyed is not None else ():
        text = _written(definition, texts)
        keys = _keys(text)
        missing = [name for name in _NEEDED if name not in (keys or ())]
        if text[:1] in ('"', "`") or text.startswith("sprintf("):
            message = f"a member of `{path[-1]}` is an object, no text"
            yield _error(definition.place, message, 'write {"code": …, "reason": …}')
        elif keys is not None and missing:
            message = f"a member of `{path[-1]}` has no {' and no '.join(missing)}"
            yield _error(definition.place, message, "every effect says `code` and `reason`")


def _error(place: Place, message: str, hint: str) -> Finding:
    return Finding(code="policy.bad-effect", message=message, hint=hint, place=place, refuses=False)


def _written(definition: Definition, texts: Mapping[str, bytes]) -> str:
    span = definition.raw["value"]
    if definition.raw["kind"] != "set" or span is None:
        return ""
    return texts[definition.place.module][span[0] : span[1]].decode().strip()


def _keys(text: str) -> set[str] | None:
    """The keys of an object that is written out; None for whatever else it may be."""
    if not text.startswith("{"):
        return None
    keys: set[str] = set()
    depth, last = 0, ""
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in "{[(":
            depth += 1
        elif token in "}])":
            depth -= 1
        elif depth == 1 and token == "|":
            return None  # a comprehension
        elif depth == 1 and token == ":":
            if last[:1] != '"':
                return None  # a key that is worked out
            keys.add(last[1:-1])
        last = token
    return keys


def _nameless(survey: Survey, data: Mapping[str, Any]) -> Iterator[Finding]:
    """Variables that nothing gives a value: the engine takes them for rules of the package, which are not there."""
    packages = {module["path"]: tuple(module["package"]) for module in survey.modules}
    for definition in survey.definitions():
        package = packages[definition.place.module]
        # The value of a rule with `else` is read outside of the body that gives its variables their values.
        bound = {name for body in definition.raw["bodies"] for one in body["statements"] for name in one["binds"]}
        for read in definition.reads:
            path = read.path
            if path[: len(package)] != package or len(path) == len(package) or path[len(package)] in bound:
                continue
            below = any(rule.path[: len(path)] == path for rule in survey.rules)
            if below or survey.rule_of(path) is not None or data_at(data, path[1:]) is not None:
                continue
            name = path[len(package)]
            known = {rule.path[len(package)] for rule in survey.rules if rule.path[: len(package)] == package}
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"did you mean {near[0]}?" if near else f"give it a value: `{name} := …`, or `some {name} in …`"
            message = f"nothing gives {name} a value"
            yield Finding(code="policy.unknown-name", message=message, hint=hint, place=read.place, refuses=False)


__all__ = ["findings"]
