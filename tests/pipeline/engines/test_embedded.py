"""What the embedded engine answers, in which form, and to whom."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.pipeline.engines.asking import FAILURES, FORMS, answer, ask, engine_of

from cmf.errors import DecodeError
from pipeline.decisions.engine import Decided, EngineResult, Failed, Undefined
from pipeline.decisions.errors import EngineError
from pipeline.engines import embedded
from pipeline.engines.embedded import EmbeddedEngine, revision_of

HUGE = b'{"a": 1%s}' % (b"0" * 309)  # a whole number beyond those of binary floating point


@pytest.mark.spec("ENG-1")
@FORMS
def test_undefined_null_false_and_failed_are_four_things(compiled: bool) -> None:
    rules = 'u := input.nope\nn := null\nf := false\ns := "<undefined>"\ne := 1 / input.zero'
    engine = engine_of(rules, *"unfse", compiled=compiled)

    results = engine.evaluate([f"data.t.{name}" for name in "unfse"], b'{"zero": 0}', [b"{}"] * 5, timeout_seconds=1)

    assert results[:4] == [Undefined(), Decided(None), Decided(False), Decided("<undefined>")]
    assert isinstance(results[4], Failed)


@pytest.mark.spec("ENG-5")
@FORMS
def test_names_that_differ_only_inside_stay_apart(compiled: bool) -> None:
    names = [f"a{inner}z" for inner in ("b", "c", "\u00e9", '"', "bb", "bc")]
    document = {"there": dict(zip(names, itertools.count())), "back": dict(zip(names[::-1], itertools.count()))}

    assert ask(engine_of("x := input", compiled=compiled), document) == Decided(document)


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
def test_looping_over_what_has_no_members_is_a_difference_that_does_not_count() -> None:
    rules = "x contains y if some y in input.a"
    engine = engine_of(rules, check_every=1)

    assert ask(engine, {"a": 5}) == Decided([])
    assert engine.differences == 0
    interpreted = ask(engine_of(rules, compiled=False), {"a": 5})
    assert isinstance(interpreted, Failed)
    assert interpreted.code == "engine.not-a-collection"


@pytest.mark.spec("ENG-10")
def test_an_operator_that_fails_is_no_difference_where_builtin_errors_are_undefined() -> None:
    rules = "x := [1 | y := {1} & input.a]"
    engine = engine_of(rules, check_every=1, strict_builtin_errors=False)

    assert ask(engine, {"a": "text"}) == Decided([])
    assert engine.differences == 0
    interpreted = ask(engine_of(rules, compiled=False, strict_builtin_errors=False), {"a": "text"})
    assert isinstance(interpreted, Failed)
    assert interpreted.code == "engine.builtin-error"


@pytest.mark.spec("ENG-10")
def test_a_failure_behind_a_definition_that_holds_with_the_same_constant_does_not_count() -> None:
    rules = "x := y\ny := 1 if input.a\ny := 1 if format_int(input.b, 10) == input.c"
    engine = engine_of(rules, check_every=1)

    assert ask(engine, {"a": True, "b": "no number"}) == Decided(1)
    assert engine.differences == 0
    assert ask(engine_of(rules, compiled=False), {"a": True, "b": "no number"}).code == "engine.builtin-error"
    assert ask(engine, {"a": False, "b": "no number"}).code == "engine.builtin-error"


@pytest.mark.spec("ENG-13")
def test_a_query_answers_as_opa_does() -> None:
    engine = engine_of("x contains n if some n in input.l")

    answer = engine.query("some y in data.t.x; z := y + 1", b'{"l": [1, 2]}')

    assert [result["bindings"] for result in answer["result"]] == [{"y": 1, "z": 2}, {"y": 2, "z": 3}]
    assert engine.query("some y in data.t.x; z := y + 1", input={"l": [1, 2]}) == answer
    assert engine.query("data.t.nope", b"{}") == {}
    with pytest.raises(DecodeError):
        engine.query("data.t.x", {"l": object()})


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
        ("data.known[input.a]", HUGE, "engine.panic"),
        ("some i; data.known" + "[i]" * 26, b"{}", "policy.nesting"),
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
@pytest.mark.parametrize(("document", "code"), [(b"[]", "input.not-object"), (HUGE, "engine.panic")])
def test_coverage_refuses_what_an_evaluation_refuses(document: bytes, code: str) -> None:
    with pytest.raises(EngineError) as error:
        engine_of("x := data.known[input.a]").coverage([("data.t.x", document)])

    assert error.value.code == code


@pytest.mark.spec("ENG-1")
def test_a_value_that_is_no_json_object_is_no_decision() -> None:
    assert answer('x := {1: "a", "1": "b"}', {}) == Failed("engine.bad-result")
