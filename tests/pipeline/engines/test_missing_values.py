"""Arguments, members and conditions that may be missing: what the two forms make of them."""

from __future__ import annotations

import pytest
from tests.pipeline.engines.asking import ask, engine_of

PROGRAMS = {
    "an argument that is not there": "f(v) := [v]\nx := f(input.a) if input\nx := 0 if not f(input.a)",
    "two arguments, one pattern": 'f(v, "a") := v\nf(v, "b") := v + 1\nx := f(input.a, input.b)',
    "a function with else": "f(v) := 1 if v > 1 else := 2 if v > 0 else := 3\nx := f(input.a)",
    "a function in a loop": "f(v) := v.k\nx := [f(v) | some v in input.list]",
    "members that are not there": "x contains input.a\nx contains input.b\nx contains input.list[0].k\nx contains 1",
    "members behind a condition": "x contains input.a\nx contains input.b if input.a > 1\nx contains input.b",
    "input first in a loop": "x := [input.a | some v in input.list; input.b]\ny := 1",
    "input in a loop and after it": "x if {\n\tevery v in input.list { v.k == input.a }\n\tinput.a\n}",
    "a path that a constant has": 'c := {"a": {"b": 1}}\nx := c.a.b + input.a',
    "a path that a constant has not": 'c := {"a": {"b": 1}}\nx := 1 if c.a.z == input.a\nx := 2 if not c.a.z',
    "a constant that is looked at twice": 'c := {"a": 1}\nx := [c.a, c[input.b], c.a] if input',
    "a value that is asked for twice": "x := [v, v] if {\n\tv := input.a\n\tv != input.b\n}",
    "false as a value": "x := false if input.a\nx := false if input.b",
    "a question first": "p if input.a > 1\nx contains 1 if p\nx contains 2 if { p; input.b }\nx contains 3 if input.b",
    "a question later": "p := input.a\nx contains 1\nx contains 2 if p\nx contains v if { p; some v in [3, 4] }",
    "a question last": "p := input.b\nx contains 1 if input.a\nx contains p if p\nx contains input.a if p",
    "two questions": "p if input.a\nq if input.b\nx contains v if { p; v := 1 }\nx contains 2 if p\nx contains 3 if q",
    "a question and its no": "p if input.a\nx contains 1 if not p\nx contains 2 if not p\nx contains 3 if p",
    "a value in a comprehension in a loop": "x := {v: [w | some w in input.list; w.k == v] | some v in [1, 2]}",
}
DOCUMENTS = (
    {},
    {"a": 1},
    {"a": 2, "b": "b"},
    {"a": 1, "b": "a", "list": [{"k": 1}, {}, {"k": 2}]},
    {"list": [], "b": "z"},
)


@pytest.mark.spec("ENG-11")
@pytest.mark.parametrize("rules", PROGRAMS.values(), ids=PROGRAMS)
def test_what_may_be_missing_gives_what_the_interpreter_gives(rules: str) -> None:
    compiled, interpreted = (engine_of(rules, compiled=is_compiled) for is_compiled in (True, False))

    assert compiled.form == "compiled"
    for document in DOCUMENTS:
        assert ask(compiled, document) == ask(interpreted, document)
