"""OPA's own conformance cases, which its Go module brings: reading them, and loading one as a set is loaded."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.conftest import ROOT

from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import offset_of

PLAIN: Final = re.compile(r"(data(?:\.\w+)+) = (\w+)")
WHOLE_INPUT: Final = re.compile(r"\binput\b(?!\s*[.\[\"])")
CLOSING: Final = {"(": ")", "[": "]", "{": "}"}
ASKED: Final = "data.asked.answers"

Rows = list[dict[str, Any]]
Modules = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Case:
    """One case: `want` is None where OPA fails. `term` is an input that is no JSON object, as Rego."""

    folder: str
    note: str
    query: str
    modules: Modules
    data: Mapping[str, Any]
    input: Mapping[str, Any]
    term: str
    want: Rows | None
    strict: bool
    sorts: bool

    @property
    def rule(self) -> tuple[str, str] | None:
        """The path that the query asks for and the variable that gets its value, if it is so simple."""
        plain = PLAIN.fullmatch(self.query)
        return (plain[1], plain[2]) if plain and not self.term else None

    @property
    def wrapped(self) -> Modules:
        """The modules, and one whose rule `answers` asks the query."""
        names = sorted({name for row in self.want or [] for name in row}) or re.findall(r"= (\w+)$", self.query)
        row = ", ".join(f'"{name}": {name}' for name in names)
        term = f" with input as {self.term}" if self.term else ""
        text = f"package asked\n\nanswers contains {{{row}}} if {{\n\t{self.query}{term}\n}}\n"
        return [*self.modules, ("asked.rego", text)]


class _Loader(yaml.CSafeLoader):
    """YAML as Go reads it into JSON: `on`, `12:30` and dates are texts."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag.rpartition(":")[2] in ("int", "merge", "null")]
    for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$"), list("-0123456789")
)


@functools.cache
def conformance_cases() -> list[Case]:
    """All cases of Rego v1, in the order of their files. Skips the test where Go has not got the pinned OPA."""
    version = re.search(r"^OPA_VERSION := (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    try:
        cache = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
    except OSError:
        pytest.skip("no Go: OPA's conformance cases are in its Go module")
    folder = Path(cache) / f"github.com/open-policy-agent/opa@{version[1]}/v1/test/cases/testdata/v1"
    if not folder.is_dir():
        pytest.skip(f"no OPA {version[1]} in Go's module cache: its conformance cases are there after `make opa`")
    return [case for path in sorted(folder.rglob("*.yaml")) for case in _cases_of(path)]


def _cases_of(path: Path) -> Iterator[Case]:
    document = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    for raw in document["cases"]:
        given = raw["input_term"].strip() if "input_term" in raw else json.dumps(raw.get("input"))
        try:
            value = json.loads(given)
        except ValueError:
            value = ...
        yield Case(
            folder=path.parent.name,
            note=raw["note"],
            query=raw["query"].strip(),
            modules=[(f"test-{number}.rego", text) for number, text in enumerate(raw.get("modules") or [])],
            data=raw.get("data") or {},
            input=value if isinstance(value, dict) else {},
            term="" if value is None or isinstance(value, dict) else given,
            want=None if "want_error" in raw or "want_error_code" in raw else raw["want_result"],
            strict=raw.get("strict_error", False),
            sorts=raw.get("sort_bindings", False),
        )


def needs_no_input(case: Case) -> bool:
    """Whether the case is about an input that is missing: here there always is one."""
    read = any(WHOLE_INPUT.search(text) for _, text in case.modules)
    return read and not case.input and not case.term


def engine_for(case: Case, modules: Modules, entrypoint: str, **settings: Any) -> EmbeddedEngine:
    """The case's set; output arguments are written as their refusal tells.

    Raises:
        PolicyError: it is refused for another reason.
    """
    while True:
        try:
            return EmbeddedEngine(modules, case.data, [entrypoint], check_every=0, **settings)
        except PolicyError as error:
            if error.code != "policy.out-parameter":
                raise
            modules = [(path, assigned(text, error) if path == error.path else text) for path, text in modules]


def assigned(text: str, error: PolicyError) -> str:
    """The module with `f(x, out)`, at the place of the refusal, as `out = f(x)`."""
    start = offset_of(text, error.line, error.column)
    opening = text.index("(", start)
    commas, closing = _arguments(text, opening)
    last = commas[-1] if commas else opening + 1
    argument = text[last:closing].lstrip(",").strip()
    return f"{text[:start]}{argument} = {text[start:last]}{text[closing:]}"


def _arguments(text: str, opening: int) -> tuple[list[int], int]:
    """Where the commas between the arguments of a call are, and its end."""
    open_brackets: list[str] = []
    commas: list[int] = []
    for token in re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*|.', re.DOTALL).finditer(text, opening):
        match token[0]:
            case "(" | "[" | "{":
                open_brackets.append(CLOSING[token[0]])
            case ")" | "]" | "}":
                assert token[0] == open_brackets.pop()
                if not open_brackets:
                    return commas, token.start()
            case "," if len(open_brackets) == 1:
                commas.append(token.start())
    raise AssertionError(text)
