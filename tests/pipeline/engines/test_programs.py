"""Sets that are too large for one program are compiled in several, and a machine that is kept keeps nothing."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipeline.decisions.engine import Decided, Undefined
from pipeline.engines.embedded import EmbeddedEngine

SECONDS = 5.0


def many(count: int, groups: int) -> tuple[list[tuple[str, str]], list[str]]:
    """`count` modules, each asked by one of `groups` entrypoints, and one entrypoint that asks them all."""
    modules = [
        (f"r{number}.rego", f"package r{number}\n\nhit contains {number} if input.n == {number}\n")
        for number in range(count)
    ]
    entrypoints = []
    for group in range(groups):
        members = "\n\n".join(f"all contains x if some x in data.r{n}.hit" for n in range(group, count, groups))
        modules.append((f"g{group}.rego", f"package g{group}\n\n{members}\n"))
        entrypoints.append(f"data.g{group}.all")
    whole = "\n\n".join(f"all contains x if some x in data.g{group}.all" for group in range(groups))
    modules.append(("whole.rego", f"package whole\n\n{whole}\n"))
    return modules, [*entrypoints, "data.whole.all"]


@pytest.mark.spec("ENG-16")
def test_a_set_of_hundreds_of_modules_is_compiled_in_several_programs() -> None:
    modules, entrypoints = many(300, 6)
    engine = EmbeddedEngine(modules, {}, entrypoints, check_every=1)
    views = [json.dumps({"n": n}).encode() for n in (7, 8) for _ in entrypoints]

    results = engine.evaluate(entrypoints * 2, b"{}", views, timeout_seconds=SECONDS)

    assert [name for name, reason in engine.forms.items() if reason is not None] == ["data.whole.all"]
    assert results == [
        Decided([n] if name in (f"data.g{n % 6}.all", "data.whole.all") else []) for n in (7, 8) for name in entrypoints
    ]
    assert engine.differences == 0


@pytest.mark.spec("ENG-16")
def test_what_the_compiler_refuses_does_not_take_the_rest_of_a_large_set_with_it() -> None:
    modules, entrypoints = many(120, 2)
    # More nested loops than one rule has registers for.
    loops = "\n".join(f"some v{n} in input.xs; v{n} > {n}" for n in range(300))
    modules.append(("loops.rego", f"package loops\n\nx if {{\n{loops}\n}}\n"))

    forms = EmbeddedEngine(modules, {}, [*entrypoints, "data.loops.x"]).forms

    assert forms["data.g0.all"] is None
    assert forms["data.g1.all"] is None
    assert forms["data.loops.x"] is not None


@pytest.mark.spec("ENG-6")
def test_a_machine_that_is_kept_keeps_nothing_of_the_view_before() -> None:
    rules = "package t\n\nx := input.secret\n\ny := [v | some v in input.rows]\n\nz := count(y)\n"
    engine = EmbeddedEngine([("t.rego", rules)], {}, ["data.t.x", "data.t.y", "data.t.z"], check_every=0)

    def ask(number: int) -> bool:
        full = json.dumps({"secret": number, "rows": [number] * 3}).encode()
        first = engine.evaluate(["data.t.x", "data.t.z"], b"{}", [full, full], timeout_seconds=SECONDS)
        second = engine.evaluate(["data.t.x", "data.t.y"], b"{}", [b"{}", b"{}"], timeout_seconds=SECONDS)
        return first == [Decided(number), Decided(3)] and second == [Undefined(), Decided([])]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))


@pytest.mark.spec("ENG-6")
def test_a_view_asked_twice_in_one_call_is_parsed_once_and_stays_what_it_is() -> None:
    rules = "package t\n\nx := input.a\n\ny := input.b\n"
    engine = EmbeddedEngine([("t.rego", rules)], {}, ["data.t.x", "data.t.y"], check_every=1)
    one, other = b'{"a": 1, "b": 2}', b'{"a": 3}'
    names = ["data.t.x", "data.t.y"] * 2

    results = engine.evaluate(names, b'{"b": 9}', [one, one, other, other], timeout_seconds=SECONDS)

    assert results == [Decided(1), Decided(2), Decided(3), Decided(9)]
