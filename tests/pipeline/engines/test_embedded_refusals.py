"""What the embedded engine refuses: policy sets at load, and inputs that are not strict JSON."""

from __future__ import annotations

import json
import time

import pytest
from tests.pipeline.engines.asking import FORMS, answer, ask, engine_of

from pipeline.decisions.engine import Decided, Failed
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine, allowed_builtins


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
        'io.jwt.decode("a")',
        'crypto.md5("a")',
        'units.parse("1e999999999")',
        'net.cidr_expand("0.0.0.0/0")',
        'strings.split_n("a", "b", 1)',
        'uri.parse("a")',
        "array.flatten([])",
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
@pytest.mark.parametrize("function", ["data.t.f", 'data["t"].f'])
def test_a_function_of_a_policy_cannot_be_replaced_either(function: str) -> None:
    with pytest.raises(PolicyError, match=r"t\.rego:3:18.*policy\.with-function"):
        engine_of(f"x := y if y := h with {function} as data.t.g\nh := f(1)\nf(v) := v\ng(v) := v + 1")


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
        ("x if { some i; input.a" + ".y[i]" * 26 + " }", "policy.nesting"),
        ("x := input.a" + "[[{1: f(_)}]]" * 26 + "\nf(v) := v", "policy.nesting"),
        (
            "x := 1\n" + "\n".join(f"y{n} if input.a[i][j][k][l][m][{{n}} | {{o}}]" for n in range(1_999)),
            "policy.nesting",
        ),
        ("x := 1e999999999", "policy.number"),
        (f"x := {'9' * 900}", "policy.number"),
        (f"x := {'(' * 40}1{')' * 40}", "policy.parse"),
        ("x := ]", "policy.parse"),
        ("x if y", "policy.analysis"),
        ("default x := input.a", "policy.unsupported"),
        ("default x := [1, {2: count([])}]", "policy.unsupported"),
        ('default x := {{y | y := 1}, {"a": -1}, [null]}\ny if not input.xs[_]', "policy.analysis"),
        ("x := nowhere(1)", "policy.unknown-function"),
        ("x := count(1, 2, 3)", "policy.arity"),
        ("f(a) := a\nx := f(1, 2)", "policy.arity"),
        ("x if walk(input)", "policy.arity"),
        ("x if count(input.a, n)", "policy.out-parameter"),
        ("f(a) := a\nx if f(1, n)", "policy.out-parameter"),
        ("x := -input.a", "policy.unsupported"),
        ("x[v.k][v.j] := v if some v in input.rows", "policy.unsupported"),
        ("f() := 1\nx := f()", "policy.unsupported"),
        ('default c["k"] := 1\nx := 2', "policy.unsupported"),
        ("default c.d[1] := 1\nx := 2", "policy.unsupported"),
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
@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("future.keywords.not", "take it out"),
        ("future.keywords.or", "take it out"),
        ("rego.v2", "take it out"),
        ("data", "needs no import"),
        ("data.a as input", "alias"),
        ("input.a as data", "alias"),
    ],
)
def test_an_import_that_opa_reads_otherwise_is_refused(what: str, told: str) -> None:
    with pytest.raises(PolicyError, match=told) as error:
        EmbeddedEngine([("t.rego", f"package t\n\nimport {what}\n\nx if not {{false}}\n")], {}, ["data.t.x"])

    assert (error.value.code, error.value.place) == ("policy.import", "t.rego:3:1")


@pytest.mark.spec("ENG-3")
@FORMS
@pytest.mark.parametrize("what", ["rego.v1", "future.keywords", "future.keywords.in", "input.a as b", "data.t as u"])
def test_other_imports_are_read(what: str, compiled: bool) -> None:
    modules = [("t.rego", f"package t\n\nimport {what}\n\nx := 1\n")]

    assert ask(EmbeddedEngine(modules, {}, ["data.t.x"], use_compiled=compiled), {}) == Decided(1)


@pytest.mark.spec("ENG-3")
@FORMS
def test_a_line_may_be_long(compiled: bool) -> None:
    words = ", ".join(f'"word {number}"' for number in range(4_000))

    assert answer(f"x if not input.a in {{{words}}}", {"a": "b"}, compiled=compiled) == Decided(True)
    with pytest.raises(PolicyError, match="data file"):
        engine_of(f"x if not input.a in {{{words}, {words}}}")


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize(
    ("rules", "place"),
    [
        ("x if {\n\t\thttp.send({})\n}", "t.rego:4:3"),
        ('x if {\n\tinput.a == "é";\thttp.send({})\n}', "t.rego:4:18"),
        ("x if {\n\tinput.a +\n\t\t]\n}", "t.rego:5:3"),
        ("x if {\n\tinput.a\n\tnot y\n}", "t.rego:5:6"),
    ],
)
def test_a_column_counts_characters_and_a_tab_is_one(rules: str, place: str) -> None:
    with pytest.raises(PolicyError) as error:
        engine_of(rules)

    assert error.value.place == place


@pytest.mark.spec("ENG-3")
def test_a_refusal_names_no_variable_that_the_author_did_not_write() -> None:
    with pytest.raises(PolicyError) as error:
        engine_of('x := v if { {"k": v} = [w] }')

    assert "cmf_" not in str(error.value)


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
        (b'{"a": "' + b"x" * 34_000_000 + b'"}', "input.too-large"),
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
        *(0, -1, 2**53 + 1, 2**63 - 1, -(2**63), 2**64 - 1, 2**64, 2**64 + 1, 2**70, 10**21, -(10**30), 10**390),
        *(0.5, -1.5e-7, 1e308, 5e-324, [], {}, [[]], {"": None}, [True, False, None]),
    ],
)
@FORMS
def test_json_comes_back_as_it_went_in(value: object, compiled: bool) -> None:
    engine = engine_of("x := input.value", compiled=compiled)

    for document in (json.dumps({"value": value}), json.dumps({"value": value}, ensure_ascii=False)):
        result = engine.evaluate(["data.t.x"], b"{}", [document.encode()], timeout_seconds=1)[0]

        assert repr(result) == repr(Decided(value))  # 10**21 == 1e21


@pytest.mark.spec("ENG-5")
@FORMS
def test_large_integers_are_distinguished(compiled: bool) -> None:
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
