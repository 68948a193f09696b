"""Numbers are exact, or they are refused: never rounded without a word."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any, Final

import pytest
from tests.pipeline.engines.asking import FORMS, answer, ask, engine_of

from cmf import Message, TextPart
from pipeline import Guard
from pipeline.decisions.engine import Decided, Failed
from pipeline.decisions.errors import PolicyError

CAP: Final = """# METADATA
# title: At most 20 coins
# description: At most 20 coins, in units of 10^-18.
# custom:
#   code: pay.cap
#   severity: high
#   kinds: [text]
package cmf.rules.pay.cap

deny contains {"code": "pay.cap", "reason": "Too much."} if {
	not _fits
}

_fits if READ(input.content) <= READ("20000000000000000000")
"""


@pytest.mark.spec("ENG-20")
@pytest.mark.parametrize("read", ["to_number", "json.unmarshal"])
@pytest.mark.parametrize(("amount", "verdict"), [("20000000000000000001", "deny"), ("20000000000000000000", "allow")])
def test_an_amount_beyond_64_bits_is_held_to_its_cap(tmp_path: Path, read: str, amount: str, verdict: str) -> None:
    rule = tmp_path / "cmf/rules/pay/cap/cap.rego"
    rule.parent.mkdir(parents=True)
    rule.write_text(CAP.replace("READ", read))

    decision = Guard(str(tmp_path)).decide(Message(role="user", content=[TextPart(text=amount)]))

    assert decision.verdict == verdict


@pytest.mark.spec("ENG-20")
@FORMS
@pytest.mark.parametrize(
    "term",
    [
        'to_number("0.30000000000000000001")',
        'json.unmarshal("0.30000000000000000001")',
        'json.unmarshal("[1e400]")',
        "0.1234567890123456 * 0.1234567890123456",
        "123456789012345.67 + 0.0000001",
        "9007199254740993 / 9007199254740992",
        "1000000000000000000000000000001 / 3",
        "(1 / 3) * 3",
        "sum([123456789012345.67, 0.0000001])",
        "format_int(input.large, 2)",
    ],
)
def test_what_cannot_be_held_exactly_is_refused_and_never_undefined(term: str, compiled: bool) -> None:
    engine = engine_of(f"x if not {term} == -1", compiled=compiled, strict_builtin_errors=False)

    result = ask(engine, {"large": 1e300})

    assert isinstance(result, Failed)
    assert result.code == "engine.builtin-limit"


@pytest.mark.spec("ENG-20")
@pytest.mark.parametrize("number", ["0.30000000000000000001", "18446744073709551617.0", "123456789.12345678901"])
def test_a_number_of_a_policy_or_its_input_that_cannot_be_held_is_refused(number: str) -> None:
    engine = engine_of("x := input.n")

    with pytest.raises(PolicyError) as caught:
        engine_of(f"x := {number}")

    assert caught.value.code == "policy.number"
    (result,) = engine.evaluate(["data.t.x"], b"{}", [f'{{"n": {number}}}'.encode()], timeout_seconds=1)
    exact = number == "18446744073709551617.0"  # whole, and held as such
    assert result == (Decided(18446744073709551617) if exact else Failed("input.number", "view, byte 6"))


@pytest.mark.spec("ENG-20")
@FORMS
@pytest.mark.parametrize(
    ("term", "value"),
    [
        ("input.a + input.b == 0.3", True),
        ("input.a + 3.3 == 3.4", True),
        ("4.35 * 100 == 435", True),
        ("sum([0.1, 0.2, 0.3])", 0.6),
        ("product([0.1, 0.2])", 0.02),
        ("(1 + 2.5) * (3 - 4) - 10 / 4", -6),
        ("36893488147419103233 / 3", 12297829382473034411),
        ("18446744073709551617 % 2", 1),
        ("20000000000000000000.5 > 1", None),
        ("1e23 == 100000000000000000000000", True),
        ("[n | some n in [1, 2]; n -1 > 0]", [2]),
        ("{1, 2} - {2}", [1]),
        ("1 / 3", 1 / 3),
        ("input.c + 1", 7543249372008510001),
        ("sum([input.c, 1])", 7543249372008510001),
        ("input.c % 1000", 0),
        ("format_int(-0.5, 2)", "0"),
    ],
)
def test_arithmetic_is_that_of_decimals(term: str, value: object, compiled: bool) -> None:
    if value is None:
        with pytest.raises(PolicyError):
            engine_of(f"x := {term}", compiled=compiled)
        return

    assert answer(f"x := {term}", {"a": 0.1, "b": 0.2, "c": 7543249372008510000.0}, compiled=compiled) == Decided(value)


@pytest.mark.spec("ENG-20")
@FORMS
def test_doubles_that_are_passed_on_come_out_as_they_went_in(compiled: bool) -> None:
    numbers = [0.36712383142708804, 904934776.5365391, 123456789012345.67, 1000000000000000.2, 1.1, 100.0, -0.0, 5e-324]
    letters = random.Random(14)
    numbers += [letters.uniform(-1, 1) * 10.0 ** letters.randint(-20, 14) for _ in range(2_000)]
    engine = engine_of("x := object.union(input, {})", compiled=compiled)

    result = ask(engine, {"numbers": numbers})

    assert isinstance(result, Decided)
    assert [repr(number) for number in result.value["numbers"]] == [repr(number) for number in numbers]


@pytest.mark.spec("ENG-20")
@pytest.mark.proof
def test_made_up_arithmetic_is_exact_or_refused(
    proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    rng = random.Random(proof_seed)
    signs = ["+", "-", "*", "/", "%"]
    operations = [(_number(rng), sign, _number(rng)) for sign in signs for _ in range(int(4_000 * proof_scale))]
    rules = [f"x := to_number(input.a) {sign} to_number(input.b)" for sign in signs]
    engines = [engine_of(rule, compiled=form) for rule in rules for form in (True, False)]
    counts = {"exact": 0, "refused": 0, "rounded quotients": 0}

    for left, sign, right in operations:
        place = 2 * signs.index(sign)
        compiled, interpreted = (ask(engine, {"a": left, "b": right}) for engine in engines[place : place + 2])
        assert type(compiled) is type(interpreted)
        counts[_judged(left, sign, right, compiled)] += 1

    proof_row("arithmetic is exact or refused", **counts)
    assert min(counts.values()) > 0


def _number(rng: random.Random) -> str:
    digits = str(rng.randint(1, 10 ** rng.choice([1, 3, 8, 16, 25])))
    point = rng.choice([0, 0, 1, 2, 6])
    whole, fraction = digits[: len(digits) - point] or "0", digits[len(digits) - point :].rjust(point, "0")
    return rng.choice(["", "-"]) + (f"{whole}.{fraction}" if point else digits)


def _judged(left: str, sign: str, right: str, result: Any) -> str:
    """How the result stands to the exact one; fails if it is another number."""
    with localcontext() as context:
        context.prec = 200
        pair = Decimal(left), Decimal(right)
        if isinstance(result, Failed):
            return "refused"
        assert isinstance(result, Decided)
        value = Decimal(repr(result.value)) if isinstance(result.value, float) else Decimal(result.value)
        exact = {"+": pair[0] + pair[1], "-": pair[0] - pair[1], "*": pair[0] * pair[1]}.get(sign)
        if sign == "%":
            exact = pair[0] % pair[1]
        if sign == "/":
            exact = pair[0] / pair[1]
            if value != exact:
                assert result.value == float(exact)
                return "rounded quotients"
        assert value == exact
        return "exact"
