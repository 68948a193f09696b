"""The embedded engine held to OPA's own conformance cases, in both forms and with both ways of builtin errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import pytest
from tests.conftest import ROOT
from tests.pipeline.engines.opa_cases import ASKED, Case, Rows, conformance_cases, engine_for, needs_no_input

from pipeline.decisions.engine import Decided, Failed, Undefined
from pipeline.decisions.errors import EngineError, PolicyError
from pipeline.engines.embedded import EmbeddedEngine

DIFFERENCES: Final = (ROOT / "docs/spec/engines.md").read_text(encoding="utf-8").partition("## Where engines differ")[2]

REFUSED: Final = {
    "policy.arity": 28,  # an output argument in a negation; `[path, value] := walk(x)`
    "policy.banned-builtin": 636,
    "policy.data-conflict": 1,
    "policy.import": 12,  # future.keywords.not
    "policy.nesting": 3,
    "policy.number": 2,  # beyond 1e308
    "policy.parse keywordrefs": 70,  # rules whose names begin with a keyword
    "policy.parse logic_operators": 145,  # `and`, `or`
    "policy.parse negation": 7,  # `not { … }`
    "policy.parse sprintf": 1,  # 2e308
    "policy.parse stringinterpolation": 53,  # $"…"
    "policy.recursion": 3,  # `data` as a whole
    "policy.unsupported": 29,
    "policy.with-function": 44,
}
"""Cases that are refused at load, by the code of the refusal; what is no Rego here, by its folder.

Another number is a refusal that is new, or one less: see that it is meant, and correct the number.
"""

FAILED: Final = {
    "engine.bad-result": 2,  # a package of functions alone, read as a whole
    "engine.builtin-error": 12,  # where builtin errors are strict and the case is of an OPA where they are not
    "engine.builtin-limit": 3,  # numbers beyond 1e308
}
"""Cases that fail closed where OPA has an answer or none."""

KNOWN: Final = {
    "defaultkeyword/function with var arg, ref head": "a package, or a name above rules, read as a whole",
    "sprintf/float/exponent": "as the number is spelled",
}
"""Cases whose answer is another, each of a row of "Where engines differ"."""


class Answer(NamedTuple):
    """What became of a case in one way of asking: `same`, `refused`, `failed`, or `different`, and how."""

    kind: str
    detail: str = ""


@pytest.mark.spec("ENG-11")
def test_opas_own_cases_are_answered_alike_or_refused(proof_row: Callable[..., None]) -> None:
    kinds: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    different: dict[str, list[str]] = {}
    for case in conformance_cases():
        if needs_no_input(case):
            kinds["about a missing input"] += 1
            continue
        answers = list(asked(case))
        kinds[max((answer.kind for answer in answers), key=("same", "failed", "refused", "different").index)] += 1
        refused.update({answer.detail for answer in answers if answer.kind == "refused"})
        failed.update({answer.detail for answer in answers if answer.kind == "failed"})
        found = [answer.detail for answer in answers if answer.kind == "different"]
        if found:
            different[case.note] = found

    proof_row("OPA's conformance cases are answered alike, refused or fail closed", **kinds)
    assert {note: details for note, details in different.items() if note not in KNOWN} == {}
    assert set(different) == set(KNOWN)
    assert all(row in DIFFERENCES for row in KNOWN.values())
    assert dict(refused) == REFUSED
    assert dict(failed) == FAILED


def asked(case: Case) -> Iterator[Answer]:
    """The case asked as the entrypoint of a set, in both forms, and by the query API."""
    for strict in {True, case.strict}:
        try:
            yield from of_rule(case, strict=strict)
            if strict == case.strict:
                yield of_query(case, strict=strict)
        except PolicyError as error:
            yield Answer("refused", error.code if error.code != "policy.parse" else f"{error.code} {case.folder}")


def of_rule(case: Case, *, strict: bool) -> Iterator[Answer]:
    for use_compiled in (True, False):
        settings = {"strict_builtin_errors": strict, "use_compiled": use_compiled}
        engine, entrypoint, name = entered(case, **settings)
        if use_compiled and engine.form != "compiled":
            continue
        (result,) = engine.evaluate([entrypoint], b"{}", [json.dumps(case.input).encode()], timeout_seconds=5)
        match result:
            case Decided(value):
                yield judged(case, [{name: value}] if name else value, strict=strict)
            case Undefined():
                yield judged(case, [], strict=strict)
            case Failed(code):
                yield failure(case, code)
            case _:
                yield Answer("failed", "timeout")


def entered(case: Case, **settings: Any) -> tuple[EmbeddedEngine, str, str]:
    """An engine, its entrypoint, and the variable that its value is for; none if it gives rows."""
    if case.rule is not None:
        path, name = case.rule
        try:
            return engine_for(case, case.modules, path, **settings), path, name
        except PolicyError as error:
            if error.code != "policy.no-entrypoint":
                raise
    return engine_for(case, case.wrapped, ASKED, **settings), ASKED, ""


def of_query(case: Case, *, strict: bool) -> Answer:
    modules = [*case.modules, ("asked.rego", "package asked\n\nanswers := data.nothing_is_there\n")]
    engine = engine_for(case, modules, ASKED, strict_builtin_errors=strict, use_compiled=False)
    query = f"{case.query} with input as {case.term}" if case.term else case.query
    try:
        result = engine.query(query, case.input)
    except EngineError as error:
        return failure(case, error.code)
    return judged(case, [row.get("bindings", {}) for row in result.get("result", [])], strict=strict)


def failure(case: Case, code: str) -> Answer:
    return Answer("same") if case.want is None else Answer("failed", code)


def judged(case: Case, rows: Rows, *, strict: bool) -> Answer:
    if case.want is not None and texts(case, rows) == texts(case, case.want):
        return Answer("same")
    return Answer("different", f"{rows} and not {case.want}, {strict=}")


def texts(case: Case, rows: Rows) -> set[str]:
    return {json.dumps(in_order(row) if case.sorts else plain(row), sort_keys=True) for row in rows}


def in_order(value: Any) -> Any:
    """Without the order of arrays."""
    if isinstance(value, list):
        return sorted(map(in_order, value), key=lambda one: json.dumps(one, sort_keys=True))
    return {key: in_order(one) for key, one in value.items()} if isinstance(value, dict) else plain(value)


def plain(value: Any) -> Any:
    """With whole numbers as such: 1.0 is 1."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
