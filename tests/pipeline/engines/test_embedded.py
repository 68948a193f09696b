"""The embedded engine: what it refuses, what it answers, what it never lets out."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.engines import embedded
from pipeline.engines.base import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.engines.embedded import EmbeddedEngine, allowed_builtins, revision_of
from pipeline.errors import EngineError, PolicyError

CANARY = "canary-7f3a"
FORMS = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])


def engine_of(
    rules: str, *names: str, compiled: bool = True, check_every: int = 0, **settings: object
) -> EmbeddedEngine:
    """An engine of one module, `t.rego`, package `t`; entrypoints by rule name, `x` if none is given."""
    modules = [("t.rego", f"package t\n\n{rules}\n")]
    entrypoints = [f"data.t.{name}" for name in names or ("x",)]
    return EmbeddedEngine(
        modules,
        {"known": {"list": [1, 2], "map": {"a": 1}}},
        entrypoints,
        use_compiled=compiled,
        check_every=check_every,
        **settings,  # type: ignore[arg-type]
    )


def ask(engine: EmbeddedEngine, document: object, name: str = "x", *, seconds: float = 1.0) -> EngineResult:
    return engine.evaluate([f"data.t.{name}"], b"{}", [json.dumps(document).encode()], timeout_seconds=seconds)[0]


def answer(rules: str, document: object, *, compiled: bool = True) -> EngineResult:
    return ask(engine_of(rules, compiled=compiled), document)


# -- what it refuses to load -------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-2")
@pytest.mark.parametrize(
    "call",
    [
        "http.send({})",
        "opa.runtime()",
        'rand.intn("a", 5)',
        'uuid.rfc4122("a")',
        "time.now_ns()",
        'trace("a")',
        "print(1)",
        'io.jwt.decode("a")',
        'crypto.md5("a")',
        'units.parse("1e999999999")',
        'net.cidr_expand("0.0.0.0/0")',
        'strings.count("a", "")',
        'yaml.unmarshal("a")',
        "__builtin_sets.union({1}, {2})",
    ],
)
def test_a_builtin_that_is_not_on_the_list_is_refused_where_it_stands(call: str) -> None:
    with pytest.raises(PolicyError) as error:
        engine_of(f"x if {{\n  input.a\n  {call}\n}}")

    assert (error.value.code, error.value.path, error.value.line) == ("policy.banned-builtin", "t.rego", 5)
    assert error.value.column == 3


@pytest.mark.spec("ENG-2")
@pytest.mark.parametrize(
    "rules",
    [
        "x := [y | y := http.send({})]",
        "x if every y in input.a { http.send(y) }",
        "x if { not http.send({}) }",
        'x := {"a": {http.send({})}}',
        "f(a) := http.send(a)\nx := 1",
        "x := 1 if false else := http.send({})",
        "default x := false\nx if input.a[http.send({})]",
        "import data.http\nx := http.send({})",
    ],
)
def test_a_banned_builtin_hides_nowhere(rules: str) -> None:
    with pytest.raises(PolicyError) as error:
        engine_of(rules)

    assert error.value.code in {"policy.banned-builtin", "policy.unknown-function"}


@pytest.mark.spec("ENG-2")
def test_a_function_cannot_be_replaced_with_another() -> None:
    with pytest.raises(PolicyError, match=r"policy\.with-function"):
        engine_of("x := y if y := count([1]) with count as http.send")


@pytest.mark.spec("ENG-2")
def test_the_published_capabilities_are_the_list_and_the_operators() -> None:
    with open("policies/capabilities.json", encoding="utf-8") as file:
        published = {builtin["name"]: builtin for builtin in json.load(file)["builtins"]}
    operators = {name for name, builtin in published.items() if "infix" in builtin}

    called = {name for name in published if name not in operators and not name.startswith("internal.")}

    assert called == set(allowed_builtins())


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("f(a) := f(a - 1)\nx := f(1)", "policy.recursion"),
        ("f(a) := g(a)\ng(a) := f(a)\nx := 1", "policy.recursion"),
        ("p if q\nq if p\nx if p", "policy.recursion"),
        ("x := [y | y := x]", "policy.recursion"),
        ("x if data.t[input.name]", "policy.recursion"),
        ("\n".join(["x := r70", "r0 := 1", *(f"r{n} := r{n - 1}" for n in range(1, 71))]), "policy.call-depth"),
        (f"x := {'[' * 5_000}{']' * 5_000}", "policy.nesting"),
        (f"x := {'[' * 22}{']' * 22}", "policy.nesting"),
        ("x := 1\n" + "\n".join(f"y{n} := {'[' * 9}{']' * 9}" for n in range(200)), "policy.nesting"),
        ("x := 1e999999999", "policy.number"),
        (f"x := {'9' * 900}", "policy.number"),
        (f"x := {'(' * 40}1{')' * 40}", "policy.parse"),
        ("x := ]", "policy.parse"),
        ("x if y", "policy.analysis"),
        ("x := nowhere(1)", "policy.unknown-function"),
        ("x := count(1, 2, 3)", "policy.arity"),
        ("f(a) := a\nx := f(1, 2)", "policy.arity"),
        ("x if walk(input)", "policy.arity"),
        ("x if count(input.a, n)", "policy.out-parameter"),
        ("f(a) := a\nx if f(1, n)", "policy.out-parameter"),
        ("x := -input.a", "policy.unsupported"),
        ("x[v.k] := v if some v in input.rows", "policy.unsupported"),
    ],
)
def test_what_cannot_be_bounded_or_understood_is_refused_at_load(rules: str, code: str) -> None:
    started = time.perf_counter()

    with pytest.raises(PolicyError) as error:
        engine_of(rules)

    assert error.value.code == code
    assert "\n" not in error.value.message
    assert time.perf_counter() - started < 5  # a nesting bomb would take longer than this test may


@pytest.mark.spec("ENG-3")
def test_a_syntax_error_says_where_in_one_line() -> None:
    with pytest.raises(PolicyError) as error:
        engine_of("x := [1,\n\n  2 +]")

    assert str(error.value).startswith("t.rego:5:6: ")


@pytest.mark.spec("ENG-3")
def test_brackets_in_strings_and_comments_are_no_nesting() -> None:
    brackets = "[" * 50

    assert answer(f'# {brackets}\nx := ["{brackets}", `{brackets}`]', {}) == Decided([brackets, brackets])


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize("name", ["data.t.nope", "data.t", "data", "t.x", "data.t.f", ""])
def test_an_entrypoint_that_no_rule_defines_is_refused(name: str) -> None:
    with pytest.raises(PolicyError, match=r"policy\.no-entrypoint"):
        EmbeddedEngine([("t.rego", "package t\nx := 1\nf(a) := a")], {}, [name])


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize("data", [{"t": {"x": 1}}, {"t": 1}])
def test_data_where_a_rule_is_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(PolicyError, match=r"policy\.data-conflict"):
        EmbeddedEngine([("t.rego", "package t\nx := 2")], data, ["data.t.x"])


@pytest.mark.spec("ENG-3")
def test_a_path_given_twice_and_a_module_too_large_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"policy\.duplicate-module"):
        EmbeddedEngine([("a", "package a"), ("a", "package b")], {}, [])
    with pytest.raises(PolicyError, match=r"policy\.too-large"):
        EmbeddedEngine([("a", "package a\n" + "#" * 1_100_000)], {}, [])


@pytest.mark.spec("ENG-3")
def test_data_that_is_not_strict_json_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"input\.duplicate-key"):
        EmbeddedEngine([], b'{"a": 1, "a": 2}', [])


# -- what goes in ------------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize(
    ("view", "code"),
    [
        (b"", "input.not-object"),
        (b"[]", "input.not-object"),
        (b"null", "input.not-object"),
        (b"{", "input.syntax"),
        (b'{"a": 1,}', "input.syntax"),
        (b"{'a': 1}", "input.syntax"),
        (b'{"a": 01}', "input.syntax"),
        (b'{"a": .5}', "input.syntax"),
        (b'{"a": +1}', "input.syntax"),
        (b'{"a": NaN}', "input.syntax"),
        (b'{"a": Infinity}', "input.syntax"),
        (b'{"a": nul}', "input.syntax"),
        (b'{"a": "\\x41"}', "input.syntax"),
        (b'{"a": "\\u12g4"}', "input.syntax"),
        (b'{"a": "open', "input.syntax"),
        (b'{"a": "open\\n', "input.syntax"),
        (b'{"a": [1', "input.syntax"),
        (b'{"a" 1}', "input.syntax"),
        (b'{"a": 1} {}', "input.trailing"),
        (b'{"a": 1}\x00', "input.trailing"),
        (b'\xef\xbb\xbf{"a": 1}', "input.not-object"),
        (b'{"a": "\xff"}', "input.not-utf8"),
        (b'{"a": "\xed\xa0\x80"}', "input.not-utf8"),
        ('{"a": 1}'.encode("utf-16"), "input.not-utf8"),
        (b'{"a": "\\ud800"}', "input.surrogate"),
        (b'{"a": "\\udc00"}', "input.surrogate"),
        (b'{"a": "\\ud800\\u0041"}', "input.surrogate"),
        (b'{"\\ud800": 1}', "input.surrogate"),
        (b'{"a": "\n"}', "input.control-character"),
        (b'{"a": "\\n\x01"}', "input.control-character"),
        (b'{"a": 1, "a": 2}', "input.duplicate-key"),
        (b'{"a": 1, "\\u0061": 2}', "input.duplicate-key"),
        (b'{"b": {"a": 1, "a": 1}}', "input.duplicate-key"),
        (b'{"a": 1e400}', "input.number"),
        (b'{"a": ' + b"9" * 401 + b"}", "input.number"),
        (b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}", "input.too-deep"),
        (b'{"a": ' + b"[" * 100_000, "input.too-deep"),
        (b'{"a": [' + b"1," * 1_000_001 + b"1]}", "input.too-many-values"),
        (b'{"a": "' + b"x" * 9_000_000 + b'"}', "input.too-large"),
    ],
)
def test_what_is_not_strict_json_fails_its_view_and_no_other(view: bytes, code: str) -> None:
    engine = engine_of("x := 1")

    results = engine.evaluate(["data.t.x"] * 3, b"{}", [b"{}", view, b"{}"], timeout_seconds=5)
    as_shared = engine.evaluate(["data.t.x"] * 2, view, [b"{}", b"{}"], timeout_seconds=5)

    assert results[0] == results[2] == Decided(1)
    assert isinstance(results[1], Failed)
    assert results[1].code == code
    assert [result.code for result in as_shared if isinstance(result, Failed)] == [code, code]


@pytest.mark.spec("ENG-5")
@pytest.mark.parametrize(
    "value",
    [
        *("", "é", "\U0001f600", "\x00\x1f\x7f", '"\\/\b\f\n\r\t', "\u2028"),
        *(0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 2**64 + 1, -(10**30), 10**390),
        *(0.5, -1.5e-7, 1e308, 5e-324, [], {}, [[]], {"": None}, [True, False, None]),
    ],
)
@FORMS
def test_json_comes_back_as_it_went_in(value: object, compiled: bool) -> None:
    engine = engine_of("x := input.value", compiled=compiled)

    for document in (json.dumps({"value": value}), json.dumps({"value": value}, ensure_ascii=False)):
        result = engine.evaluate(["data.t.x"], b"{}", [document.encode()], timeout_seconds=1)[0]

        assert result == Decided(value)


@pytest.mark.spec("ENG-5")
@FORMS
def test_large_integers_are_told_apart(compiled: bool) -> None:
    rules = "x := [input.a == input.b, input.a == 18446744073709551617]"

    result = answer(rules, {"a": 2**64 + 1, "b": 2**64}, compiled=compiled)

    assert result == Decided([False, True])


@pytest.mark.spec("ENG-6")
@FORMS
def test_shared_context_merges_under_each_view_at_every_depth(compiled: bool) -> None:
    engine = engine_of("x := input", compiled=compiled)
    shared = {"e": {"s": {"a": 1, "b": 2}, "l": [1, 2]}, "n": None, "k": 1}
    views = [{}, {"e": {"s": {"b": 3, "c": 4}, "l": [9]}, "k": {"z": 1}}, {"e": None, "n": {"y": 0}}]

    results = engine.evaluate(
        ["data.t.x"] * 3, json.dumps(shared).encode(), [json.dumps(view).encode() for view in views], timeout_seconds=1
    )

    assert results == [
        Decided(shared),
        Decided({"e": {"s": {"a": 1, "b": 3, "c": 4}, "l": [9]}, "n": None, "k": {"z": 1}}),
        Decided({"e": None, "n": {"y": 0}, "k": 1}),
    ]


@pytest.mark.spec("ENG-6")
@FORMS
def test_no_evaluation_sees_anothers_input_not_even_after_a_failure(compiled: bool) -> None:
    rules = 'x := object.get(input, "secret", "none") if not input.fail\nx := to_number(input.fail) if input.fail'
    engine = engine_of(rules, compiled=compiled)
    views = [b'{"secret": "a"}', b"{}", b'{"secret": "b", "fail": "x"}', b"{}", b'{"secret"', b"{}"]

    for _ in range(50):
        results = engine.evaluate(["data.t.x"] * 6, b"{}", views, timeout_seconds=1)

        assert results[0] == Decided("a")
        assert results[1] == results[3] == results[5] == Decided("none")
        assert isinstance(results[2], Failed)
        assert isinstance(results[4], Failed)


# -- what comes out ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-1")
@FORMS
def test_undefined_null_false_and_failed_are_four_things(compiled: bool) -> None:
    rules = 'u := input.nope\nn := null\nf := false\ns := "<undefined>"\ne := 1 / input.zero'
    engine = engine_of(rules, *"unfse", compiled=compiled)

    results = engine.evaluate([f"data.t.{name}" for name in "unfse"], b'{"zero": 0}', [b"{}"] * 5, timeout_seconds=1)

    assert results[:4] == [Undefined(), Decided(None), Decided(False), Decided("<undefined>")]
    assert isinstance(results[4], Failed)


@pytest.mark.spec("ENG-1")
def test_an_entrypoint_that_was_not_named_at_load_fails() -> None:
    assert ask(engine_of("x := 1\ny := 2"), {}, "y") == Failed("engine.no-entrypoint", "data.t.y")


@pytest.mark.spec("ENG-1")
def test_a_view_without_an_entrypoint_is_a_programming_error() -> None:
    with pytest.raises(ValueError, match="one entrypoint per view"):
        engine_of("x := 1").evaluate([], b"{}", [b"{}"], timeout_seconds=1)


@pytest.mark.spec("ENG-4")
def test_the_revision_is_of_the_content_and_not_of_its_order() -> None:
    a, b = ("a.rego", "package a"), ("b.rego", "package b")

    assert revision_of([a, b], b"{}") == revision_of([b, a], b"{}")
    assert EmbeddedEngine([b, a], {}, []).revision == revision_of([a, b], b"{}")
    others = [
        revision_of([a], b"{}"),
        revision_of([a, b], b'{"x":1}'),
        revision_of([("a.regob", "package a"), b], b"{}"),
    ]
    moved = revision_of([("a.rego", "package ab.rego"), ("", "package b")], b"{}")
    assert len({revision_of([a, b], b"{}"), *others, moved}) == 5


FAILURES = [
    ('x if contains(input.n, "a")', "engine.builtin-error"),
    ('x if not contains(input.n, "a")', "engine.builtin-error"),
    ('x contains 1 if contains(input.n, "a")', "engine.builtin-error"),
    ('x := {"deny": [d | some d in deny]}\ndeny contains 1 if contains(input.n, "a")', "engine.builtin-error"),
    ('x := [1 | contains(input.n, "a")]', "engine.builtin-error"),
    ('x if every y in [1] { contains(input.n, "a") }', "engine.builtin-error"),
    ('x := f(1)\nf(_) := contains(input.n, "a")', "engine.builtin-error"),
    ('x := 1 if contains(input.n, "a") else := 2', "engine.builtin-error"),
    ("x := input.n / 0", "engine.builtin-error"),
    ("x := input.n % 0", "engine.builtin-error"),
    ("x := input.n + input.s", "engine.builtin-error"),
    ("x := input.s - 1", "engine.builtin-error"),
    ("x := input.n * input.s", "engine.builtin-error"),
    ("x if not input.n / 0 == 1", "engine.builtin-error"),
    ("x := [1] - {1}", "engine.builtin-error"),
    ("x := {1} | input.n", "engine.builtin-error"),
    ('x if regex.match("(", input.s)', "engine.builtin-error"),
    ('x if not regex.match("(", input.s)', "engine.builtin-error"),
    ("x := to_number(input.s)", "engine.builtin-error"),
    ("x := json.unmarshal(input.s)", "engine.builtin-error"),
    ("x := 1 if input.n == 1\nx := 2 if input.s", "engine.conflict"),
    ("x := f(1)\nf(_) := 1\nf(_) := 2", "engine.conflict"),
    ("x := y if some y in [1, 2]", "engine.conflict"),
    ("x := [f(1), f(2)]\nf(a) := y if some y in [1, a]", "engine.conflict"),
]


@pytest.mark.spec("ENG-7")
@pytest.mark.parametrize(("rules", "code"), FAILURES)
@FORMS
def test_an_error_fails_the_view_wherever_it_happens(rules: str, code: str, compiled: bool) -> None:
    engine = engine_of(rules, compiled=compiled)

    result = ask(engine, {"n": 1, "s": "text"})

    assert engine.form == ("compiled" if compiled else "interpreted")
    assert isinstance(result, Failed)
    assert result.code == code
    assert result.detail != ""


@pytest.mark.spec("ENG-7")
@FORMS
def test_without_strictness_a_failing_builtin_is_undefined(compiled: bool) -> None:
    rules = 'x := [contains(input.n, "a"), 1] if true else := "else"\ny if not contains(input.n, "a")'
    engine = engine_of(rules, "x", "y", compiled=compiled, strict_builtin_errors=False)

    assert ask(engine, {"n": 1}) == Decided("else")
    assert ask(engine, {"n": 1}, "y") == Decided(True)


@pytest.mark.spec("ENG-7")
@FORMS
def test_rules_that_agree_are_no_conflict(compiled: bool) -> None:
    rules = "x := [f(1), f(2), g]\nf(a) := a\nf(a) := b if b := a\ng := y if some y in [3, 3]"

    assert answer(rules, {}, compiled=compiled) == Decided([1, 2, 3])


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-8")
@pytest.mark.parametrize(
    "rules",
    [
        "x := count([1 | some a in input.l; some b in input.l; some c in input.l; some d in input.l])",
        "x := count({[a, b, c] | some a in input.l; some b in input.l; some c in input.l})",
        "x if every a in input.l { every b in input.l { every c in input.l { every d in input.l { a + d > b - 9 } } } }",
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
        (r'x := regex.match(`\w{60}`, "a")', "engine.builtin-limit"),
        ('x := strings.replace_n({"a": input.long}, input.long)', "engine.builtin-limit"),
        (_doubling('"abcdefgh"', 'concat("", [S, S])', "count(s40)", 40), "engine.builtin-limit"),
        (_doubling("[1, 2]", "array.concat(S, S)", "count(s40)", 40), "engine.builtin-limit"),
        (_doubling("[1]", "[S, S]", "json.marshal(s60)", 60), "engine.builtin-limit"),
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
def test_integers_that_square_themselves_are_stopped_in_both_forms() -> None:
    rules = _doubling("123456789012345678", "S * S", "s40", 40)

    compiled = ask(engine_of(rules), {}, seconds=0.1)
    interpreted = ask(engine_of(rules, compiled=False), {}, seconds=0.1)

    assert isinstance(compiled, Failed)
    assert compiled.code == "engine.builtin-limit"
    assert interpreted == TimedOut()


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
@FORMS
def test_a_panic_inside_the_engine_is_a_failure_and_says_nothing(
    compiled: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    engine = engine_of("x := object.subset(input.a, input.b)", compiled=compiled)
    views = [json.dumps({"a": [CANARY], "b": []}).encode(), json.dumps({"a": {"k": 1}, "b": {"k": 1}}).encode()]

    results = engine.evaluate(["data.t.x"] * 2, b"{}", views, timeout_seconds=1)

    assert results == [Failed("engine.panic", "data.t.x"), Decided(True)]
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


# -- threads -----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-12")
def test_another_thread_runs_while_an_evaluation_does() -> None:
    engine = engine_of("x := count([1 | some a in input.l; some b in input.l; some c in input.l])")
    view = json.dumps({"l": list(range(400))}).encode()
    gaps = [time.perf_counter()]
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            gaps.append(time.perf_counter())
            time.sleep(0.001)

    ticker = threading.Thread(target=tick)
    ticker.start()
    started = time.perf_counter()
    engine.evaluate(["data.t.x"], b"{}", [view], timeout_seconds=0.5)
    took = time.perf_counter() - started
    done.set()
    ticker.join()

    longest = max(later - earlier for earlier, later in itertools.pairwise(gaps))
    assert took > 0.4
    assert longest < took / 2  # holding the lock would make it the whole call


@pytest.mark.spec("ENG-12")
@FORMS
def test_many_threads_share_one_engine(compiled: bool) -> None:
    engine = engine_of("x := {upper(input.word): count(input.word)}", compiled=compiled, check_every=7)

    def judge(word: str) -> list[EngineResult]:
        views = [json.dumps({"word": f"{word}{n}"}).encode() for n in range(5)]
        return engine.evaluate(["data.t.x"] * 5, b"{}", views, timeout_seconds=5)

    with ThreadPoolExecutor(8) as pool:
        words = [f"w{n}" for n in range(400)]
        for word, results in zip(words, pool.map(judge, words), strict=True):
            assert results == [Decided({f"{word}{n}".upper(): len(word) + 1}) for n in range(5)]
    assert engine.differences == 0


@pytest.mark.spec("ENG-12")
async def test_large_batches_leave_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_of("x := count(input.text)")
    threads: list[str] = []
    evaluate = EmbeddedEngine.evaluate

    def spy(self: EmbeddedEngine, *args: object, **kwargs: object) -> list[EngineResult]:
        threads.append(threading.current_thread().name)
        return evaluate(self, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(EmbeddedEngine, "evaluate", spy)
    small, large = (json.dumps({"text": "x" * size}).encode() for size in (10, embedded.OFFLOAD_BYTES))

    results = [await engine.aevaluate(["data.t.x"], b"{}", [view], timeout_seconds=5) for view in (small, large)]

    assert results == [[Decided(10)], [Decided(embedded.OFFLOAD_BYTES)]]
    assert threads[0] == threading.current_thread().name
    assert threads[1] != threads[0]


def test_closing_lets_go_of_nothing_and_the_engine_still_works() -> None:
    engine = engine_of("x := 1")

    engine.close()

    assert asyncio.run(engine.aevaluate(["data.t.x"], b"{}", [b"{}"], timeout_seconds=1)) == [Decided(1)]


# -- forms -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-10")
@pytest.mark.parametrize(
    "rules",
    [
        "x := y if y := input.a with input.a as 7",
        "x := [p | walk(input, [p, _])]",
        "x := {v.k: v | some v in input.rows}",
        "x[k] := upper(v) if some k, v in input.rows",
        'x if every k in ["a"] { input.m[k] > 0 }',
        'x := f(1)\ndefault f(_) := "d"\nf(a) := a if a == 2',
        "x := - 1",
        "x if { _ := input.a }",
        "x := f(1, 2, 3, 4, 5, 6, 7, 8, 9)\nf(a, b, c, d, e, f, g, h, i) := a + i",
        "x := data.u[input.name]",
    ],
)
def test_what_the_compiled_form_does_differently_is_interpreted_and_says_so(rules: str) -> None:
    modules = [("t.rego", f"package t\n{rules}"), ("u.rego", "package u\ny := 1\nz := 2")]
    engine = EmbeddedEngine(modules, {}, ["data.t.x"], check_every=0)

    reason = engine.forms["data.t.x"]

    assert engine.form == "interpreted"
    assert reason is not None
    assert reason.split(" ")[0] != "the"  # our reason, not a surprise of the compiler


@pytest.mark.spec("ENG-10")
def test_one_entrypoint_in_two_forms_leaves_the_others_compiled() -> None:
    engine = engine_of("x := z if z := 1 with input.a as 7\ny := 2", "x", "y")

    assert engine.form == "mixed"
    assert engine.forms["data.t.y"] is None
    assert (ask(engine, {}), ask(engine, {}, "y")) == (Decided(1), Decided(2))


@pytest.mark.spec("ENG-10")
def test_a_set_too_large_for_one_program_is_interpreted() -> None:
    rules = "x := 1 if {\n\tv0 := input.a\n" + "".join(f"\tv{n + 1} := v{n}\n" for n in range(300)) + "}\ny := 1"
    engine = engine_of(rules, "x", "y")

    assert "compiler refused" in str(engine.forms["data.t.x"])
    assert engine.forms["data.t.y"] is None
    assert ask(engine, {"a": 1}) == Decided(1)


@pytest.mark.spec("ENG-10")
def test_forms_that_differ_fail_the_view_and_hand_over_to_the_interpreter() -> None:
    # The known one: the compiled form evaluates both members, the interpreter stops at the undefined one.
    rules = "x := 1 if { y := [input.nope, 1 / input.zero] } else := 2"
    engine = engine_of(rules, check_every=2)

    sampled, *rest = [ask(engine, {"zero": 0}) for _ in range(3)]

    assert sampled == Failed("engine.forms-differ", "data.t.x")
    assert rest == [Decided(2), Decided(2)]
    assert engine.differences == 1
    assert engine.form == "interpreted"
    assert engine.forms["data.t.x"] == "the two forms differed"


@pytest.mark.spec("ENG-10")
def test_looping_over_what_has_no_members_is_the_one_difference_that_does_not_count() -> None:
    rules = "x contains y if some y in input.a"
    engine = engine_of(rules, check_every=1)

    assert ask(engine, {"a": 5}) == Decided([])
    assert engine.differences == 0
    interpreted = ask(engine_of(rules, compiled=False), {"a": 5})
    assert isinstance(interpreted, Failed)
    assert interpreted.code == "engine.not-a-collection"


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("ENG-13")
def test_a_query_answers_as_opa_does() -> None:
    engine = engine_of("x contains n if some n in input.l")

    answer = engine.query("some y in data.t.x; z := y + 1", b'{"l": [1, 2]}')

    assert [result["bindings"] for result in answer["result"]] == [{"y": 1, "z": 2}, {"y": 2, "z": 3}]
    assert engine.query("data.t.nope", b"{}") == {}


@pytest.mark.spec("ENG-13")
@pytest.mark.parametrize(
    ("query", "document", "code"),
    [
        ("http.send({})", b"{}", "policy.banned-builtin"),
        ("x := ]", b"{}", "policy.parse"),
        ("[" * 30, b"{}", "policy.nesting"),
        ("1 / 0", b"{}", "engine.error"),
        ("to_number(input.a)", b'{"a": "x"}', "engine.builtin-error"),
        ("true", b"[]", "input.not-object"),
        ("count([1 | some a in input.l; some b in input.l; some c in input.l; a + b == c])", None, "engine.timeout"),
        ("object.subset([1], [])", b"{}", "engine.panic"),
    ],
)
def test_a_query_is_held_to_what_rules_are_held_to(query: str, document: bytes | None, code: str) -> None:
    large = json.dumps({"l": list(range(500))}).encode()

    with pytest.raises(EngineError) as error:
        engine_of("x := 1").query(query, large if document is None else document, timeout_seconds=0.2)

    assert error.value.code == code


@pytest.mark.spec("ENG-13")
def test_coverage_says_which_lines_were_reached() -> None:
    engine = engine_of("x if {\n\tinput.a == 1\n\tinput.b == 2\n}\n\nx if input.c == 3")

    (report,) = engine.coverage([("data.t.x", b'{"a": 1}')])

    assert report["path"] == "t.rego"
    assert set(report["covered"]) >= {4, 5}
    assert set(engine.coverage([("data.t.x", b'{"c": 3}')])[0]["covered"]) >= {8}


@pytest.mark.spec("ENG-13")
@pytest.mark.parametrize(("document", "code"), [(b"[]", "input.not-object"), (b'{"a": [1], "b": []}', "engine.panic")])
def test_coverage_refuses_what_an_evaluation_refuses(document: bytes, code: str) -> None:
    with pytest.raises(EngineError) as error:
        engine_of("x := object.subset(input.a, input.b)").coverage([("data.t.x", document)])

    assert error.value.code == code
