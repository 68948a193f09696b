"""Rules that no input can change, evaluated ahead."""

from __future__ import annotations

import time

import pytest
from tests.pipeline.engines.asking import answer, ask, engine_of

from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.decisions.errors import PolicyError

ENDLESS = """
ten := numbers.range(1, 10)
slow := count([1 | some a in ten; some b in ten; some c in ten; some d in ten; some e in ten; some f in ten
    some g in ten; some h in ten; a + b + c + d + e + f + g + h < 0])
"""


@pytest.mark.spec("ENG-17")
def test_a_rule_that_fails_without_input_fails_only_where_it_is_asked_for() -> None:
    engine = engine_of("bad := 1 / 0\nx := bad if input.ask\ny := 1 if input\nx := 2 if not input.ask", "x", "y")

    assert isinstance(ask(engine, {"ask": True}), Failed)
    assert ask(engine, {"ask": False}) == Decided(2)
    assert ask(engine, {}, "y") == Decided(1)


@pytest.mark.spec("ENG-17")
def test_a_rule_that_takes_long_without_input_keeps_no_set_from_loading() -> None:
    engine = engine_of(f"{ENDLESS}\nx := slow if input.ask\nx := 2 if not input.ask")

    assert ask(engine, {"ask": False}) == Decided(2)
    assert isinstance(ask(engine, {"ask": True}, seconds=0.2), TimedOut)


@pytest.mark.spec("ENG-17")
@pytest.mark.parametrize(
    "rules",
    [
        "a := {1, 2}\nx := [v | some v in a] if input",
        "a contains 1\na contains 2\nx := count(a) if input.n",
        "f(v) := v + 1\na := f(1)\nx := a + input.n",
        "f(v) := v + input.n\na := f(1)\nx := a",
        "a := data.known.list\nx := a[input.n]",
        "a[k] := v if some k, v in data.known.map\nx := a if input.n",
        "default a := 3\nx := a + input.n",
        "a := 1 if data.missing\nx := 1 if not a\nx := 2 if a",
        "a := 1 if data.missing else := 2 if data.known\nx := a + input.n",
        "a := b\nb := input.n\nx := a",
        "a if input.n == 1\nx := 5 if not a\nx := 6 if a",
    ],
)
def test_what_was_evaluated_ahead_gives_what_the_interpreter_gives(rules: str) -> None:
    documents = [{"n": 0}, {"n": 1}, {}]
    compiled = engine_of(rules, compiled=True)
    assert compiled.form == "compiled"
    interpreted = engine_of(rules, compiled=False)

    for document in documents:
        assert ask(compiled, document) == ask(interpreted, document)


@pytest.mark.spec("ENG-17")
def test_a_rule_without_input_and_value_stays_undefined() -> None:
    assert answer("a := 1 if data.missing\nx := a if input", {}) == Undefined()


def _doubled(times: int, last: str) -> str:
    return "\n".join([last, "s0 := [1]", *(f"s{n + 1} := [s{n}, s{n}]" for n in range(times))])


@pytest.mark.spec("ENG-17")
@pytest.mark.parametrize("times", [30, 60])
@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("x := t\nt := {}", Failed("engine.result-too-large", "data.t.x")),
        ('x := u.a\nu := {{"a": {}}}', Failed("engine.result-too-large", "data.t.x")),
        ("x := count({})", Decided(2)),
        ("x := y\ny if {} == t\nt := [v, v]\nv := [2]", Undefined()),
    ],
)
def test_a_value_that_doubles_with_each_rule_neither_holds_up_loading_nor_leaves(
    last: str, expected: EngineResult, times: int
) -> None:
    started = time.perf_counter()
    engine = engine_of(_doubled(times, last.format(f"s{times}")))
    took = time.perf_counter() - started

    assert engine.form == "compiled"
    assert ask(engine, {}, seconds=5) == expected
    assert took < 1


@pytest.mark.spec("ENG-17")
def test_what_asks_for_such_a_value_is_not_evaluated_ahead() -> None:
    """That would compare them at each place."""
    doubled = _doubled(60, "")

    engine = engine_of(f"{doubled}\n{doubled.replace('s', 't')}\nx if {{ input.n; y }}\ny if s60 == t60")

    assert ask(engine, {"n": False}) == Undefined()


@pytest.mark.spec("ENG-3")
def test_values_that_double_two_hundred_times_are_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        engine_of(_doubled(200, "x := s200"))

    assert caught.value.code == "policy.call-depth"


NOTHING = 'none := []\nempty := {}\nwords := {"a"}\nn := 2\n'


@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize(
    "rules",
    [
        "x contains 1 if { count(none) > 0; input.n }\nx contains 2 if input.n",
        "x contains 1 if { count(words) > 0; input.n }",
        "x contains 1 if { not input.n; some _ in none }\nx contains 2 if { some k, v in empty; input[k] == v }",
        'x contains 1 if { not "a" in words; input.n }\nx contains 2 if { "a" in words; input.n }',
        "a if { count(none) > 0; input.n }\nx := 1 if not a\nx := 2 if a",
        "default a := 3\na := input.n if count(none) > 0\nx := a + input.n",
        "a := input.n if count(none) > 0\nx := [a | input.n]",
        "a contains 1 if { data.known.list[5]; input.n }\nb contains 2 if { some _ in a; input.n }\nx := b | {input.n}",
        "x contains 1 if { data.known.map.a > n; input.n }\nx contains 2 if { n > data.known.map.a; input.n }",
        "x if { every v in none { v == input.n }; input }",
        "x contains 1 if { v := input.n; count(none) > v }",
    ],
)
def test_a_body_that_data_rules_out_gives_what_the_interpreter_gives(rules: str) -> None:
    compiled, interpreted = (engine_of(NOTHING + rules, compiled=is_compiled) for is_compiled in (True, False))

    assert compiled.form == "compiled"
    for document in ({"n": 0}, {"n": 1}, {}):
        assert ask(compiled, document) == ask(interpreted, document)


@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize("body", ["input.n / 0 > 1; count(none) > 0", "count(n) > 0; input.n"])
def test_a_body_that_fails_otherwise_fails(body: str) -> None:
    assert isinstance(ask(engine_of(f"{NOTHING}x := 1 if {{ {body} }}"), {"n": 1}), Failed)
