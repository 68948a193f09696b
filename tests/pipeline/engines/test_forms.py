"""The compiled form and the interpreter, held against each other and against OPA."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.engines.rego_programs import CHOSEN, DATA, DOCUMENT, Maker

from pipeline.decisions.engine import Decided, EngineResult, Failed, Undefined
from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine

PROGRAMS = 20_000
VIEW = json.dumps(DOCUMENT).encode()


def engine_of(rules: str, *names: str, compiled: bool, check_every: int = 0) -> EmbeddedEngine:
    entrypoints = [f"data.t.{name}" for name in names]
    return EmbeddedEngine(
        [("t.rego", f"package t\n{rules}\n")], DATA, entrypoints, use_compiled=compiled, check_every=check_every
    )


def result_of(engine: EmbeddedEngine, name: str) -> EngineResult:
    return engine.evaluate([f"data.t.{name}"], b"{}", [VIEW], timeout_seconds=5)[0]


@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize("rules", CHOSEN)
def test_both_forms_give_the_same(rules: str) -> None:
    compiled, interpreted = engine_of(rules, "x", compiled=True), engine_of(rules, "x", compiled=False)

    assert result_of(compiled, "x") == result_of(interpreted, "x")


def test_most_programs_have_a_compiled_form_to_compare() -> None:
    forms = [engine_of(rules, "x", compiled=True).form for rules in CHOSEN]

    assert forms.count("compiled") >= len(CHOSEN) - 3


@pytest.mark.spec("ENG-11")
@pytest.mark.opa
def test_both_forms_give_what_opa_gives(opa_binary: Path, tmp_path: Path) -> None:
    for number, rules in enumerate(CHOSEN):
        (tmp_path / f"{number}.rego").write_text(f"package p{number}\n\n{rules}\n", encoding="utf-8")
    (tmp_path / "data.json").write_text(json.dumps(DATA), encoding="utf-8")
    (tmp_path / "input.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    command = [opa_binary, "eval", "--data", tmp_path, "--input", tmp_path / "input.json", "data"]

    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    packages = answer["result"][0]["expressions"][0]["value"]

    differing = {}
    for number, rules in enumerate(CHOSEN):
        theirs = Decided(packages[f"p{number}"]["x"]) if "x" in packages[f"p{number}"] else Undefined()
        if (ours := result_of(engine_of(rules, "x", compiled=True), "x")) != theirs:
            differing[rules] = (ours, theirs)
    assert differing == {}


@pytest.mark.spec("ENG-11")
@pytest.mark.proof
def test_both_forms_give_the_same_for_made_up_programs(
    proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    maker = Maker(proof_seed)
    kinds: Counter[str] = Counter()
    for _ in range(int(PROGRAMS * proof_scale)):
        rules = maker.program()
        try:
            compiled, interpreted = (engine_of(rules, "x", "y", compiled=form) for form in (True, False))
        except PolicyError:
            kinds["refused"] += 1
            continue
        for name in ("x", "y"):
            if compiled.forms[f"data.t.{name}"] is not None:
                kinds["interpreted"] += 1
                continue
            ours, theirs = result_of(compiled, name), result_of(interpreted, name)
            kinds[type(ours).__name__] += 1
            assert _agree(ours, theirs) or not _alarms(rules, name), (rules, name, ours, theirs)

    proof_row("the compiled form and the interpreter agree", seed=proof_seed, **kinds)
    assert kinds["Decided"] > 0.1 * PROGRAMS * proof_scale


def _agree(compiled: EngineResult, interpreted: EngineResult) -> bool:
    """Equal, or failed by a builtin that the interpreter did not come to, or what [ENG-10] lets pass."""
    if isinstance(compiled, Failed):
        early = {"engine.builtin-error", "engine.builtin-limit", "engine.conflict"}
        return isinstance(interpreted, Failed) or compiled.code in early
    if isinstance(interpreted, Failed):
        return interpreted.code == "engine.not-a-collection"
    return compiled == interpreted


def _alarms(rules: str, name: str) -> bool:
    """Whether the engine's own watch takes it for a difference [ENG-10]."""
    engine = engine_of(rules, name, compiled=True, check_every=1)
    result_of(engine, name)
    return engine.differences > 0


@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize(
    "rules",
    [
        "x contains [k, v] if some k, v in input.rows[_]",
        'x := {f: input.obj[f] | some f in ["p", "a"]}',
        "x := [v | some v in input.rows[_]; v != 1]",
    ],
)
def test_two_loops_in_one_statement_and_constant_keys_are_compiled(rules: str) -> None:
    assert engine_of(rules, "x", compiled=True).form == "compiled"


@pytest.mark.spec("ENG-10")
@pytest.mark.parametrize(
    "rules", ["x := {k: v | some k, v in input.rows[_]}", 'x := {f: input.nums[_] | some f in {"p"}}']
)
def test_comprehensions_whose_keys_may_meet_are_interpreted(rules: str) -> None:
    assert engine_of(rules, "x", compiled=True).form == "interpreted"


IMPORTING = """package t

import data.lib.tools
import data.lib.tools.fine as ok
import data.settings as given
import input.obj as things

a := [tools.fine, ok, given.limit, things.p, tools.double(2)]

b := [item | some item in tools.members; item > tools.fine]

c if not tools.missing

d contains tools.members[_] if tools["fine"] == 3

e := item if { item := given.limit }
"""
IMPORTED = """package lib.tools

fine := 3

members := {3, 4}

missing if input.nothing

broken := to_number(input.s)

double(n) := n * 2
"""


@pytest.mark.spec("ENG-11")
@pytest.mark.opa
def test_imported_names_mean_what_they_name_and_nothing_beside_it(opa_binary: Path, tmp_path: Path) -> None:
    modules, data = [("t.rego", IMPORTING), ("lib.rego", IMPORTED)], {"settings": {"limit": 5}}
    for path, text in modules:
        (tmp_path / path).write_text(text, encoding="utf-8")
    (tmp_path / "data.json").write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / "input.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    command = [opa_binary, "eval", "--data", tmp_path, "--input", tmp_path / "input.json", "data.t"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    theirs = answer["result"][0]["expressions"][0]["value"]

    for compiled in (True, False):
        engine = EmbeddedEngine(
            modules, data, [f"data.t.{name}" for name in "abcde"], use_compiled=compiled, check_every=0
        )
        assert {name: result_of(engine, name) for name in "abcde"} == {name: Decided(theirs[name]) for name in "abcde"}
        assert engine.form == ("compiled" if compiled else "interpreted")
