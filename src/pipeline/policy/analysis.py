"""What a set of modules reads, calls and is made of, read off its text before anything is evaluated [C14] [D4].

Spec: docs/spec/policies.md [POL-25], docs/spec/engines.md [ENG-15].
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from cmf import _native
from cmf.json.codec import loads
from pipeline.decisions.errors import PolicyError

Path = tuple[str, ...]
"""Names from the root, `input` or `data`."""

MAX_TEXT: Final = 100_000  # characters of a pattern put together from constants


HINTS: Final = {
    "policy.banned-builtin": "take it out, or judge this set with an OPA server",
    "policy.unknown-function": "check the spelling, or import the package that has it",
    "policy.recursion": "write it without recursion",
    "policy.call-depth": "let fewer rules depend on each other",
    "policy.nesting": "move large literals to a data file",
    "policy.no-entrypoint": "define the rule, or correct the entrypoint",
    "policy.data-conflict": "rename the rule, or move the data",
    "policy.out-parameter": "assign the result with `:=`",
    "policy.parse": "imports stand before rules, a body is `if { … }`; see the Rego reference at openpolicyagent.org",
    "policy.analysis": "give every variable a value in a condition that is not negated",
    "policy.arity": "call it with as many arguments as it takes",
    "policy.with-function": "replace input or data only",
    "policy.import": "",
    "policy.unsupported": "",
}
"""What to do about a refusal, by its code; empty where the message says that."""

INSTEAD: Final = {
    "time.now_ns": "there is no clock: read input.extensions.request.timestamp, and time.parse_rfc3339_ns of it",
    "http.send": "a rule asks nobody: let the host give the fact in its context (input.extensions.custom), or as data",
    "opa.runtime": "write settings in a data file, and read them as data.cmf.defaults.…",
}
"""What to do instead of calling some of OPA's builtins."""


def without_prints(modules: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """(path, text) of each module with `true` and spaces in place of `print(…)`: all else stays where it is [ENG-19].

    Raises:
        PolicyError: a module is no Rego.
    """
    if not any("print" in text for _, text in modules):
        return list(modules)
    try:
        return _native.without_prints(list(modules))
    except _native.RefusedError as error:
        raise policy_error(error, modules) from None


_OF_MESSAGES: Final = {
    "`if` keyword is required": "write `if` before the body: this is Rego v1",
    "exceeds maximum column width": "break the line, or move long texts to a data file",
    "this import shadows": "import it once",
    "import shadows": "import it once",
    "expecting `}`": "close the brackets that are open above",
    "unexpected keyword `not`": "move the negated expression into its own rule: `_holds if …`, then `not _holds`",
    "unexpected keyword `if`": "write each condition on a line of its own, and a rule of its own for each alternative",
    "else cannot be used with set": "write a rule of its own for each alternative",
    "rule must have a body or assignment": 'write its value too: `f("a") := true`',
    "expecting `in` while parsing": "write each condition on a line of its own, and members in `{…}` or `[…]`",
}
_OF_SIGNS: Final = {
    "'": "write texts in double quotes or backticks",
    "&": "write each condition on a line of its own",
    "|": "write a rule of its own for each alternative",
    ";": "put conditions that belong together in braces: `if { a; b }`",
    "!": "write `not …`, or `a != b`",
    "and ": "write each condition on a line of its own",
    "or ": "write a rule of its own for each alternative",
    "not in ": "write `not a in b`",
    "is ": "compare with `==`",
    ":= not ": "`not` has no value: make a rule of it, `_absent if not …`, and ask for that",
    '$"': "use sprintf: templates are not read here",
    "$`": "use sprintf: templates are not read here",
}


def policy_error(error: _native.RefusedError, modules: Sequence[tuple[str, str]]) -> PolicyError:
    """The refusal of a set in the engine's words, with what to do about it."""
    code, message, path, line, column = error.args
    text = dict(modules).get(path, "")
    hint = _hint_for(message, text[offset_of(text, line, column) :]) or HINTS.get(code, "correct it")
    message = re.sub(r"( previous import of `\w+`)? defined (?:at|earlier):$", r"\1", message)  # the place is left out
    return PolicyError(message, path=path, line=line, column=column, hint=hint, code=code)


def _hint_for(message: str, rest: str) -> str:
    """What to do, by the engine's message and the text at that place; empty if neither tells."""
    found: list[str] = []
    if message.startswith(("expecting", "invalid character", "rule must have a body")):
        # The text there tells more than what the parser expects.
        found += [hint for sign, hint in _OF_SIGNS.items() if rest.startswith(sign)]
        if re.match(r"\w+(?:\s*,\s*\w+)?\s+in\b", rest):  # what stood before is `for`, `each`, or a whole condition
            found.append("go through members with `some x in …`; write each condition on a line of its own")
        if rest[:1] and not rest[0].isascii():
            found.append("write it in ASCII: other letters, quotes and blanks stand in texts alone")
    found += [hint for words, hint in _OF_MESSAGES.items() if words in message]
    found += [hint for name, hint in INSTEAD.items() if message.startswith(f"{name} ")]
    if not found and message.startswith("no function ") and re.match(r"[\w.]+[ \t]*(?:#.*)?\n\s*\(", rest):
        found.append("a `(` on the next line makes a call of this: begin that line otherwise")
    return found[0] if found else ""


def offset_of(text: str, line: int, column: int) -> int:
    """Where a place that the engine names is in a module's text, in characters."""
    lines = text.split("\n")
    before = sum(len(one) + 1 for one in lines[: max(line - 1, 0)])
    return before + min(max(column - 1, 0), len(lines[line - 1]) if 0 < line <= len(lines) else 0)


def line_of(text: str, effect: str, code: str) -> int:
    """The line, from 1, of the definition of `effect` that contains `code`; else of the first one, or the package."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if re.match(rf"{re.escape(effect)}\b", line)]
    for start in starts:
        rest = range(start + 1, len(lines))
        after = next((n for n in rest if re.match(r"[a-z#}]", lines[n]) and lines[n] != "}"), len(lines))
        if f'"{code}"' in "\n".join(lines[start:after]):
            return start + 1
    packages = (number for number, line in enumerate(lines) if line.startswith("package"))
    return next(iter([*starts, *packages]), 0) + 1


def text_at(text: bytes, span: Sequence[int]) -> str:
    """The part of a module's text between two of the survey's offsets, which count bytes."""
    return text[span[0] : span[1]].decode()


class Place(NamedTuple):
    """Where in the policies something is; line and column count from 1."""

    module: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Read:
    """One reference: its names up to the first computed step, and whether there was none."""

    path: Path
    whole: bool
    place: Place


@dataclass(frozen=True, slots=True)
class Call:
    """One call: the name as Rego resolves it, and what is known of each argument (see `Survey.text_of`)."""

    name: str
    arguments: tuple[Any, ...]
    place: Place


class Hoisted(NamedTuple):
    """What OPA asks for before it asks whether a negated expression holds.

    `path` is None for a member of a local variable, and for a call inside of another expression, whose name is `call`.
    """

    path: Path | None
    call: str | None
    place: Place


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a rule; `always`: it has a value whatever the input is; `raw`: the survey's own entry."""

    place: Place
    always: bool
    is_default: bool
    uses_with: bool
    known: Any
    reads: tuple[Read, ...]
    calls: tuple[Call, ...]
    hoisted: tuple[Hoisted, ...]
    long_numbers: tuple[Place, ...]
    raw: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SurveyedRule:
    """All definitions of one path; `interpreted` says why the compiled form cannot serve it, or None."""

    path: Path
    is_function: bool
    uses: frozenset[int]
    interpreted: str | None
    definitions: tuple[Definition, ...]


class Survey:
    """The rules of some modules and what they depend on; `packages` by the path of the module.

    Raises:
        PolicyError: the modules may not be a set at all (no Rego, recursion, …), with file, line and column.
    """

    def __init__(self, modules: Sequence[tuple[str, str]]) -> None:
        try:
            document: dict[str, Any] = loads(_native.survey(list(modules)))
        except _native.RefusedError as error:
            raise policy_error(error, modules) from None
        self.modules: Sequence[Mapping[str, Any]] = document["modules"]
        self.rules = tuple(
            SurveyedRule(
                path=tuple(entry["path"]),
                is_function=entry["function"],
                uses=frozenset(entry["uses"]),
                interpreted=entry["interpreted"],
                definitions=tuple(map(_definition, entry["definitions"])),
            )
            for entry in document["rules"]
        )
        self.packages = {module["path"]: tuple(module["package"]) for module in self.modules}
        self._index = {rule.path: number for number, rule in enumerate(self.rules)}
        self._leading = {rule.path[:length] for rule in self.rules for length in range(len(rule.path) + 1)}

    def rule(self, path: Path) -> SurveyedRule | None:
        """The rule at exactly `path`."""
        number = self._index.get(path)
        return None if number is None else self.rules[number]

    def rule_of(self, path: Path) -> SurveyedRule | None:
        """The rule at `path` or above it: what a reference with this path reads first."""
        for length in range(len(path), 1, -1):
            if (number := self._index.get(path[:length])) is not None:
                return self.rules[number]
        return None

    def leads_to_rule(self, path: Path) -> bool:
        """Whether a rule is at `path`, above it or below it."""
        return path in self._leading or self.rule_of(path) is not None

    def reachable(self, paths: Sequence[Path]) -> list[SurveyedRule]:
        """The rules at `paths` and all that they can ask for, in no order that matters."""
        found: set[int] = set()
        waiting = [self._index[path] for path in paths if path in self._index]
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += self.rules[number].uses - found
        return [self.rules[number] for number in sorted(found)]

    def definitions(self) -> Iterator[Definition]:
        """Every definition of every rule."""
        for rule in self.rules:
            yield from rule.definitions

    def text_of(self, known: Any, data: Mapping[str, Any], *, depth: int = 8) -> str | None:
        """The string that an argument has whatever the input is, if policies and `data` determine it."""
        match known:
            case {"text": str(text)}:
                return text
            case {"path": [*names]}:
                return self._text_at(tuple(names), data, depth)
            case {"by": by, "parts": parts} if depth:
                texts = [self.text_of(part, data, depth=depth - 1) for part in (by, *parts)]
                if any(text is None for text in texts):
                    return None
                joined = str(texts[0]).join(str(text) for text in texts[1:])
                return joined if len(joined) <= MAX_TEXT else None
            case _:
                return None

    def _text_at(self, path: Path, data: Mapping[str, Any], depth: int) -> str | None:
        resolved = self.resolved(path)
        rule = self.rule(resolved)
        if rule is not None:
            only = rule.definitions[0].known if len(rule.definitions) == 1 else None
            return self.text_of(only, data, depth=depth - 1) if depth else None
        value = data_at(data, resolved[1:]) if resolved[0] == "data" else None
        return value if isinstance(value, str) else None

    def resolved(self, path: Path) -> Path:
        """`path` with names that are only another path (`_settings := data.a.b`) replaced by that."""
        for _ in range(8):
            rule = self.rule_of(path)
            known = rule.definitions[0].known if rule is not None and len(rule.definitions) == 1 else None
            if rule is None or not isinstance(known, dict) or "path" not in known:
                break
            path = (*known["path"], *path[len(rule.path) :])
        return path


def allowed_builtins() -> list[str]:
    """The builtins that a policy may call in the embedded engine, sorted [ENG-2]."""
    return _native.allowed_builtins()


def pattern_problem(pattern: str) -> tuple[str, str] | None:
    """What keeps a pattern from meaning what it means in OPA, and what to write instead; None if nothing [ENG-14]."""
    return _native.foreign_pattern(pattern)


def data_at(data: Mapping[str, Any], path: Path) -> Any:
    """The value at `path` of the data document; None where there is none."""
    value: Any = data
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _definition(entry: Mapping[str, Any]) -> Definition:
    module = entry["module"]

    def place(spot: Mapping[str, Any]) -> Place:
        return Place(module, spot["line"], spot["column"])

    return Definition(
        place=place(entry),
        always=entry["always"],
        is_default=entry["default"],
        uses_with=entry["with"],
        known=entry["known"],
        reads=tuple(Read(tuple(read["path"]), read["whole"], place(read)) for read in entry["reads"]),
        calls=tuple(Call(call["name"], tuple(call["arguments"]), place(call)) for call in entry["calls"]),
        hoisted=tuple(
            Hoisted(tuple(one["path"]) if one["path"] else None, one["call"], place(one)) for one in entry["hoisted"]
        ),
        long_numbers=tuple(map(place, entry["long_numbers"])),
        raw=entry,
    )
