"""How the tests of the embedded engine ask it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.decisions.engine import EngineResult
from pipeline.engines.embedded import EmbeddedEngine

FORMS = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "interpreted"])


def engine_of(rules: str, *names: str, compiled: bool = True, check_every: int = 0, **settings: Any) -> EmbeddedEngine:
    """An engine of one module, `t.rego`, package `t`; entrypoints by rule name, `x` if none is given."""
    modules = [("t.rego", f"package t\n\n{rules}\n")]
    entrypoints = [f"data.t.{name}" for name in names or ("x",)]
    return EmbeddedEngine(
        modules,
        {"known": {"list": [1, 2], "map": {"a": 1}}},
        entrypoints,
        use_compiled=compiled,
        check_every=check_every,
        **settings,
    )


def ask(engine: EmbeddedEngine, document: object, name: str = "x", *, seconds: float = 1.0) -> EngineResult:
    return engine.evaluate([f"data.t.{name}"], b"{}", [json.dumps(document).encode()], timeout_seconds=seconds)[0]


def answer(rules: str, document: object, *, compiled: bool = True) -> EngineResult:
    return ask(engine_of(rules, compiled=compiled), document)


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
