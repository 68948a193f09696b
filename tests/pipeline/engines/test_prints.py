"""`print(…)` is for authors: what serves a policy never evaluates it, and decides as if it were not there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.pipeline.engines.asking import FORMS, ask, engine_of

from pipeline.decisions.engine import Decided, Failed, Undefined
from pipeline.decisions.errors import EngineError, PolicyError
from pipeline.policy.analysis import Survey, without_prints

SECRET = {"n": "canary-7391", "xs": [3, 1, 2]}
BODIES = [
    'x := input.n if print("n:", input.n, input.missing)',
    "x contains y if { some y in input.xs; print(y); y > 1 }",
    "x := [y | some y in input.xs; print(y); y > 1]",
    "x if every y in input.xs { print(y); y > 0 }",
    'x if { not quiet }\n\nquiet if { print("quiet"); input.n == "b" }',
    'x := 1 if { print("a"); false } else := 2 if print("b")',
    'x if {\n\tprint(\n\t\t"é`)", # )\n\t\t[y | some y in input.xs; print("in", y)],\n\t)\n\tinput.n\n}',
    "f(y) := y if print(y)\n\nx := f(input.n)",
    'x if print(input.xs) with input as {"xs": 1}',
]


@pytest.fixture(scope="module")
def of_opa(opa_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What OPA makes of each of the bodies, printing."""
    place = tmp_path_factory.mktemp("bodies")
    for number, body in enumerate(BODIES):
        (place / f"t{number}.rego").write_text(f"package t{number}\n\n{body}\n", encoding="utf-8")
    (place / "input.json").write_text(json.dumps(SECRET), encoding="utf-8")
    names = ", ".join(f"data.t{number}.x" for number in range(len(BODIES)))
    command = [opa_binary, "eval", "-f", "json", "-d", place, "-i", place / "input.json", f"[{names}]"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert "canary-7391" in done.stderr  # it was told to say it
    answers: list[object] = json.loads(done.stdout)["result"][0]["expressions"][0]["value"]
    return answers


@pytest.mark.spec("ENG-19")
@pytest.mark.parametrize("number", range(len(BODIES)))
@FORMS
def test_print_leaves_the_answer_equal_to_opa_s_and_prints_nothing_by_default(
    number: int, compiled: bool, of_opa: list[object], capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask(engine_of(BODIES[number], compiled=compiled), SECRET)

    assert answer == Decided(of_opa[number])
    assert capfd.readouterr() == ("", "")


@pytest.mark.spec("ENG-19")
@pytest.mark.parametrize("body", BODIES)
def test_all_else_stays_where_it_is(body: str) -> None:
    text = f"package t\n\n{body}\n"

    ((path, silent),) = without_prints([("t.rego", text)])

    assert path == "t.rego"
    assert "print" not in silent
    assert [len(line.encode()) for line in silent.split("\n")] == [len(line.encode()) for line in text.split("\n")]
    assert without_prints([("t.rego", silent)]) == [("t.rego", silent)]


@pytest.mark.spec("ENG-19")
def test_an_error_beside_a_print_names_its_line_in_the_file() -> None:
    with pytest.raises(PolicyError) as error:
        engine_of('x if { print("é", 1); http.send({}) }')

    assert (error.value.code, error.value.line, error.value.column) == ("policy.banned-builtin", 3, 24)


@pytest.mark.spec("ENG-19")
@pytest.mark.parametrize(
    "body", ["x := y if y := print(1)", "x if not print(1)", "x if print(1) == true", "x := print(1)"]
)
def test_it_is_a_condition_by_itself_and_nothing_else(body: str) -> None:
    with pytest.raises(PolicyError) as error:
        engine_of(body)

    assert error.value.code == "policy.banned-builtin"


@pytest.mark.spec("ENG-19")
@FORMS
def test_a_function_of_that_name_is_called(compiled: bool) -> None:
    """In its package, and by an import; a package without one has what everybody has."""
    body = "print(y) if y == 1\n\nx if print(input.n)"
    modules = [("t.rego", f"package t\n\n{body}\n"), ("o.rego", "package o\n\nx if print(2)\n")]
    imported = [
        ("t.rego", "package t\n\nprint(y) if y == 1\n"),
        ("o.rego", "package o\n\nimport data.t.print\n\nx if print(2)\n"),
    ]

    assert ask(engine_of(body, compiled=compiled), {"n": 1}) == Decided(True)
    assert ask(engine_of(body, compiled=compiled), {"n": 2}) == Undefined()
    assert without_prints(modules)[0] == modules[0]
    assert without_prints(modules)[1][1] == "package o\n\nx if true    \n"
    assert without_prints(imported) == imported


@pytest.mark.spec("ENG-19")
def test_what_is_no_rego_is_refused_in_words() -> None:
    with pytest.raises(PolicyError) as error:
        without_prints([("t.rego", "package t\n\nx if print(")])

    assert (error.value.code, error.value.path) == ("policy.parse", "t.rego")


def test_the_survey_reads_no_prints() -> None:
    survey = Survey([("t.rego", "package t\n\nx if print(input.n)\n")])

    assert [definition.reads for definition in survey.definitions()] == [()]


@pytest.mark.spec("ENG-19")
def test_prints_are_collected_in_order_on_request() -> None:
    body = 'x if {\n\tprint("n:", input.n, input.missing)\n\ty\n}\n\ny if { print("y"); false }'
    engine = engine_of(body, compiled=False, keeps_prints=True)

    first, second = engine.printed([("data.t.x", json.dumps(SECRET).encode()), ("data.t.x", b"{}")])

    assert first == ["t.rego:4: n: canary-7391 <undefined>", "t.rego:8: y"]
    assert second == ["t.rego:4: n: <undefined> <undefined>", "t.rego:8: y"]
    assert engine_of(body, compiled=False).printed([("data.t.x", b"{}")]) == [[]]
    with pytest.raises(EngineError, match="input"):
        engine.printed([("data.t.x", b"[1]")])


@pytest.mark.spec("ENG-19")
def test_prints_before_a_failure_are_collected() -> None:
    engine = engine_of('x if { print("before"); contains(input.n, "a") }', compiled=False, keeps_prints=True)

    assert engine.printed([("data.t.x", b'{"n": 1}')]) == [["t.rego:3: before"]]
    assert isinstance(ask(engine, {"n": 1}), Failed)
