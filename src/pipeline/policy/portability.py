"""Constructs in a policy set that would not do what they seem to, found when it is loaded [D1] [C14].

Spec: docs/spec/policies.md [POL-25] to [POL-28]. Two kinds are found: constructs that the embedded engine and OPA
evaluate differently, and reads of something that is never present.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cmf.adapters import FORMATS
from cmf.enums import Capability, ViewKind
from cmf.views.tiers import SLOTS, SUBJECT_FIELDS
from pipeline.decisions.decision import Effect
from pipeline.decisions.display import meant
from pipeline.policy.analysis import (
    Definition,
    Path,
    Place,
    Read,
    Survey,
    SurveyedRule,
    allowed_builtins,
    data_at,
    offset_of,
    pattern_problem,
)
from pipeline.policy.metadata import Module, Rule
from pipeline.policy.schemas import view_schema

_NO_CODE: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*', re.DOTALL)


def undefined_names(survey: Survey, modules: Sequence[Module], data: Mapping[str, Any]) -> list[Finding]:
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


DEFAULTS: Final = ("data", "cmf", "defaults")

PATTERN_AT: Final = {
    "regex.find_all_string_submatch_n": 0,
    "regex.find_n": 0,
    "regex.is_valid": 0,
    "regex.match": 0,
    "regex.replace": 1,
    "regex.split": 0,
}
_WORDS: Final = frozenset({ViewKind.TEXT, ViewKind.THINKING})
_NAMED: Final = frozenset(ViewKind) - _WORDS
KINDS_WITH: Final[dict[Path, frozenset[ViewKind]]] = {
    ("arguments",): frozenset({ViewKind.TOOL_CALL, ViewKind.PROMPT_REQUEST}),
    ("name",): _NAMED,
    ("uri",): _NAMED,
    ("mime_type",): _NAMED,
    ("extensions", "security", "object"): _NAMED,
    ("extensions", "security", "data_policy"): _NAMED,
}
"""The kinds of views that can have a field, if not all can; paths are below `input`."""

_SECURITY: Final = ("extensions", "security")
_GATES: Final[dict[Path, Capability]] = {
    ("session", "labels"): Capability.READ_LABELS,
    ("session", "counters"): Capability.READ_AGENT,
    ("session", "events"): Capability.READ_AGENT,
    ("session", "approvals"): Capability.READ_AGENT,
    (*_SECURITY, "object"): Capability.READ_OBJECTS,
    (*_SECURITY, "data_policy"): Capability.READ_DATA,
    **{(*_SECURITY, "subject", field): needs for field, needs in SUBJECT_FIELDS.items()},
    **{
        ("extensions", *slot.split(".")): row.read
        for slot, row in SLOTS.items()
        if row.read is not None and slot not in {"security.subject", "security.objects", "security.data"}
    },
}
"""The capability needed to see a field [B8] [C1]; paths are below `input`."""

EVERYTHING: Final = frozenset(_GATES.values())

_GATED_THROUGHOUT: Final[tuple[Path, ...]] = (("session",), (*_SECURITY, "subject"))
"""Objects that are absent for a reader without any of the capabilities for their parts."""

_CHANGING: Final[tuple[Path, ...]] = (
    ("session",),
    ("origins",),
    ("extensions", "agent"),
    ("extensions", "http"),
    ("extensions", "provenance"),
    (*_SECURITY, "labels"),
    (*_SECURITY, "classification"),
)
"""Fields that differ from turn to turn for the same part: rules that read them are evaluated each time [C14]."""

_OF_SESSION: Final[tuple[Path, ...]] = (
    ("session",),
    ("origins",),
    (*_SECURITY, "labels"),
    (*_SECURITY, "classification"),
)
"""Those of them that only a session changes. They are in the key as a whole, so they stay equal without a session."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem in a policy. With `refuses`, the set cannot be loaded."""

    code: str
    place: Place
    message: str
    hint: str
    refuses: bool = True


def warning(code: str, place: Place, message: str, hint: str) -> Finding:
    """A finding that does not keep the set from being loaded."""
    return Finding(code, place, message, hint, refuses=False)


def findings(survey: Survey, data: Mapping[str, Any], rules: Sequence[Rule], *, strict: bool) -> list[Finding]:
    """All findings, by place; those that refuse the set come first.

    Without rules, for policies that are not made of them, problems that depend on our input document are warnings. With
    `strict`, a failing builtin fails the view; if not, every rule that could silently vanish is found [D5].
    """
    found = [
        *_dialect(survey, data),
        *_settings(survey, data),
        *_negations(survey, data, refuses=bool(rules), strict=strict),
    ]
    found += _unknown_fields(survey, refuses=bool(rules))
    for rule in rules:
        found += _unseen(survey, rule)
    found += _misnamed(survey, rules)
    found += _unreached(survey, rules)
    if not strict:
        found += _vanishing(survey)
    unique = {(one.code, one.place, one.message): one for one in found}
    # A missing setting makes much else look wrong, so it is reported alone.
    return sorted(
        unique.values(), key=lambda one: (not one.refuses, one.code != "policy.no-setting", one.place, one.code)
    )


def needed(survey: Survey, entrypoint: Path) -> frozenset[Capability]:
    """The capabilities needed to see all that the rule at `entrypoint` reads; every one if that is unknown."""
    needs: set[Capability] = set()
    for path in input_reads(survey.reachable([entrypoint])):
        below = [needs for gate, needs in _GATES.items() if gate[: len(path)] == path]
        needs |= EVERYTHING if not path else {*below, *gates_of(path)}
    return frozenset(needs)


def input_reads(rules: Iterable[SurveyedRule]) -> set[Path]:
    """The paths below `input` that these rules read; the empty path stands for the whole input."""
    definitions = [definition for rule in rules for definition in rule.definitions]
    paths = {read.path[1:] for one in definitions for read in one.reads if read.path[:1] == ("input",)}
    # `with` can replace any part of the input.
    return paths | {()} if any(one.uses_with for one in definitions) else paths


def reads_below(place: Path, rules: Iterable[SurveyedRule]) -> tuple[Path, ...]:
    """The paths below `place` of the input that these rules read, sorted; the empty path stands for all of it."""
    depth = len(place)
    return tuple(sorted({path[depth:] for path in input_reads(rules) if path[:depth] == place[: len(path)]}))


def is_local(reads: Iterable[Path], *, alone: bool = False) -> bool:
    """Whether nothing that is read changes from turn to turn, nor contains anything that does.

    `alone` assumes an empty session, so that it and its labels are the same each time.
    """
    changing = [path for path in reads if not (alone and any(path[: len(other)] == other for other in _OF_SESSION))]
    return not any(path[: len(other)] == other[: len(path)] for path in changing for other in _CHANGING)


def effect_paths(rule: Rule) -> list[Path]:
    """The paths of the sets that a rule contributes to."""
    return [("data", *rule.package.split("."), effect.value) for effect in Effect if effect in rule.effects]


# -- engines differ ----------------------------------------------------------------------------------------------------


def _dialect(survey: Survey, data: Mapping[str, Any]) -> Iterator[Finding]:
    for definition in survey.definitions():
        for place in definition.long_numbers:
            yield Finding(
                "policy.big-integer",
                place,
                "a number is beyond ±2^53, where engines lose precision",
                "write it as a string",
            )
        for call in definition.calls:
            at = PATTERN_AT.get(call.name)
            pattern = survey.text_of(call.arguments[at], data) if at is not None and at < len(call.arguments) else None
            problem = pattern_problem(pattern) if pattern is not None else None
            if problem is not None:
                what, instead = problem
                message = f"the pattern uses {what}" if what.startswith(("a ", "an ")) else f"the pattern is {what}"
                yield Finding("policy.regex-dialect", call.place, message, instead)


def _negations(survey: Survey, data: Mapping[str, Any], *, refuses: bool, strict: bool) -> Iterator[Finding]:
    """`not f(input.missing)` holds here but not in OPA, which evaluates `input.missing` before it negates.

    The same goes for `not f(g(x))` if `g(x)` is undefined. Which calls are defined cannot be determined; a builtin that
    fails is an error on both engines if they are strict.
    """
    for definition in survey.definitions():
        for path, call, place in definition.hoisted:
            if call is not None:
                if call in _BUILTINS and (strict or call in _NEVER_FAIL):
                    continue
                what = f"{call} is undefined"
            elif path is None:
                what = "the member is missing"
            elif path[0] != "input" and _is_defined(survey, data, path):
                continue
            else:
                what = f"{'.'.join(path)} is missing"
            yield Finding(
                "policy.negated-reference",
                place,
                f"if {what}, the rule does not hold, though the condition is negated",
                "move the negated condition into its own rule: `_holds if …`, then `not _holds`",
                refuses=refuses and path is not None,
            )


def _is_defined(survey: Survey, data: Mapping[str, Any], path: Path) -> bool:
    resolved = survey.resolved(path)
    rule = survey.rule_of(resolved)
    if rule is None:
        return resolved[0] == "data" and data_at(data, resolved[1:]) is not None
    if survey.text_of({"path": list(resolved)}, data) is not None:
        return True
    return len(resolved) == len(rule.path) and any(definition.always for definition in rule.definitions)


def _vanishing(survey: Survey) -> Iterator[Finding]:
    can_fail = _BUILTINS - _NEVER_FAIL
    for rule in survey.rules:
        effect = rule.path[-1]
        if effect not in {Effect.DENY, Effect.REQUIRE_APPROVAL, "allow"}:
            continue
        for reached in survey.reachable([rule.path]):
            for call in (call for definition in reached.definitions for call in definition.calls):
                if call.name in can_fail:
                    message = f"{'.'.join(rule.path[1:])} is silently undefined if {call.name} fails"
                    hint = "check types first, or load the set with strict builtin errors"
                    yield warning("policy.may-vanish", call.place, message, hint)


_BUILTINS: Final = frozenset(allowed_builtins())
_NEVER_FAIL: Final = frozenset(
    {"is_array", "is_boolean", "is_null", "is_number", "is_object", "is_set", "is_string", "json.is_valid"}
    | {"object.get", "type_name", "json.marshal", "base64.is_valid", "regex.is_valid", "semver.is_valid"}
)


# -- never present -----------------------------------------------------------------------------------------------------


def _settings(survey: Survey, data: Mapping[str, Any]) -> Iterator[Finding]:
    """A setting that a rule reads and nobody set makes the rule undefined, so it is silent [POL-6]."""
    for definition in survey.definitions():
        for read in definition.reads:
            path = survey.resolved(read.path)
            if path[:3] == DEFAULTS and len(path) > 3 and data_at(data, path[1:]) is None:
                yield Finding(
                    "policy.no-setting",
                    read.place,
                    f"{'.'.join(path)} is not set",
                    "set it in cmf/defaults/data.json",
                )


def _misnamed(survey: Survey, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Unused sets of a rule whose names are almost those of an effect: they would be silent."""
    packages = {("data", *rule.package.split(".")) for rule in rules}
    used = {other for rule in survey.rules for other in rule.uses}
    effects = [effect.value for effect in Effect]
    for number, surveyed in enumerate(survey.rules):
        name = surveyed.path[-1]
        if number in used or name in effects or surveyed.path[:-1] not in packages:
            continue
        near = difflib.get_close_matches(name, effects, 1, cutoff=_MIN_SIMILARITY)
        first = surveyed.definitions[0]
        if near and first.raw["kind"] == "set":
            hint = f"did you mean {near[0]}?"
            yield Finding("policy.unknown-effect", first.place, f"{name} is not an effect, and nothing uses it", hint)


def _unreached(survey: Survey, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Unused sets named like an effect outside the packages of rules: nothing evaluates them."""
    used = {other for rule in survey.rules for other in rule.uses}
    for number, surveyed in enumerate(survey.rules if rules else ()):
        is_of_rules = surveyed.path[:3] == ("data", "cmf", "rules")
        first = surveyed.definitions[0]
        if surveyed.path[-1] in set(Effect) and number not in used and not is_of_rules and first.raw["kind"] == "set":
            hint = (
                "a rule is in cmf/rules/<category>/<rule>/<rule>.rego, and its package is cmf.rules.<category>.<rule>"
            )
            yield Finding("policy.unreached", first.place, f"nothing evaluates {'.'.join(surveyed.path)}", hint)


_MIN_SIMILARITY: Final = 0.6  # similarity: `denied`, `warnings` and `redactions` pass, `hosts` and `errors` do not


def _unknown_fields(survey: Survey, *, refuses: bool) -> Iterator[Finding]:
    for definition in survey.definitions():
        for read in definition.reads:
            if read.path[:1] != ("input",):
                continue
            if (problem := stray(read.path[1:])) is not None:
                name, near = problem
                hint = f"did you mean {near}?" if near else "see `cmf schema view`"
                if name in _WHOLES:
                    hint = "a rule sees one part; docs/input.md says what it can do about others"
                message = f"no view has {'.'.join(read.path[: read.path.index(name) + 1])}"
                yield Finding("policy.unknown-field", read.place, message, hint, refuses=refuses)
            elif read.path[1:3] == _EXTRA and read.path[3:4] and read.path[3].partition(".")[0] not in FORMATS:
                message = f"fields of a wire format are below its name, and {read.path[3]} is not a format"
                hint = (
                    "write for example input.properties.extra.openai_chat, or `some fields in input.properties.extra`"
                )
                yield warning("policy.no-format", read.place, message, hint)


_EXTRA: Final = ("properties", "extra")
_WHOLES: Final = frozenset({"choices", "message", "messages", "parts", "tools"})  # around the part


def field_schema(path: Path) -> Mapping[str, Any] | None:
    """The JSON Schema of the value at `path` below `input`; None if the schema does not describe it."""
    schema = _schema()
    here: Any = schema
    for name in path:
        here = _plain(here, schema["$defs"]).get("properties", {}).get(name)
        if here is None:
            return None
    return _plain(here, schema["$defs"])


@cache
def _schema() -> Mapping[str, Any]:
    return view_schema()


def stray(path: Path) -> tuple[str, str] | None:
    """The first name of `path`, below `input`, that no view has, and the most similar known one; None if a view may."""
    schema = _schema()
    definitions = schema["$defs"]
    here: Any = schema
    for name in path:
        here = _plain(here, definitions)
        known = here.get("properties", {})
        if name in known:
            here = known[name]
        elif here.get("additionalProperties", True) is False:
            return name, next(iter(difflib.get_close_matches(name, known, 1)), "")
        else:
            return None
    return None


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with references resolved and `null or …` removed."""
    while True:
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        elif "anyOf" in schema:
            choices = [choice for choice in schema["anyOf"] if choice.get("type") != "null"]
            if len(choices) != 1:
                return {}
            schema = choices[0]
        else:
            return schema


def _unseen(survey: Survey, rule: Rule) -> Iterator[Finding]:
    """Fields that a rule reads although its kinds lack them or its capabilities hide them."""
    package = ("data", *rule.package.split("."))
    for reached in survey.reachable(effect_paths(rule)):
        own = reached.path[: len(package)] == package
        for definition in reached.definitions:
            yield from _unseen_by(rule, definition, own=own)


def _unseen_by(rule: Rule, definition: Definition, *, own: bool) -> Iterator[Finding]:
    for read in definition.reads:
        if read.path[:1] != ("input",):
            continue
        path = read.path[1:]
        for gate in gates_of(path) - _held(rule):
            message = f"{rule.id} reads input.{'.'.join(path)} without the capability {gate}"
            hint = f"add {gate} to the rule's capabilities"
            yield Finding("policy.no-capability", read.place, message, hint)
        parts = {needs for gate, needs in _GATES.items() if gate[: len(path)] == path}
        if path in _GATED_THROUGHOUT and not parts & _held(rule):
            message = f"{rule.id} reads input.{'.'.join(path)} without a capability for any part of it"
            hint = f"add the ones for what it reads there: {', '.join(sorted(parts))}"
            yield Finding("policy.no-capability", read.place, message, hint)
        kinds = next((kinds for field, kinds in KINDS_WITH.items() if path[: len(field)] == field), None)
        if own and kinds is not None and not kinds & rule.kinds:
            message = f"no view of kind {' or '.join(sorted(rule.kinds))} has input.{'.'.join(path)}"
            hint = f"these kinds have it: {', '.join(sorted(kinds))}"
            yield Finding("policy.field-of-no-kind", read.place, message, hint)


def _held(rule: Rule) -> frozenset[Capability]:
    held = rule.capabilities
    return held | {Capability.READ_HEADERS} if Capability.WRITE_HEADERS in held else held


def gates_of(path: Path) -> frozenset[Capability]:
    """The capabilities needed to see `path` at all; none for an object whose parts have their own gates."""
    return frozenset(needs for gate, needs in _GATES.items() if path[: len(gate)] == gate)
