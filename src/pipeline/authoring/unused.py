"""Parts of a policy set without effect: settings, capabilities, helpers, imports, variables, conditions.

Spec: docs/spec/policies.md [POL-36]. These are warnings for authors; none keeps a set from being loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cmf.enums import Capability, Role, ViewKind
from cmf.views.view import head
from pipeline.decisions.decision import Effect
from pipeline.decisions.display import meant
from pipeline.decisions.engine import Decided
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import Call, Definition, Path, Place, Survey, data_at, offset_of, text_at, without_prints
from pipeline.policy.loading import Sources
from pipeline.policy.metadata import Module, Rule
from pipeline.policy.portability import DEFAULTS, Finding, effect_paths, field_schema, needed, warning
from pipeline.policy.schemas import PROPERTY_KINDS
from pipeline.policy.setting_schema import WITHOUT_URI, uri_hint

Locate = Callable[[Path], Place]
"""Maps the path of a value in the data document to the place in a file that sets it."""

_PROBE_SECONDS: Final = 5.0
_COMMENT: Final = re.compile(r"#.*")


def findings(survey: Survey, sources: Sources, rules: Sequence[Rule], locate: Locate) -> list[Finding]:
    """All findings, by place."""
    texts = {path: text.encode() for path, text in sources.modules}
    found = [
        *_settings(survey, sources.data, locate),
        *(one for rule in rules for one in _capabilities(survey, rule)),
        *_helpers(survey, sources.tests, rules),
        *(one for module in survey.modules for one in _imports(module, texts[module["path"]].decode())),
        *(one for definition in survey.definitions() for one in _variables(definition, texts)),
        *_never_met(survey, rules, texts, sources.data),
        *_conditions(survey, sources),
    ]
    return sorted(found, key=lambda one: (one.place, one.code))


def callee(package: Path, call: Call) -> Path:
    """The path of the function that a call means, if the set defines it: a bare name is in the caller's package."""
    steps = tuple(call.name.split("."))
    return steps if steps[0] == "data" else (*package, *steps)


# -- settings and capabilities -----------------------------------------------------------------------------------------


def _settings(survey: Survey, data: Mapping[str, Any], locate: Locate) -> Iterator[Finding]:
    """Settings that no rule reads; only the outermost is reported."""
    read = {
        path
        for definition in survey.definitions()
        # An alias for a path does not read what is below it; reads through the alias do.
        if not (isinstance(definition.known, Mapping) and "path" in definition.known)
        for path in (survey.resolved(one.path) for one in definition.reads)
        if path[: len(DEFAULTS)] == DEFAULTS
    }
    value = data_at(data, DEFAULTS[1:])
    for path in _unread(DEFAULTS, value, read) if isinstance(value, Mapping) else ():
        siblings = {one[: len(path)] for one in read if one[: len(path) - 1] == path[:-1] and len(one) >= len(path)}
        otherwise = "remove it, or read it; if a shipped rule does, add `-p shipped`"
        hint = meant(path[-1], (one[-1] for one in siblings), otherwise)
        yield warning("check.unused-setting", locate(path), f"no rule reads {'.'.join(path)}", hint)


def _unread(path: Path, value: Any, read: set[Path]) -> Iterator[Path]:
    if any(path[: len(one)] == one for one in read):
        return
    if len(path) > len(DEFAULTS) and not any(one[: len(path)] == path for one in read):
        yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _unread((*path, key), item, read)


def _capabilities(survey: Survey, rule: Rule) -> Iterator[Finding]:
    """Capabilities that a rule does not use, though they widen the views of the whole set."""
    needs = frozenset[Capability]().union(*(needed(survey, path) for path in effect_paths(rule)))
    for capability in sorted(rule.capabilities - needs - {Capability.WRITE_HEADERS}):
        message, hint = f"{rule.id} does not need {capability}", "remove it from the rule's capabilities"
        yield warning("check.unused-capability", Place(rule.path, 1, 1), message, hint)


# -- names -------------------------------------------------------------------------------------------------------------


def _helpers(survey: Survey, tests: Sequence[Module], rules: Sequence[Rule]) -> Iterator[Finding]:
    """Unreferenced rules: private helpers, and anything in a rule's package that is not an effect."""
    used = {other for number, rule in enumerate(survey.rules) for other in rule.uses if other != number}
    packages = {("data", *rule.package.split(".")) for rule in rules}
    for number, rule in enumerate(survey.rules):
        name = rule.path[-1]
        is_own = name.startswith("_") or (rule.path[:-1] in packages and name not in set(Effect))
        if number in used or not is_own or not rule.definitions:
            continue
        if not any(re.search(rf"\b{re.escape(name)}\b", test.text) for test in tests):
            hint = "remove it" if name.startswith("_") else f"remove it; the sets of a rule are {', '.join(Effect)}"
            yield warning("check.unused-helper", rule.definitions[0].place, f"nothing uses {name}", hint)


def _imports(module: Mapping[str, Any], text: str) -> Iterator[Finding]:
    code = "\n".join(_COMMENT.sub("", line) for line in text.splitlines())
    for spelled in module["imports"]:
        target, _, alias = spelled.removeprefix("import ").partition(" as ")
        name = (alias or target.rpartition(".")[2]).strip()
        rest = re.sub(rf"^\s*{re.escape(spelled)}\s*$", "", code, count=1, flags=re.MULTILINE)
        if target.startswith(("rego.", "future.")) or not name.isidentifier() or re.search(rf"\b{name}\b", rest):
            continue
        line = next((number for number, one in enumerate(code.splitlines(), 1) if one.strip() == spelled), 1)
        place = Place(module["path"], line, 1)
        yield warning("check.unused-import", place, f"{name} is imported but not used", "remove it")


def _variables(definition: Definition, texts: Mapping[str, bytes]) -> Iterator[Finding]:
    """Variables that are assigned and never used."""
    module = texts[definition.place.module]
    spans = [definition.raw["value"], *(one[key] for one in definition.raw["bodies"] for key in ("span", "value"))]
    start = _offset(module, definition.place)
    whole = text_at(module, (start, max((span[1] for span in spans if span is not None), default=start)))
    for statement in (each for body in definition.raw["bodies"] for each in body["statements"]):
        text = text_at(module, statement["span"])
        for name in statement["binds"]:
            shown = re.escape(name)
            declared = re.search(rf"\b{shown}\s*:=", text) or (
                statement["kind"] in ("in", "some") and re.search(rf"\b{shown}\b", text.partition(" in ")[0])
            )
            if declared and len(re.findall(rf"(?<![\w.]){shown}(?!\w)", whole)) == 1:
                place = Place(definition.place.module, statement["line"], statement["column"])
                hint = "write `_`, or remove it"
                yield warning("check.unused-variable", place, f"{name} is assigned but not used", hint)


def _offset(text: bytes, place: Place) -> int:
    whole = text.decode()
    return len(whole[: offset_of(whole, place.line, place.column)].encode())


# -- conditions --------------------------------------------------------------------------------------------------------


_CONSTANT: Final = r'"(?:[^"\\\\]|\\\\.)*"|-?[0-9]+(?:\.[0-9]+)?|true|false|null'
_COMPARED: Final = re.compile(
    rf"(?:(?P<path>input(?:\.\w+)+)\s*(?P<sign>[!=]=|[<>]=?)\s*(?P<value>{_CONSTANT})"
    rf"|(?P<first>{_CONSTANT})\s*(?P<turned>[!=]=|[<>]=?)\s*(?P<second>input(?:\.\w+)+)"
    rf"|(?P<member>input(?:\.\w+)+)\s+in\s+[{{\[](?P<values>(?:\s*(?:{_CONSTANT})\s*,?)+)[}}\]])"
)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
    "array": (),
    "object": (),
}
_FLAG: Final = re.compile(r"(?P<negated>not\s+)?(?P<path>input\.is_(?:pre|post))")
_OF_KIND: Final = ("kind", "action", "is_pre", "is_post")
"""Fields determined by a view's kind, its role, and whether it is nested in another part."""


def _never_met(
    survey: Survey, rules: Sequence[Rule], texts: Mapping[str, bytes], data: Mapping[str, Any]
) -> Iterator[Finding]:
    """Values that a field never has, patterns that no view's URI matches, and fields that are never there."""
    for definition, kinds in _with_kinds(survey, rules):
        for statement in (each for body in definition.raw["bodies"] for each in body["statements"]):
            place = Place(definition.place.module, statement["line"], statement["column"])
            text = text_at(texts[definition.place.module], statement["span"]).strip()
            for field, constant, hint in _never(text, kinds):
                yield warning("check.wrong-value", place, f"{field} is never {constant}", hint)
        for call in definition.calls:
            is_of_uri = call.name == _URI_MATCHES and list(call.arguments[:1]) == [_URI]
            pattern = survey.text_of(call.arguments[1], data) if is_of_uri else None
            if pattern is not None and (wrong := uri_hint(pattern, kinds, is_pattern=True)) is not None:
                yield warning("check.wrong-value", call.place, f"input.uri never matches {json.dumps(pattern)}", wrong)
        absent: set[Path] = set()  # each is reported once in a definition
        for read in definition.reads if kinds else ():
            path = survey.resolved(read.path)
            having = next((path[:size] for size in (2, 3) if path[:size] in _HAVING), None)
            if having is not None and having not in absent and _HAVING[having].isdisjoint(kinds or ()):
                absent.add(having)
                can, asked = (", ".join(sorted(each)) for each in (_HAVING[having], kinds or ()))
                message, hint = (
                    f"{'.'.join(having)} is never there",
                    f"only {can} can have it, and the rule is for {asked}",
                )
                yield warning("check.never-there", read.place, message, hint)


_URI_MATCHES: Final = "data.cmf.lib.uri_matches"
_URI: Final = {"path": ["input", "uri"]}
_HAVING: Final[Mapping[Path, frozenset[ViewKind]]] = {
    **{("input", "properties", name): kinds for name, kinds in PROPERTY_KINDS.items()},
    ("input", "arguments"): frozenset({ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST}),
    ("input", "origins"): frozenset({ViewKind.TOOL_CALL}),
    ("input", "uri"): frozenset(ViewKind) - WITHOUT_URI,
}
"""By field, the kinds of views that can have it."""


def _with_kinds(survey: Survey, rules: Sequence[Rule]) -> Iterator[tuple[Definition, frozenset[ViewKind] | None]]:
    """Each definition with the kinds that it is evaluated for; None in a library, and where nothing asks for it."""
    numbers = {rule.path: number for number, rule in enumerate(survey.rules)}
    asked: dict[int, frozenset[ViewKind]] = {}
    for judging in rules:
        reached = survey.reachable(effect_paths(judging))
        is_as_said = not any(definition.uses_with for one in reached for definition in one.definitions)
        for one in reached:  # of any kind if `with` replaces it
            number = numbers[one.path]
            asked[number] = asked.get(number, frozenset()) | (judging.kinds if is_as_said else frozenset(ViewKind))
    packages = {("data", *rule.package.split(".")) for rule in rules}
    for number, rule in enumerate(survey.rules):
        # A library function may be written for kinds that no rule uses it for yet.
        kinds = asked.get(number) if rule.path[:-1] in packages else None
        for definition in rule.definitions:
            yield definition, kinds


def _never(text: str, kinds: frozenset[ViewKind] | None) -> Iterator[tuple[str, str, str]]:
    """For a condition: the field, the constant that it never equals, and a hint."""
    if (flag := _FLAG.fullmatch(text)) is not None:
        constant = "false" if flag["negated"] else "true"
        if hint := _hint_for_kinds(flag["path"], [constant], kinds):
            yield flag["path"], constant, hint
    match = _COMPARED.fullmatch(text.removeprefix("not ").strip())
    if match is None:
        return
    field = match["path"] or match["second"] or match["member"]
    constants = re.findall(_CONSTANT, match["values"] or match["value"] or match["first"])
    schema = field_schema(tuple(field.split(".")[1:])) or {}
    sign = match["sign"] or match["turned"] or "=="
    # Rego orders values of different types too, so such a comparison holds always or never.
    is_ordered = sign[0] in "<>"
    wrong = [
        (
            one,
            _hint_for_schema(schema, json.loads(one))
            or (None if is_ordered else _hint_for_default(field, schema, json.loads(one)))
            or (uri_hint(json.loads(one), kinds) if field == "input.uri" and not is_ordered else None),
        )
        for one in constants
    ]
    found = [(field, one, hint) for one, hint in wrong if hint is not None]
    # One that always holds, as one of several or negated, is redundant but harmless.
    may_hold = found or text.startswith("not ") or sign != "=="
    if not may_hold and (hint := _hint_for_kinds(field, constants, kinds)):
        yield field, " or ".join(constants), hint
    yield from found


def _hint_for_kinds(field: str, constants: Sequence[str], kinds: frozenset[ViewKind] | None) -> str | None:
    """A hint if the field equals none of the constants for any of the kinds; None if it can."""
    name = field.removeprefix("input.")
    if not kinds or name not in _OF_KIND:
        return None
    heads = (head(kind, role, inside, None) for kind in kinds for role in Role for inside in (False, True))
    can_be = {json.dumps(one[name]) for one in heads}
    if not can_be.isdisjoint(constants):
        return None
    return f"it is {' or '.join(sorted(can_be))} for the rule's kinds, {', '.join(sorted(kinds))}"


def _hint_for_schema(schema: Mapping[str, Any], value: Any) -> str | None:
    """A hint if a field with this schema never equals `value`; None if it can."""
    words = schema.get("enum")
    if words is not None:
        return None if value in words else meant(str(value), words, f"one of {', '.join(words)}")
    kind = str(schema.get("type"))
    if kind not in _TYPES or (isinstance(value, _TYPES[kind]) and not (kind != "boolean" and isinstance(value, bool))):
        return None
    return f"it is of type {kind}"


def _hint_for_default(field: str, schema: Mapping[str, Any], value: Any) -> str | None:
    """A hint if a field of the extensions is left out when it equals `value`, its default."""
    is_left_out = field.startswith("input.extensions.") and not field.startswith(_WHOLE)
    default = schema.get("default")
    if is_left_out and default is not None and (default, type(default)) == (value, type(value)):
        return "the field is left out in that case; write `not` with the other value"
    return None


_WHOLE: Final = ("input.extensions.security.object.", "input.extensions.security.data_policy.")


@dataclass(frozen=True, slots=True)
class _Probe:
    """Leading conditions of one body that depend on the policies alone: if they fail here, they always fail."""

    place: Place
    body: int
    package: str
    text: str


def _conditions(survey: Survey, sources: Sources) -> Iterator[Finding]:
    """Conditions that never hold, whatever the input."""
    texts = {path: text.encode() for path, text in without_prints(sources.modules)}  # as parsed by the survey
    homes = {module["path"]: module for module in survey.modules}
    probes = [
        probe
        for definition in survey.definitions()
        for body in definition.raw["bodies"]
        for probe in _probes(survey, definition, body, homes[definition.place.module], texts[definition.place.module])
    ]
    silent: set[tuple[str, int]] = set()
    for probe, holds in zip(probes, _probe_results(probes, homes, sources), strict=True):
        # Once one condition never holds, the ones after it are not worth reporting.
        if not holds and (probe.place.module, probe.body) not in silent:
            silent.add((probe.place.module, probe.body))
            hint = "correct it, or remove the definition it is in"
            yield warning("check.never-true", probe.place, "this condition never holds, whatever the input", hint)


def _probes(
    survey: Survey, definition: Definition, body: Mapping[str, Any], module: Mapping[str, Any], text: bytes
) -> Iterator[_Probe]:
    known: set[str] = set()
    kept: list[str] = []
    for statement in body["statements"]:
        if statement["kind"] == "some" or not set(statement["needs"]) <= known:
            continue
        if not _is_constant(survey, definition, statement["span"], text, tuple(module["package"])):
            continue
        known |= set(statement["binds"])
        kept.append(text_at(text, statement["span"]))
        place = Place(definition.place.module, statement["line"], statement["column"])
        yield _Probe(place, body["span"][0], ".".join(module["package"][1:]), "\n\t".join(kept))


def _is_constant(survey: Survey, definition: Definition, span: Sequence[int], text: bytes, package: Path) -> bool:
    if definition.uses_with:
        return False
    called = ((callee(package, one), one.place) for one in definition.calls)
    mentioned = (
        *((one.path, one.place) for one in definition.reads),
        *((path, place) for path, place in called if survey.rule(path) is not None),
    )
    rules = [
        survey.rule_of(survey.resolved(path)) for path, place in mentioned if span[0] <= _offset(text, place) < span[1]
    ]
    if any(rule is None for rule in rules):
        return False
    reached = survey.reachable([rule.path for rule in rules if rule is not None])
    return all(
        not one.uses_with and all(survey.rule_of(survey.resolved(read.path)) is not None for read in one.reads)
        for rule in reached
        for one in rule.definitions
    )


def _probe_results(probes: Sequence[_Probe], homes: Mapping[str, Mapping[str, Any]], sources: Sources) -> list[bool]:
    """Whether each probe holds; one that cannot be evaluated is assumed to hold."""
    if not probes:
        return []
    modules = [*sources.modules]
    names = []
    for number, probe in enumerate(probes):
        imports = "\n".join(homes[probe.place.module]["imports"])
        text = f"package {probe.package}\n\n{imports}\n\n_cmf_probe_{number} if {{\n\t{probe.text}\n}}\n"
        modules.append(Module(f"cmf/probe_{number}.rego", text))
        names.append(f"data.{probe.package}._cmf_probe_{number}")
    try:
        engine = EmbeddedEngine(modules, sources.data, names, use_compiled=False)
    except PolicyError:
        return [True] * len(probes)
    answers = engine.evaluate(names, b"{}", [b"{}"] * len(names), timeout_seconds=_PROBE_SECONDS)
    return [isinstance(answer, Decided) for answer in answers]
