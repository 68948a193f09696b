"""Numbers in the embedded engine and in OPA: the same answer, a failure, or the exact one where OPA rounds."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, trunc
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.pipeline.engines.asking import engine_of

from pipeline.decisions.engine import Decided, EngineResult, Failed, Undefined

ROWS: Final = 120
"""Cases for each term and way of reading its numbers, at full size."""
WAYS: Final = {
    "input": ("{0}.a", "{0}.b"),
    "to_number": ("to_number({0}.text_a)", "to_number({0}.text_b)"),
    "unmarshal": ("json.unmarshal({0}.text_a)", "json.unmarshal({0}.text_b)"),
}
EXACT: Final[Mapping[str, Callable[[Fraction, Fraction], Any]]] = {
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a / b": lambda a, b: a / b,
    "(a + b) * 2 - b": lambda a, b: 2 * a + b,
    "sum([a, b, 1])": lambda a, b: a + b + 1,
    "sum({a, b})": lambda a, b: a if a == b else a + b,
    "product([a, b, 2])": lambda a, b: a * b * 2,
    "abs(a)": lambda a, _: abs(a),
    "ceil(a)": lambda a, _: Fraction(ceil(a)),
    "floor(a)": lambda a, _: Fraction(floor(a)),
    "round(a)": lambda a, _: Fraction(floor(a + Fraction(1, 2)) if a > 0 else ceil(a - Fraction(1, 2))),
    "format_int(a, 10)": lambda a, _: format(trunc(a), "d"),
    "format_int(a, 16)": lambda a, _: format(trunc(a), "x"),
    "format_int(a, 8)": lambda a, _: format(trunc(a), "o"),
    "format_int(a, 2)": lambda a, _: format(trunc(a), "b"),
    "json.unmarshal(json.marshal([a, b]))": lambda a, b: [a, b],
}
"""Terms that OPA may round, or spell in another way, each with its exact value."""
SAME: Final = (
    "a % b",
    *(f"a {sign} b" for sign in ("<", "<=", ">", ">=", "==", "!=")),
    "max([a, b])",
    "min({a, b})",
    "sort([a, b, 1.5])",
    "count({a, b})",
    "numbers.range(a, a + 2)",
    "numbers.range_step(a, a + 4, 2)",
    "[a, b]",
    "array.concat([a], [b])",
    "a in [b, 1]",
    "{a: 1}[b]",
    'object.get({a: "x"}, b, "none")',
    "{a} & {b}",
    "{a, 1} - {b}",
    "bits.and(a, b)",
    "bits.lsh(a, 3)",
    "type_name(a)",
    "[n | some n in [a, b]; n > 0]",
)
TERMS: Final = (*EXACT, *SAME)
USUAL: Final = (
    *("0", "-0", "0.0", "-0.0", "1.0", "1e2", "1E2", "1e-7", "10.50", "1.10", "100e-2", "5.0", "2e0", "123e20"),
    *("9007199254740993", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("18446744073709551615", "18446744073709551616", "1e21", "1e22", "1e23", "1e308", "1e-320"),
    *("754324937200851e4", "-75432493720085.1e5", "1e18", "9007199254740993e0"),
    *("0.1", "0.2", "0.3", "4.35", "0.5", "1.5", "2.5", "-0.5", "-1.5"),
)


class Case(NamedTuple):
    """One term, how its numbers are read, and their texts."""

    term: str
    way: str
    a: str
    b: str

    @property
    def document(self) -> str:
        texts = f'"rule": "{self.rule}", "text_a": "{self.a}", "text_b": "{self.b}"'
        return f'{{"a": {self.a}, "b": {self.b}, {texts}}}'

    @property
    def rule(self) -> str:
        return f"x_{TERMS.index(self.term)}_{self.way}"


class Spelt(str):
    """A number as OPA writes it."""


@pytest.mark.opa
@pytest.mark.proof
@pytest.mark.spec("ENG-20")
def test_made_up_numbers_are_those_of_opa_or_exact_or_refused(
    opa_binary: Path, tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    rng = random.Random(proof_seed)
    cases = [
        Case(term, way, a := _number(rng), a if rng.random() < 0.1 else _number(rng))
        for term in TERMS
        for way in WAYS
        for _ in range(int(ROWS * proof_scale))
    ]
    theirs = _said_by_opa(opa_binary, tmp_path, cases)
    counts: Counter[str] = Counter()

    for compiled in (True, False):
        for at, (case, result) in enumerate(zip(cases, _said_by_us(cases, compiled=compiled), strict=True)):
            how = _compared(case, result, theirs.get(at))
            assert how is not None, f"{case}: {result}, and OPA says {theirs.get(at)!r}"
            counts[how] += 1

    proof_row("numbers are those of OPA, exact, or refused", **counts)
    assert set(counts) == {"same", "exact", "refused"}
    assert counts["same"] > counts["refused"]


@pytest.mark.spec("ENG-20")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("term", ["numbers.range(a, b)", "numbers.range_step(a, b, 2.0)"])
def test_a_range_of_doubles_to_which_one_adds_nothing_ends(term: str, compiled: bool) -> None:
    rule = f"found := v if {{\n\ta := input.a\n\tb := input.b\n\tv := {term}\n}}\n"
    engine = engine_of(rule, "found", compiled=compiled)

    results = engine.evaluate(
        ["data.t.found"] * 2,
        b"{}",
        [b'{"a": 9007199254740992.0, "b": 9007199254740994e0}', b'{"a": 1e22, "b": 1e23}'],
        timeout_seconds=5,
    )

    step = 2 if "step" in term else 1
    assert isinstance(results[0], Decided)
    assert results[0].value == list(range(2**53, 2**53 + 3, step))
    assert isinstance(results[1], Failed)


def _number(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.5:
        return str(rng.randint(-12, 12)) if kind < 0.3 else rng.choice(USUAL)
    digits = str(rng.randint(1, 10 ** rng.choice([1, 2, 4, 8, 15, 17, 19, 20, 25, 40])))
    if rng.random() < 0.4:
        point = rng.choice([1, 2, 3, 6])
        digits = digits.rjust(point + 1, "0")
        digits = f"{digits[:-point]}.{digits[-point:]}"
    exponent = f"e{rng.randint(-12, 12)}" if rng.random() < 0.1 else ""
    return f"{rng.choice(['', '-'])}{digits}{exponent}"


def _said_by_opa(binary: Path, folder: Path, cases: list[Case]) -> dict[int, Any]:
    """What OPA says of each case, by its number, all in one run; nothing of a case that has no value."""
    rules = [
        f'x[i] := v if {{\n\tsome i, c in input\n\tc.rule == "{Case(term, way, "", "").rule}"\n'
        f"\ta := {reads[0].format('c')}\n\tb := {reads[1].format('c')}\n\tv := {term}\n}}\n"
        for term in TERMS
        for way, reads in WAYS.items()
    ]
    (folder / "t.rego").write_text("package t\n\n" + "\n".join(rules))
    (folder / "input.json").write_text(f"[{','.join(case.document for case in cases)}]")
    arguments = ["eval", "-f", "json", "-d", folder / "t.rego", "-i", folder / "input.json", "data.t.x"]
    run = subprocess.run([binary, *arguments], capture_output=True, check=True, timeout=120)
    (row,) = json.loads(run.stdout, parse_int=Spelt, parse_float=Spelt)["result"]
    return {int(at): value for at, value in row["expressions"][0]["value"].items()}


def _said_by_us(cases: list[Case], *, compiled: bool) -> list[EngineResult]:
    rules = [
        f"{Case(term, way, '', '').rule} := v if {{\n\ta := {reads[0].format('input')}\n"
        f"\tb := {reads[1].format('input')}\n\tv := {term}\n}}\n"
        for term in TERMS
        for way, reads in WAYS.items()
    ]
    names = [Case(term, way, "", "").rule for term in TERMS for way in WAYS]
    engine = engine_of("\n".join(rules), *names, compiled=compiled)
    return engine.evaluate(
        [f"data.t.{case.rule}" for case in cases],
        b"{}",
        [case.document.encode() for case in cases],
        timeout_seconds=5,
    )


def _compared(case: Case, result: EngineResult, theirs: Any) -> str | None:
    """How the answer stands to OPA's, where None is no value; None if it is another one that is not exact."""
    if isinstance(result, Failed):
        return "refused"
    if isinstance(result, Undefined):
        return "same" if theirs is None else None
    assert isinstance(result, Decided)
    value = _valued(result.value)
    if theirs is not None and value == _valued(theirs):
        return "same"
    if case.term not in EXACT:
        return None
    wanted = EXACT[case.term](Fraction(Decimal(case.a)), Fraction(Decimal(case.b)))
    if case.term == "a / b" and value != wanted:
        return "exact" if result.value == float(wanted) else None
    return "exact" if value == wanted else None


def _valued(value: Any) -> Any:
    """A value with each number as the exact one that it is written as."""
    if isinstance(value, Spelt):
        return Fraction(Decimal(value))
    if isinstance(value, list | tuple):
        return [_valued(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _valued(item) for key, item in value.items()}
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return Fraction(Decimal(repr(value))) if is_number else value
