"""What the embedded engine bounds, and what it never lets out."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time

import pytest
from tests.pipeline.engines.asking import FAILURES, FORMS, answer, ask, engine_of

from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut
from pipeline.engines.embedded import EmbeddedEngine

CANARY = "canary-7f3a"


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    "rules",
    [
        "x := count([1 | some a in input.l; some b in input.l; some c in input.l; some d in input.l])",
        "x := count({[a, b, c] | some a in input.l; some b in input.l; some c in input.l})",
        "x if every a in input.l { every b in input.l { every c in input.l { every d in input.l { a + d > -1 } } } }",
        "x := count([1 | some a in input.l; some b in input.l; some c in input.l; a in input.l; b in input.l])",
        "x := f(f(f(f(1))))\nf(a) := count([1 | input.l[_] != input.l[_]; input.l[_] != a; input.l[_] != 7])",
    ],
)
@FORMS
def test_what_runs_for_ever_is_stopped_at_the_deadline_of_its_batch(rules: str, compiled: bool) -> None:
    engine = engine_of(rules, compiled=compiled)
    view = json.dumps({"l": list(range(200))}).encode()

    started = time.perf_counter()
    results = engine.evaluate(["data.t.x"] * 3, b"{}", [view] * 3, timeout_seconds=0.15)
    took = time.perf_counter() - started

    assert results == [TimedOut(), TimedOut(), TimedOut()]
    assert took < 0.15 + 1.0  # +0.1 on a quiet machine


@pytest.mark.spec("ENG-8")
def test_a_deadline_that_has_passed_judges_nothing() -> None:
    engine = engine_of("x := 1")

    assert engine.evaluate(["data.t.x"], b"{}", [b"{}"], timeout_seconds=0) == [TimedOut()]
    assert engine.evaluate(["data.t.x"], b"{}", [b"{}"], timeout_seconds=-1) == [TimedOut()]


FRACTIONS = """
import time
from cmf import adapters
from pipeline import Pipeline

body = {"model": "openai:m", "messages": [{"role": "user", "content": "hi"}]}
chat, pipeline = adapters.get("openai_chat"), Pipeline()
for field in ({}, {"series": [number + 0.5 for number in range(60_000)]}):
    begin = time.process_time()
    action = pipeline.run(chat.from_wire_request({**body, **field})).decision.action
took = time.process_time() - begin
print(action, took)
"""


@pytest.mark.spec("ENG-8")
def test_stack_traces_that_the_environment_asks_for_cost_an_evaluation_nothing() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FRACTIONS],
        env={**os.environ, "RUST_BACKTRACE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    action, took = ran.stdout.split()

    assert action == "forward"
    assert float(took) < 0.5  # each fraction asked for two traces, 12 microseconds each


def _doubling(start: str, step: str, last: str, count: int) -> str:
    lines = [f"x := {last}", f"s0 := {start}", *(f"s{n + 1} := {step.replace('S', f's{n}')}" for n in range(count))]
    return "\n".join(lines)


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("x := numbers.range(1, 1000000000)", "engine.builtin-limit"),
        ("x := numbers.range(1, input.n)", "engine.builtin-limit"),
        ("x := numbers.range(18446744073709551615, 9223372036854775807)", "engine.builtin-limit"),
        ('x := sprintf("%1000000000d", [1])', "engine.builtin-limit"),
        ("x := sprintf(input.f, [1])", "engine.builtin-limit"),
        ("x := bits.lsh(1, 4000000000)", "engine.builtin-limit"),
        ('x := split(input.long, "")', "engine.builtin-limit"),
        ('x := replace(input.long, "a", input.long)', "engine.builtin-limit"),
        ('x := regex.replace(input.long, "a", input.long)', "engine.builtin-limit"),
        (
            'x := regex.replace(input.long, "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")',
            "engine.builtin-limit",
        ),
        ('x := regex.find_n("", concat("", [input.long, input.long, input.long]), -1)', "engine.builtin-limit"),
        ('x := count(upper(concat("", [input.long | some i in numbers.range(1, 20)])))', "engine.builtin-limit"),
        (r'x := regex.match(`\pL{600}`, "a")', "engine.builtin-limit"),
        ('x := strings.replace_n({"a": input.long}, input.long)', "engine.builtin-limit"),
        (_doubling('"abcdefgh"', 'concat("", [S, S])', "count(s40)", 40), "engine.builtin-limit"),
        (_doubling("[1, 2]", "array.concat(S, S)", "count(s40)", 40), "engine.builtin-limit"),
        (_doubling("[1]", "[S, S]", "json.marshal(s60)", 60), "engine.builtin-limit"),
        (_doubling('{"k": input.n}', '{"a": S, "b": S}', "object.union(s60, s60)", 60), "engine.builtin-limit"),
        (_doubling('{"k": input.n}', '{"a": S, "b": S}', "object.union_n([s60, s60])", 60), "engine.builtin-limit"),
        (_doubling("[1]", "[S, S]", "s30", 30), "engine.result-too-large"),
        ("x := [input.long | some i in numbers.range(1, 20)]", "engine.result-too-large"),
        ('x := count([concat("", [input.long, "b"]) | some i in numbers.range(1, 200)])', "engine.memory"),
    ],
)
@FORMS
def test_no_builtin_makes_or_takes_without_bound(rules: str, code: str, compiled: bool) -> None:
    document = {"n": 10**12, "f": "%999999999d", "long": "a" * 1_200_000}

    result = ask(engine_of(rules, compiled=compiled), document, seconds=5)

    assert isinstance(result, Failed)
    assert result.code == code


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    "term",
    [
        "count(regex.find_n(`a[^c]*?END|a`, input.text, -1))",
        "count(regex.find_all_string_submatch_n(`(a)[^c]*?END|a`, input.text, -1))",
        "count(regex.split(`a[^c]*?END|a`, input.text))",
        'count(regex.replace(input.text, `(a)[^c]*?END|a`, "$1b"))',
        "count(indexof_n(input.text, substring(input.text, 0, 150000)))",
        'count(strings.replace_n({sprintf("a%d", [i]): "" | some i in numbers.range(1, 9000)}, input.text))',
    ],
    ids=["find", "groups", "split", "replace", "index", "replace_n"],
)
@FORMS
def test_a_builtin_ends_at_the_deadline_and_a_negation_of_it_does_not_hold(term: str, compiled: bool) -> None:
    engine = engine_of(f"x if not {term} == -1", compiled=compiled)

    started = time.process_time()
    result = ask(engine, {"text": "a" * 1_000_000}, seconds=0.3)
    took = time.process_time() - started

    assert result == TimedOut()
    assert took < 0.3 + 0.5


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    "term", ["regex.match(`[ab]*a[ab]{500}c`, input.text)", "regex.find_n(`[ab]*a[ab]{500}c`, input.text, 1) == []"]
)
@FORMS
def test_a_long_search_whose_states_do_not_fit_is_given_up(term: str, compiled: bool) -> None:
    letters = random.Random(29)
    engine = engine_of(f"x if not {term}", compiled=compiled)

    started = time.process_time()
    result = ask(engine, {"text": "".join(letters.choices("ab", k=4_000_000))}, seconds=5)
    took = time.process_time() - started

    assert isinstance(result, Failed)
    assert result.code == "engine.builtin-limit"
    assert took < 2  # 16 s when it is searched to the end


@pytest.mark.spec("ENG-8")
@FORMS
@pytest.mark.parametrize("term", ["object.union_n(input.objects)", "union({{number} | some number in input.numbers})"])
def test_a_union_of_many_takes_the_time_of_its_members_and_not_of_their_square(term: str, compiled: bool) -> None:
    document = {"numbers": list(range(20_000)), "objects": [{str(number): 1} for number in range(20_000)]}
    engine = engine_of(f"x := count({term})", compiled=compiled)

    assert ask(engine, document, seconds=5) == Decided(20_000)


@pytest.mark.spec("ENG-8")
def test_integers_that_square_themselves_are_stopped_in_both_forms() -> None:
    rules = _doubling("123456789012345678", "S * S", "s40", 40)

    compiled = ask(engine_of(rules), {}, seconds=0.1)
    interpreted = ask(engine_of(rules, compiled=False), {}, seconds=0.1)

    for result in (compiled, interpreted):
        assert isinstance(result, Failed)
        assert result.code == "engine.builtin-limit"


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    "pattern",
    ["(a+)+$", "(a|b)*a(a|b){14}c", "(.*?,){20}P", "[ab]*a[ab]{500}c"],
    ids=["nested", "dfa", "lazy", "counted"],
)
@FORMS
def test_no_pattern_backtracks(pattern: str, compiled: bool) -> None:
    rules = f"x := regex.match(`{pattern}`, input.text)"

    assert answer(rules, {"text": "ab," * 300_000}, compiled=compiled) == Decided(False)


@pytest.mark.spec("ENG-8")
def test_a_panic_inside_the_engine_is_a_failure_and_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    engine = engine_of("x := data.known[input.a]", compiled=False)
    views = [json.dumps({"a": {CANARY: 10**309}}).encode(), b'{"a": "map"}']

    results = engine.evaluate(["data.t.x"] * 2, b"{}", views, timeout_seconds=1)

    assert results == [Failed("engine.panic", "data.t.x"), Decided({"a": 1})]
    assert capfd.readouterr() == ("", "")


def _deep_rules() -> str:
    nested = "abs(" * 27
    lines = [f"f{n}(a) := {nested}f{n - 1}(a){')' * 27}" for n in range(1, 63)]
    return "\n".join(["x := f62(1)", "f0(a) := a", *lines])


@pytest.mark.spec("ENG-8")
@FORMS
def test_the_deepest_set_that_loads_runs_on_the_smallest_thread(compiled: bool) -> None:
    engine = engine_of(_deep_rules(), compiled=compiled)
    results: list[EngineResult] = []
    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: results.append(ask(engine, {}, seconds=5)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)

    assert results == [Decided(1)]


@pytest.mark.spec("ENG-8")
@FORMS
def test_values_inside_each_other_a_hundred_thousand_deep_do_not_overflow(compiled: bool) -> None:
    wraps = "\n".join(f"f{n + 1}(a) := f{n}(f{n}(a))" for n in range(17))
    engine = engine_of(f"x := f17([1]) == 1\nf0(a) := [a]\n{wraps}", compiled=compiled)

    assert ask(engine, {}, seconds=5) in (Decided(False), TimedOut())


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize("start", ["[1]", "[input.n]"], ids=["constant", "of-input"])
def test_a_set_is_let_go_on_the_smallest_thread_whatever_it_holds(start: str) -> None:
    wraps = "\n".join(f"f{n + 1}(a) := f{n}(f{n}(a))" for n in range(14))
    held = [engine_of(f"x := c == 1\nc := f14({start})\nf0(a) := [a]\n{wraps}")]
    assert ask(held[0], {"n": 1}, seconds=5) == Decided(False)
    size = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(size)

    assert held == []


@pytest.mark.spec("ENG-9")
@pytest.mark.parametrize(("rules", "_code"), FAILURES)
@FORMS
def test_no_failure_quotes_the_input(
    rules: str, _code: str, compiled: bool, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUST_BACKTRACE", "1")
    engine = engine_of(rules, compiled=compiled)

    results = [ask(engine, {"n": n, "s": s}) for n, s in [(1, CANARY), (CANARY, CANARY), ([CANARY], {CANARY: CANARY})]]

    assert CANARY not in repr(results)
    assert capfd.readouterr() == ("", "")


@pytest.mark.spec("ENG-9")
@pytest.mark.parametrize(
    "view", [f'{{"{CANARY}": 1, "{CANARY}": 2}}', f'{{"a": {CANARY}}}', f'{{"a": "{CANARY}\\ud800"}}']
)
def test_no_refusal_of_an_input_quotes_it(view: str) -> None:
    result = engine_of("x := 1").evaluate(["data.t.x"], b"{}", [view.encode()], timeout_seconds=1)

    assert CANARY not in repr(result)


@pytest.mark.spec("ENG-8")
@FORMS
def test_memory_stays_flat_over_many_evaluations(compiled: bool) -> None:
    engine = engine_of("x := {upper(w) | some w in input.words; regex.match(`^[a-z]`, w)}", compiled=compiled)
    view = json.dumps({"words": [f"word{n}" for n in range(50)]}).encode()
    _evaluate_times(engine, view, 2_000)

    before = _resident_bytes()
    _evaluate_times(engine, view, 18_000)

    assert _resident_bytes() - before < 8_000_000


def _evaluate_times(engine: EmbeddedEngine, view: bytes, times: int) -> None:
    for _ in range(times // 20):
        engine.evaluate(["data.t.x"] * 20, b"{}", [view] * 20, timeout_seconds=5)


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
