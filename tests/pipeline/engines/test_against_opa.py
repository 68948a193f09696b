"""The embedded engine held against OPA: programs that once meant something else, made-up modules, builtins."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.engines.asking import FORMS, answer, ask, engine_of
from tests.pipeline.engines.opa_asked import Opa, Said, asking
from tests.pipeline.engines.rego_grammar import DATA, INPUTS, Grammar

from pipeline.decisions.engine import Decided, EngineResult, Failed, Undefined
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine

SETS = 600
ROWS = 120
TWO_VALUES = "hd[k] contains v if some k, v in input.obj"

MEANT = [
    # an object in a pattern has these members and no others
    'x := a if {"p": a} = input.obj',
    'x := a if input.obj = {"p": a, "a": _, "k": _}',
    'x := [a, b] if {\n\t"p": a, "a": _,\n\t"k": b,\n} := input.obj',
    'x contains v if some {"k": v} in input.rows',
    'x := [v | some {"k": v, "v": _} in input.rows]',
    'x := [k | some k, {"v": 1, "k": _} in input.rows]',
    'x := [v | {"k": v} = input.rows[_]]',
    'x := b if { [a, {"x": {"y": b}}] := [1, input.deep] }',
    'x := b if { [a, {"b": [b, _]}] := [1, input.deep] }',
    'x := f(input.rows[0])\nf({"k": v}) := v',
    'x := [y | some r in input.rows; y := f(r)]\nf({"k": v}) := v if v == "a"\nf({"v": 2, "k": _}) := "two"',
    'x := [y | some r in input.rows; y := f(r, 1)]\nf({"k": v}, [w]) := v\nf({"k": v}, w) := [v, w]',
    # `in` of what is not there is not there
    "x := input.nope in input.nums",
    "x := [1 in input.nope, true]",
    'x := {"a": input.s in {"s"}, "b": (input.s) in ({"q"})}',
    "x := (((1 in input.nums) in [true]) == true)",
    "x := [v | some v in input.nums; (v in input.nums) == true]",
    # a key before `in`
    "x if 0, 2 in input.nums",
    "x := [(0, 1 in input.nums), (0, 2 in input.nums)]",
    # a member of a set is its own key
    'x if "s", "s" in {"s", "q"}',
    'x := [("s", "s" in {"s"}), ("q", "s" in {"s"})]',
    "x := [k | some k in [1, 2]; k, k in {v | some v in input.nums}]",
    # a default may be computed
    "default x := [v | some v in [1, 2]]",
    "default x := {1: {v | some v in [1, 2]}}\nx := 1 if input.nope",
    # an equality may give a variable its value
    'x := r if { y = input.a; r = {"k": y} }',
    'x := r if { r = {"k": y}; y = input.a }',
    'x := r if { y := 2; [{"k": y, "l": [y]}] = r }',
    'x := [y, r.k] if { r = {"k": y, "l": z}; [y, z] = [3, input.a] }',
    'x := r if {\n\tr = {\n\t\t"k": y,\n\t\t"l": 1,\n\t}\n\ty = input.a\n}',
    'x contains r if { some y in input.nums; r = {"n": y, "h": h} }\nh := input.a',
    'x := a if { r = input.obj; {"p": a} = r }',
    'x := a if { {"k": a, "l": _} = h }\nh := {"k": 1, "l": 2}',
    "x := [object.subset(input.nums, input.empty), object.subset([], []), object.subset({1}, {2})]",
    # what is negated is asked for first
    "x if not f(input.nope)\nf(v) if v == 9",
    "x if not f(f(input.nope))\nf(v) := v",
    "x if not f({input.nope in {1}})\nf(v) if v",
    "x if not f(h)\nf(v) if v == 9\nh := input.nope",
    "x if not f(data.d.zz)\nf(v) if v == 9",
    "x if not input.nope in input.nums",
    'x if not "" in input.words',
    "x if not 1, 2 in input.nope",
    "x if not input.nope != 1",
    "x if not ((input.nope)) + (1) < ((3))",
    "x if not input.nope - 1",
    "x if not {1, input.nope} & {1}",
    "x if not input.nope == 1",
    "x if not (input.nope == 1) == true",
    "x if not [input.nope] = [1]",
    "x if { some z; not z = 1; z = 2 }",
    'x if not {"c": input.nope}.c',
    "x if not [1, 2][input.nope] == 1",
    "x if not set() == {input.nope}",
    "x if not count([y | y := input.nope]) == 1",
    "x := [i | some i; not (input.nums[i] + 1) * 2 > 5]",
    "x if not count(input.words[_]) == 2",
    'x := ({"z": 1, "y": 2} in [{"z": 1, "y": 2}]) == true',
    "x if every y in [1] { not y in input.nope }",
    "x := 1 if { not f(input.nope) } else := 2 if not f(input.a)\nf(v) if v == 9",
    "x := [v.k | some v in input.rows; not v.v > 1; not [w | some w in input.rows; not w.v in [1]] == [v]]",
    "x if not p with input as input.nope\np if input.a == 7",
    'x if {\n\tnot f(input.q.r)\n\t\twith input.q as {\n\t\t\t"r": 9, # nine\n\t\t}\n\tinput.a\n}\nf(v) if v == 8',
    'x if {\n\tnot f(\n\t\t"#a)", # one ) ,\n\t\t((input.b)),\n\t)\n\ttrue\n}\nf(p, q) if q == p',
    "x if not f(`a\nb`, input.a, set())\nf(p, q, r) if r == {p, q}",
    # so is what `with` puts there
    "x := y if { y := h with input.q as h }\nh := object.get(input, `q`, 5)",
    "x := y if y := hs with data.other.q as [g, {\n\t`a`: `#`, # one\n}]\ng := hs\nhs contains input.a",
    "x if { not 5 in h with input.q as [h, input.nope] with input.a as h }\nh := [5]",
    "x if { not 4 in h with input.q as h with input.a as h }\nh := [5]",
    "x := y if { y := f(h) with input.q as f([h, input.q]) }\nh := 5\nf(v) := [v, object.get(input, `q`, 1)]",
    # and so are its brackets
    "x if not input.obj[input.nope]",
    "x if not input.obj[input.s]",
    "x if not input.obj[lower(input.nope)] == 1",
    "x if not input.obj[input.deep.x.y[input.nope]]",
    "x := 1 if { not input.obj[input.nope] } else := 2",
    'x if not input.obj[input.q] with input.q as "p"',
    "x if not input.obj[h]\nh := input.nope",
    'x := [k | some k in ["p", "q"]; not input.obj[k]]',
    # more than one value under a computed key
    f"x := hd\n{TWO_VALUES}",
    f"x := [hd.a, hd.p]\n{TWO_VALUES}",
    f"x := hd.zz\n{TWO_VALUES}",
    f"x := [k | hd[k]]\n{TWO_VALUES}",
    "x := hd\nhd[k].w := v if some k, v in input.obj",
    "x := [[k, v] | hd[k].w[v]]\nhd[k].w contains v if some k, v in input.obj",
    'x := hd\nhd[k][j] := v if { some k, v in input.obj; some j in ["x", "y"] }',
    "x := hd\nhd[k] contains v if some k, v in input.empty",
    "x := count(hd) == 0\nhd[k] contains input.nope if some k, v in input.obj",
    "x := hd\nhd.m[k].n contains v if some k, v in input.empty",
    # unions and what sets have in common
    "x := object.union_n(input.rows)",
    'x := object.union_n([input.deep, {"x": {"y": 1, "z": {"a": 1}}}, {"x": {"z": {"b": input.obj}}}, input.obj])',
    'x := object.union(input.deep, {"x": {"y": {"z": 1}, "w": input.empty}})',
    "x := union({{v | some v in input.nums}, {2, input.s}, set()})",
    "x := [intersection({{v | some v in input.nums}, {2, 3, input.s}}), object.union_n(input.empty)]",
    # letters outside of the basic plane, signs of globs, and base64 over several lines or with bits that say nothing
    'x := [count("a😀"), count("\u00e9\u4e2d\U0001f600"), count(input.words)]',
    'x := [glob.quote_meta("*.[ab]{c,d}?"), glob.quote_meta(""), glob.match(glob.quote_meta("[a]"), [], "[a]")]',
    'x := [base64.decode("aGFs\\nbG8="), base64.decode("aGFsbG9="), base64.decode("")]',
    # a key that is computed in the head
    "x := hd\nhd[r.k] contains r.v if some r in input.rows",
    "x := hd\nhd[r.v] contains r if {\n\tsome r in input.rows # each\n}",
    "x := hd\nhd[upper(r.k)] := r.v if some r in input.rows",
    "x := hd\nhd[input.obj.p] := input.nums[0]\nhd[input.nope] := 3",
    "x := hd\nhd[input.words[i]].n := i if input.nums[i] > 1",
    'x := hd\nhd[{"a": [k, "]"]}.a] := `]` if { some k in input.words; k != "b" }',
    "x := hd.m.a\na__ := 7\nhd.m[input.c] contains a__\nhd.m[r.k] contains a__ if some r in input.rows",
    "x := hd\nhd[[r.k]] contains 1 if some r in input.rows",
]


@pytest.fixture(scope="module")
def opa(opa_binary: Path) -> Iterator[Opa]:
    with asking(opa_binary) as server:
        server.keep("d", DATA["d"])
        yield server


def ours(modules: dict[str, str], document: object, name: str, *, compiled: bool, strict: bool = True) -> EngineResult:
    engine = EmbeddedEngine(
        list(modules.items()), DATA, [name], use_compiled=compiled, check_every=0, strict_builtin_errors=strict
    )
    return engine.evaluate([name], b"{}", [json.dumps(document).encode()], timeout_seconds=5)[0]


@pytest.mark.opa
@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize("rules", MEANT)
def test_it_means_what_it_means_in_opa(rules: str, opa: Opa) -> None:
    modules = {"t": f"package t\n\n{rules}\n"}
    assert opa.load(modules) == []
    theirs = opa.say("t/x", INPUTS[0])

    for compiled in (True, False):
        result = ours(modules, INPUTS[0], "data.t.x", compiled=compiled)
        assert result == (Decided(theirs.value) if theirs.kind == "value" else Undefined())


@pytest.mark.opa
@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize(
    "condition",
    [
        "input.nums[_] == 1",
        "input.nums[i] == 1",
        "is_string(input.words[_])",
        "input.rows[i].k in {1}",
        "count(input.nums) == input.nums[i]",
        "[_, 1] == [input.nums[i], 1]",
        '{"a": input.nums[i]} == {"a": 1}',
    ],
)
def test_a_variable_that_only_a_negation_has_is_refused_as_in_opa(condition: str, opa: Opa) -> None:
    rules = f"x if not {condition}"

    assert ("t", 3) in opa.load({"t": f"package t\n\n{rules}\n"})
    with pytest.raises(PolicyError) as error:
        engine_of(rules)
    assert (error.value.code, error.value.line) == ("policy.analysis", 3)


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize(
    ("rules", "line"),
    [
        (f"x := 1\nhd.a.v := 10\n{TWO_VALUES}", 4),
        (f'x := 1\nhd["a"] contains 1\n{TWO_VALUES}', 4),
        ("x := 1\nhd[1].n contains input.nope", 4),
        ("x := 1\nhd[input.a][input.b] := 1", 4),
        ("x := 1\nhd[[\n\tinput.a,\n]] := 1", 4),
        ('x if {\n\tnot {"k": 1} = input.a\n}', 4),
        ('x := f({"k": 1})\nf({"k": v}) := v if v == 2 else := 3', 4),
        ('x := a if {"k": a} = input.a with input.b as 1', 3),
        ('x := [a, b] if {"k": a, "l": 1} = {"k": 1, "l": b}', 3),
        ('x := r if { r = {"k": y, "c": [z | some {"k": z} in input.a]}; y = 1 }', 3),
        ("x if {\n\ttrue\n\tnot 3 in input.q with input.q as [y |\n\t\tsome y in input.a]\n}", 5),
        ("x if not 3 in input.q with input.q as [y | some y in input.a; not y in input.b]", 3),
        ("x if h with input.q as [y |\n\tsome y in h]\nh := input.a", 3),
    ],
)
def test_what_cannot_be_given_the_meaning_it_has_in_opa_is_refused_where_it_stands(rules: str, line: int) -> None:
    with pytest.raises(PolicyError) as error:
        engine_of(rules)

    assert (error.value.code, error.value.path, error.value.line) == ("policy.unsupported", "t.rego", line)


@pytest.mark.spec("ENG-11")
@FORMS
def test_what_is_put_behind_the_authors_lines_is_not_among_those_that_are_covered(compiled: bool) -> None:
    engine = engine_of(f"x := hd\n{TWO_VALUES}", compiled=compiled)

    (file,) = engine.coverage([("data.t.x", b'{"obj": {"a": 1}}')])

    assert max(file["covered"]) == 4
    assert file["not_covered"] == []


@pytest.mark.spec("ENG-11")
@FORMS
@pytest.mark.parametrize(
    "negated",
    ['input.nope in {"a"}', '"a" in input.nope', "input.a in {input.nope}", "f(input.nope)", "input.nope < 1"],
)
def test_what_is_missing_is_not_negated(negated: str, compiled: bool) -> None:
    assert answer(f"x if not {negated}\nf(v) if v", {"a": 1}, compiled=compiled) == Undefined()


@pytest.mark.spec("ENG-11")
def test_what_is_negated_stays_in_its_line() -> None:
    rules = "x if {\n\tnot f(\n\t\tinput.a, # a\n\t\tinput.b,\n\t)\n\tupper(input.a)\n}\nf(p, q) if p == q"
    for compiled in (True, False):
        result = answer(rules, {"a": 1, "b": 2}, compiled=compiled)
        assert isinstance(result, Failed)
        assert compiled or "t.rego:8" in result.detail


@pytest.mark.spec("ENG-7")
@FORMS
@pytest.mark.parametrize("term", ["(1e300 * 1e300) + 0.5", "1e-200 * 1e-200", "(1e300 * 1e300) / 7"])
def test_a_number_that_only_opa_has_is_not_undefined(term: str, compiled: bool) -> None:
    result = ask(engine_of(f"x := {term}", compiled=compiled, strict_builtin_errors=False), {})

    assert isinstance(result, Failed)


@pytest.mark.opa
@pytest.mark.proof
@pytest.mark.spec("ENG-11")
def test_made_up_modules_mean_what_they_mean_in_opa(
    opa: Opa, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    kinds: Counter[str] = Counter()
    seed_of_all = proof_seed if proof_scale >= 1 else 1  # a change is not refused for what chance finds that day
    for number in range(int(SETS * proof_scale)):
        seed = f"{seed_of_all}-{number}"
        modules = without_errors(opa, dict(zip(("t", "other"), Grammar(seed).program(), strict=True)))
        for name in (name for name in "xyz" if f"\n{name} " in modules["t"] or f"\n{name}[" in modules["t"]):
            for strict in (True, False):
                kinds.update(compared(opa, modules, name, strict, seed))

    proof_row("made-up modules mean what they mean in OPA", seed=seed_of_all, **kinds)
    assert kinds["alike"] > SETS * proof_scale


def without_errors(opa: Opa, modules: dict[str, str]) -> dict[str, str]:
    """The modules without the rules that OPA refuses: each is a line."""
    opa.load({"t": "package t\n"})  # what was there before may not fit to this `other`
    for _ in range(20):
        refused = opa.load({"other": modules["other"], "t": modules["t"]})
        if not refused:
            return modules
        assert all(line for _, line in refused), refused
        for file in modules:
            lines = enumerate(modules[file].split("\n"), 1)
            modules[file] = "\n".join("" if (file, at) in refused else line for at, line in lines)
    raise AssertionError(modules)


def compared(opa: Opa, modules: dict[str, str], name: str, strict: bool, seed: str) -> Iterator[str]:
    """`alike`, or why there is no comparison, for each input and form."""
    for compiled in (True, False):
        try:
            engine = EmbeddedEngine(
                list(modules.items()),
                DATA,
                [f"data.t.{name}"],
                use_compiled=compiled,
                check_every=0,
                strict_builtin_errors=strict,
            )
        except PolicyError:
            yield "refused"
            continue
        if compiled and engine.form != "compiled":
            continue
        views = [json.dumps(document).encode() for document in INPUTS]
        results = engine.evaluate([f"data.t.{name}"] * len(views), b"{}", views, timeout_seconds=5)
        for document, result in zip(INPUTS, results, strict=True):
            theirs = opa.say(f"t/{name}", document, strict=strict)
            if isinstance(result, Failed):
                assert result.code != "engine.panic", (seed, name)
                yield "failed"
            elif theirs.kind == "error":
                yield "failed in OPA"
            else:
                assert agree(result, theirs), (seed, name, compiled, strict, result, theirs)
                yield "alike"


def agree(result: EngineResult, theirs: Said) -> bool:
    if isinstance(result, Decided):
        return theirs.kind == "value" and in_order(result.value) == in_order(theirs.value)
    return isinstance(result, Undefined) and theirs.kind == "undefined"


def in_order(value: Any) -> Any:
    """Without the order of arrays: of a set that has sets and objects it is a known difference."""
    if isinstance(value, list):
        return sorted(map(in_order, value), key=lambda one: json.dumps(one, sort_keys=True))
    return {key: in_order(member) for key, member in value.items()} if isinstance(value, dict) else value


TEXTS = [
    "",
    "a",
    "ab",
    "A b",
    " a ",
    "a/b",
    "ß",
    "İ",
    "ŉ",
    "ᾳ",
    "ᾈ",
    "ΑΣ",
    "ǅ",
    "😀",
    "\u2028",
    "<&>",
    "a*",
    "1d",
    "1.5h",
    "-1ß",
]
TEXTS += [
    "1w2d3ms",
    "5.",
    "-0",
    "9999999h",
    "v1.2.3",
    "1.2.3-a.1",
    "1.2",
    "1.0.0-01",
    "Zg",
    "_w==",
    "/w==",
    "aGk=",
    "aGk",
    "=",
]
TEXTS += [
    "2006-01-02T15:04:05Z",
    "2006-01-02t15:04:05z",
    "2006-01-02T15:04:60Z",
    "2006-01-02 15:04:05Z",
    '{"a":1}',
    "[1",
]
HALVES = ['"\\ud800"', '"\\udc00a"', '"\\ud83d\\ude00\\ud83d"', '{"\\ud800\\u0041": "\\\\ud800"}']
JSON_TEXTS = [*TEXTS, *HALVES, "[1e309]", "[" * 130 + "]" * 130, "[1e2, 0.5]", '"\\u12g4"', " 1 ", "01", '"\x01"']
TEXTS += HALVES
NUMBERS = [0, 1, -1, 2, 10, 255, 1.5, -2.5, 2**53 + 1, 2**63, -(10**29), 1000000.5]
FORMATS = [
    "%d",
    "%s",
    "%v",
    "%5d|",
    "%-5d|",
    "%05d",
    "%+d",
    "% d",
    "%x",
    "%X",
    "%o",
    "%b",
    "%c",
    "%U",
    "%q",
    "%t",
    "%T",
]
FORMATS += ["%f", "%.2f", "%8.3f|", "%e", "%E", "%g", "%5s|", "%-5s|", "%.1s", "%z", "%", "%%", "a"]
MOMENTS = [0, 1136214245000000000, 1709164800000000000, 1719164800000000000, 4102400000000000000, -1, 2**62, 2**63, 1.5]
ZONES = ["", "UTC", "America/New_York", "Europe/Berlin", "Asia/Kolkata", "Nowhere"]
NETWORKS = ["10.0.0.0/8", "::/0", "::ffff:10.0.0.0/104", "10.0.0.0/33", "::ffff:10.0.0.0/90"]
PATHS = ["a", "a/b", "/b", "b/0", "", "a/b/c", "a~1b", ["a"], ["b", "0"], [], "c"]


def moment(rng: random.Random) -> list[Any]:
    return [rng.choice([rng.choice(MOMENTS), [rng.choice(MOMENTS), rng.choice(ZONES)]])]


def texts(rng: random.Random) -> str:
    return "".join(rng.choices(TEXTS, k=rng.choice((1, 1, 2))))


def anything(rng: random.Random, depth: int = 2) -> Any:
    kind = rng.randrange(8 if depth else 6)
    if kind < 3:
        return texts(rng)
    if kind < 5:
        return rng.choice(NUMBERS)
    if kind == 5:
        return rng.choice([None, True, False])
    if kind == 6:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice("abc"): anything(rng, depth - 1) for _ in range(rng.randrange(4))}


def of_objects(rng: random.Random) -> list[Any]:
    whole = {name: rng.choice([{"b": anything(rng, 1)}, [anything(rng, 1)], 1, {}]) for name in "ab"}
    return [whole, rng.sample(PATHS, rng.randrange(4))]


def of_parts(rng: random.Random) -> list[Any]:
    values: list[Any] = [{"a": 1}, {"a": 1, "b": [1, 2]}, {"b": [2]}, {}, [1], [1, 2], [2, 1], ["a"], "a"]
    return [rng.choice(values), rng.choice(values)]


ON_TEXTS = ["base64.decode", "base64.is_valid", "base64url.decode", "json.is_valid", "lower", "net.cidr_is_valid"]
ON_TEXTS += ["semver.is_valid", "time.parse_duration_ns", "time.parse_rfc3339_ns", "upper", "urlquery.encode"]
OF_ANYTHING: dict[str, Callable[[random.Random], list[Any]]] = {
    **{name: lambda rng: [anything(rng) if rng.random() < 0.3 else texts(rng)] for name in ON_TEXTS},
    "graph.reachable": lambda rng: [
        {node: rng.choices([*"abcd", 1], k=rng.randrange(3)) for node in rng.sample("abcd", rng.randrange(4))},
        rng.choices([*"abc", 1, None], k=rng.randrange(3)),
    ],
    "indexof": lambda rng: [texts(rng), texts(rng)],
    "json.unmarshal": lambda rng: [rng.choice(JSON_TEXTS)],
    "strings.count": lambda rng: [texts(rng), rng.choice(["", "a", "aa", "ß", texts(rng)])],
    "to_number": lambda rng: ["".join(rng.choices("107.e-+ x5_", k=rng.randint(1, 4)))],
    "time.clock": moment,
    "time.date": moment,
    "time.weekday": moment,
    "json.filter": of_objects,
    "json.marshal": lambda rng: [rng.choice([texts(rng), {texts(rng): [texts(rng), 2**64 + 1]}])],
    "json.remove": of_objects,
    "net.cidr_contains": lambda rng: [
        rng.choice(NETWORKS),
        rng.choice(["10.0.0.1", "::1", "::ffff:10.0.0.1", "10.0.0.0/9"]),
    ],
    "numbers.range_step": lambda rng: [rng.choice([1, 5, -3]), rng.choice([1, 5, -3]), rng.choice([0, 1, 2, -1])],
    "object.subset": of_parts,
    "semver.compare": lambda rng: [rng.choice(["v1.2.3", "1.2.3", "1.2.4-a", "x"]) for _ in range(2)],
    "sprintf": lambda rng: [
        "".join(rng.choices(FORMATS, k=rng.choice((1, 2)))),
        [anything(rng, 1) for _ in range(rng.randrange(4))],
    ],
    "substring": lambda rng: [texts(rng), rng.choice([0, 1, 1.5, -1, 2**63]), rng.choice([0, 1, 5, -1, 1.5])],
}


def beyond(result: EngineResult) -> bool:
    return isinstance(result, Failed) and result.code == "engine.builtin-limit"


@pytest.mark.opa
@pytest.mark.spec("ENG-2")
@pytest.mark.spec("ENG-7")
@pytest.mark.parametrize("name", OF_ANYTHING)
def test_a_builtin_of_anything_is_what_it_is_in_opa_or_fails(name: str, opa: Opa) -> None:
    rng = random.Random(11)
    rows = [OF_ANYTHING[name](rng) for _ in range(ROWS)]
    given = ", ".join(f"row[{at}]" for at in range(len(rows[0])))
    call = "to_number(row[0]) + 0" if name == "to_number" else f"{name}({given})"  # OPA writes some texts unchanged
    rules = f'w(row) := [v] if {{ v := {call} }} else := "none"\n\n'
    rules += "x := [w(row) | some row in input.rows]\n\ny := w(input.row)\n"
    modules = {"t": f"package t\n\n{rules}"}
    assert opa.load(modules) == []
    theirs = opa.say("t/x", {"rows": rows}, strict=False).value

    for compiled in (True, False):
        results = [ours(modules, {"row": row}, "data.t.y", compiled=compiled, strict=False) for row in rows]
        # A call that OPA answers and this engine cannot fails also where a failing builtin is undefined.
        answered = [row for row in zip(rows, results, theirs, strict=True) if not beyond(row[1])]
        assert [row for row in answered if row[1] != Decided(row[2])] == []
        assert len(answered) > ROWS // 2
