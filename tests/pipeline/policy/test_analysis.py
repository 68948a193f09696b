"""What a set reads and calls, read off its text."""

from __future__ import annotations

import pytest

from pipeline.decisions.errors import PolicyError
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy.analysis import Survey


def reads(text: str, rule: str = "x") -> set[str]:
    survey = Survey([("t.rego", f"package t\n\nimport input.request as req\nimport data.known\n\n{text}\n")])
    reached = survey.reachable([("data", "t", rule)])
    return {".".join(read.path) for one in reached for definition in one.definitions for read in definition.reads}


@pytest.mark.spec("ENG-15")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x := input.a.b", {"input.a.b"}),
        ('x := input["a"]["b c"]', {"input.a.b c"}),
        ("x := input.a[_].b", {"input.a"}),
        ("x := input[input.key]", {"input", "input.key"}),
        ("x := req.path", {"input.request.path"}),
        ("x if { y := input.a; y.b }", {"input.a"}),
        ("x := f(input.a)\nf(y) := y.b + input.c", {"input.a", "input.c"}),
        ("x := y\ny := z\nz := input.deep", {"data.t.y", "data.t.z", "input.deep"}),
        ("x := known.thing", {"data.known.thing"}),
        ('x := object.get(input, "a", 1)', {"input.a"}),
        ('x := object.get(input.a, ["b", "c"], input.d)', {"input.a.b.c", "input.d"}),
        ("x := object.get(input.a, input.b, 1)", {"input.a", "input.b"}),
        ('x := object.get(input, ["a", input.b], 1)', {"input", "input.b"}),
        ("x := [y | some y in input.a; not input.b]", {"input.a", "input.b"}),
        ("x if every y in input.a { y == input.b }", {"input.a", "input.b"}),
        ("x := input.a if input.b else := input.c", {"input.a", "input.b", "input.c"}),
        ("x[k] := input.v if k := input.k", {"input.k", "input.v"}),
        ("x contains input.v", {"input.v"}),
        ("x := count(input)", {"input"}),
        ("x := 1 if y with input.a as input.b\ny if input.a", {"input.a", "input.b", "data.t.y"}),
    ],
)
def test_reads_are_paths_up_to_the_first_computed_step(text: str, expected: set[str]) -> None:
    assert reads(text) == expected


@pytest.mark.spec("ENG-15")
@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("x if every y in input.a { y == 1 }", []),
        ("x if every y, z in input.a { y == z }", []),
        ("x if { y := input.b; every z in input.a { z == y } }", ["y"]),
        ("x(y) if every y in input.a { y == 1 }", []),
        ("x if every y in [1] { every z in y { z == y } }", []),
        ("x if every y in input.a { w := y + 1; some v in input.b; v > w }", []),
        ("x(v) if every y in input.a { count([w | some w in input.b; w > v; y]) > 0 }", ["v"]),
    ],
)
def test_what_an_every_names_itself_it_does_not_need(text: str, needs: list[str]) -> None:
    rule = Survey([("t.rego", f"package t\n\n{text}\n")]).rule(("data", "t", "x"))

    assert rule is not None
    assert rule.definitions[0].raw["bodies"][0]["statements"][-1]["needs"] == needs


@pytest.mark.spec("ENG-15")
def test_a_set_for_another_engine_is_surveyed() -> None:
    survey = Survey([("t.rego", 'package t\n\nx := http.send({"url": input.u})\n')])

    rule = survey.rule(("data", "t", "x"))

    assert rule is not None
    assert [call.name for call in rule.definitions[0].calls] == ["http.send"]


@pytest.mark.spec("ENG-15")
def test_what_is_no_set_at_all_is_refused_with_its_place() -> None:
    for text, code in (("x := {", "policy.parse"), ("x := y\ny := x", "policy.recursion"), ("x :=", "policy.parse")):
        with pytest.raises(PolicyError) as caught:
            Survey([("t.rego", f"package t\n\n{text}\n")])
        assert (caught.value.code, caught.value.path) == (code, "t.rego")
        assert caught.value.line > 0
        assert caught.value.hint


@pytest.mark.spec("ENG-15")
def test_constants_are_put_together_as_far_as_they_go() -> None:
    text = (
        'a := "x"\nb := concat("-", [a, data.words.y, "z"])\nc := concat("", [b, input.d])\n'
        "d := concat(a, [c])\n_s := data.words\nloop := concat(loop2, [])\nloop2 := a"
    )
    survey = Survey([("t.rego", f"package t\n\n{text}\n")])
    data = {"words": {"y": "Y", "n": 1}}

    def known(*path: str) -> str | None:
        return survey.text_of({"path": list(path)}, data)

    assert known("data", "t", "b") == "x-Y-z"
    assert known("data", "t", "_s", "y") == "Y"
    assert [known("data", "t", name) for name in "cd"] == [None, None]
    assert known("data", "words", "n") is None
    assert known("input", "a") is None
    assert survey.rule_of(("data", "t", "a", "b")) is survey.rule(("data", "t", "a"))
    assert survey.rule_of(("data", "u")) is None


@pytest.mark.spec("ENG-3")
@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("r if { input.a == 'x' }", "double quotes"),
        ("r if {\n\tinput.a && input.b\n}", "line of its own"),
        ("r if input.a || input.b", "rule of its own"),
        ('r := $"no {input.a}"', "sprintf"),
        ("r if input.a == “x”", "ASCII"),
        ("größe := 3", "ASCII"),
        ("r { input.a }", "Rego v1"),
        ("r if { input.a", "brackets"),
        (f'r if input.a in ["{"x" * 65_100}"]', "break the line"),
        ('f("a")', ":= true"),
        ("import rego.v1\nimport future.keywords.in\nr := 1", "once"),
        ("import data.x\nimport data.x\nr := x", "once"),
        ("r if {\n\tok\n\t(1 + 2) == 3\n}\n\nok if input.a", "next line"),
        ("r if nothing(1)", "spelling"),
        ("r if input.a; input.b", "braces"),
        ("r if { not some x in input.a }", "`_holds if …`"),
        ("r if { not every x in input.a { x } }", "`_holds if …`"),
        ("r if input.a and input.b", "line of its own"),
        ("r if {\n\tinput.a or input.b\n}", "each alternative"),
        ("r if {\n\tif input.a\n}", "each alternative"),
        ("r contains 1 if {\n\tinput.a\n} else if {\n\tinput.b\n}", "each alternative"),
        ("r if !input.a", "`not …`"),
        ("r if { input.a not in {1} }", "`not a in b`"),
        ("r if { input.a is true }", "`==`"),
        ("r if { input.a in (1, 2) }", "members in"),
        ("r if {\n\tx := not input.a\n\tx\n}", "`_absent if not …`"),
        ("r if {\n\tfor x in input.a\n\tx == 1\n}", "`some x in …`"),
        ("r if { for k, v in input.a; v == 1 }", "`some x in …`"),
        ("r := = 1", "reference"),
    ],
)
def test_what_is_no_rego_is_refused_with_what_to_do(text: str, hint: str) -> None:
    with pytest.raises(PolicyError) as caught:
        EmbeddedEngine([("a.rego", f"package a\n\n{text}\n")], {}, ["data.a.r"])

    assert hint in caught.value.hint
    assert not caught.value.message.endswith(":")
