"""Members of a rule's sets that lack required fields of their effect. Spec: [POL-55]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pipeline.decisions.decision import ARGUMENTS, EXTRA, WITH_ARGUMENTS, Effect
from pipeline.policy.analysis import Definition, Path, Place, Survey, text_at
from pipeline.policy.metadata import Module, Rule
from pipeline.policy.portability import Finding, effect_paths, warning

_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {"label": ("label",), "rewrite": ("pointer", "value")}
"""The fields an effect requires besides `code` and `reason`; `redact` requires one of two."""

_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "rewrite": ("tool_call", "prompt_request"),
    "strip_tool": ("tool_definition",),
}

_KINDS_WITH_TEXT: Final = ("text", "thinking", "tool_result", "resource", "prompt_result")
"""The kinds that have text for `spans` to cut."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*|[{}\[\]():,|]', re.DOTALL)


def findings(survey: Survey, modules: Sequence[Module], rules: Sequence[Rule]) -> list[Finding]:
    """All findings, by place."""
    texts = {module.path: module.text.encode() for module in modules}
    found = [one for rule in rules for path in effect_paths(rule) for one in _members(survey, rule, path, texts)]
    found += [one for rule in rules for one in (*_misplaced(survey, rule), *_first_only(survey, rule))]
    found += [one for rule in rules for one in _any_differs(survey, rule, texts)]
    return sorted(found, key=lambda one: (one.place, one.code))


def _misplaced(survey: Survey, rule: Rule) -> Iterator[Finding]:
    """Effects that apply to none of a rule's kinds: every hit would be refused."""
    for path in effect_paths(rule):
        kinds, surveyed = _KINDS.get(path[-1]), survey.rule(path)
        if kinds is not None and surveyed is not None and not rule.kinds.intersection(kinds):
            only = f"`{path[-1]}` applies to views of kind {' and '.join(kinds)} only"
            hint = "add the kind to its METADATA; to change text, use `redact`"
            yield _bad_effect(surveyed.definitions[0].place, f"{only}, and this rule judges none of them", hint)


def _first_only(survey: Survey, rule: Rule) -> Iterator[Finding]:
    """Redactions by `indexof`, which finds only the first place: edits would be repeated until the run is refused."""
    package = ("data", *rule.package.split("."))
    for reached in survey.reachable([path for path in effect_paths(rule) if path[-1] == Effect.REDACT]):
        for call in (call for one in reached.definitions for call in one.calls if reached.path[:-1] == package):
            if call.name == "indexof":
                hint = "write `some at in indexof_n(…)`, which finds every place"
                yield warning("check.first-only", call.place, "indexof finds only the first place to redact", hint)


_ANY_DIFFERS: Final = re.compile(r"([\w.\[\]\"]+)\[_\] != (\S+)")


def _any_differs(survey: Survey, rule: Rule, texts: Mapping[str, bytes]) -> Iterator[Finding]:
    """Conditions `a[_] != b`: they hold if any member differs, and not for an empty `a`."""
    package = ("data", *rule.package.split("."))
    for reached in survey.reachable(effect_paths(rule)):
        for one in reached.definitions if reached.path[:-1] == package else ():
            for statement in (each for body in one.raw["bodies"] for each in body["statements"]):
                found = _ANY_DIFFERS.fullmatch(text_at(texts[one.place.module], statement["span"]).strip())
                if found is not None:
                    place = Place(one.place.module, statement["line"], statement["column"])
                    message = f"`{found[0]}` holds if any member is another one, and never for an empty list"
                    yield warning("check.any-differs", place, message, f"write `not {found[2]} in {found[1]}`")


def _members(survey: Survey, rule: Rule, path: Path, texts: Mapping[str, bytes]) -> Iterator[Finding]:
    """Literal members that are not an object with the required fields: every hit would be refused."""
    surveyed = survey.rule(path)
    for definition in surveyed.definitions if surveyed is not None else ():
        text = _written(definition, texts)
        fields = _literal(text)
        missing = [name for name in ("code", "reason", *_NEEDED.get(path[-1], ())) if name not in (fields or ())]
        if path[-1] == "redact" and fields is not None:
            yield from _bad_redactions(rule, definition.place, fields)
        if text[:1] in ('"', "`") or text.startswith("sprintf("):
            message = f"a member of `{path[-1]}` must be an object, not a string"
            yield _bad_effect(definition.place, message, 'write {"code": …, "reason": …}')
        elif fields is not None and missing:
            message = f"a member of `{path[-1]}` has no {' and no '.join(missing)}"
            fields_to_add = ", ".join(f'`"{name}": …`' for name in missing)
            yield _bad_effect(definition.place, message, f"write {fields_to_add}")


def _bad_redactions(rule: Rule, place: Place, fields: Mapping[str, str | None]) -> Iterator[Finding]:
    """A `redact` that names what none of the rule's kinds has."""
    if len(fields.keys() & {"spans", "pointer"}) != 1:
        hint = 'write `"spans": [[begin, end]]`, of the content, or `"pointer": "/arguments/…"`'
        yield _bad_effect(place, "a member of `redact` needs either spans or pointer", hint)
    elif "spans" in fields and not rule.kinds.intersection(_KINDS_WITH_TEXT):
        message = f"`spans` cut the text of {', '.join(_KINDS_WITH_TEXT)} only, and this rule judges none of them"
        yield _bad_effect(place, message, "deny it instead, or in a call write `pointer` in place of `spans`")
    elif (pointer := fields.get("pointer")) is not None:
        if not pointer.startswith((ARGUMENTS, EXTRA)):
            message = f"this pointer is neither into {ARGUMENTS}… nor into {EXTRA}…"
            yield _bad_effect(place, message, "use `spans` for text")
        elif pointer.startswith(ARGUMENTS) and rule.kinds.isdisjoint(WITH_ARGUMENTS):
            kinds = " and ".join(sorted(WITH_ARGUMENTS))
            message = f"only views of kind {kinds} have arguments, and this rule judges none"
            yield _bad_effect(place, message, "add the kind to its METADATA, or use `spans` for text")


def _bad_effect(place: Place, message: str, hint: str) -> Finding:
    return warning("policy.bad-effect", place, message, hint)


def _written(definition: Definition, texts: Mapping[str, bytes]) -> str:
    """The text of a set's member; of a variable what its body assigns to it."""
    raw, text = definition.raw, texts[definition.place.module]
    if raw["kind"] != "set" or raw["value"] is None:
        return ""
    written = text_at(text, raw["value"]).strip()
    if not written.isidentifier():
        return written
    statements = [text_at(text, one["span"]).strip() for body in raw["bodies"] for one in body["statements"]]
    given = [found[1] for one in statements if (found := re.match(rf"{written}\s*:=\s*(.*)", one, re.DOTALL))]
    return given[0] if len(given) == 1 else ""


def _literal(text: str) -> dict[str, str | None] | None:
    """The keys of an object literal, each with its value if that is a string; None for anything else."""
    if not text.startswith("{"):
        return None
    fields: dict[str, str | None] = {}
    tokens = [match[0] for match in _TOKEN.finditer(text) if match[0][0] != "#"]
    depth = 0
    for at, token in enumerate(tokens):
        if token in "{[(":
            depth += 1
        elif token in "}])":
            depth -= 1
        elif depth == 1 and token == "|":
            return None  # a comprehension
        elif depth == 1 and token == ":":
            key = tokens[at - 1]
            if key[:1] != '"':
                return None  # a computed key
            value, end = (*tokens[at + 1 : at + 3], "", "")[:2]
            is_string = value[:1] in ('"', "`") and end in (",", "}")
            fields[key[1:-1]] = value[1:-1] if is_string else None
    return fields
