"""The native module itself: what its binding promises beside what the engine on top of it does."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from cmf import _native

RULE = [("t.rego", "package t\n\nx := input.a\n")]


def test_it_says_which_engine_is_inside() -> None:
    assert _native.ENGINE == "regorus 0.14.1"


@pytest.mark.spec("ENG-2")
def test_the_list_of_builtins_is_sorted_and_without_doubles() -> None:
    names = _native.allowed_builtins()

    assert names == sorted(set(names))


def test_rows_tell_the_four_outcomes_apart() -> None:
    policy_set = _native.PolicySet(
        [("t.rego", "package t\nx := input.a\ny := 1 / input.a")], b"{}", ["data.t.x", "data.t.y"]
    )

    rows = policy_set.evaluate(["data.t.x", "data.t.x", "data.t.y"], b"{}", [b'{"a": null}', b"{}", b'{"a": 0}'], 1_000)

    assert rows == [
        ("decided", b"null", "", ""),
        ("undefined", b"", "", ""),
        ("failed", b"", "engine.builtin-error", "arithmetic in data.t.y"),
    ]
    assert policy_set.evaluate(["data.t.x"], b"{}", [b"{}"], 0) == [("timeout", b"", "", "")]


def test_results_are_canonical() -> None:
    policy_set = _native.PolicySet(
        [("t.rego", 'package t\nx := {"b": {3, 1}, "a": [2.50, 10000000000000000000001], 1: null}')],
        b"{}",
        ["data.t.x"],
    )

    row = policy_set.evaluate(["data.t.x"], b"{}", [b"{}"], 1_000)[0]

    assert row[1] == b'{"1":null,"a":[2.5,10000000000000000000001],"b":[1,3]}'


def test_an_exception_carries_five_facts() -> None:
    with pytest.raises(_native.RefusedError) as error:
        _native.PolicySet([("t.rego", "package t\n\nx := http.send({})")], b"{}", [])

    message = "http.send is not available to policies in this engine"
    assert error.value.args == ("policy.banned-builtin", message, "t.rego", 3, 6)
    assert isinstance(error.value, ValueError)


def test_a_policy_set_cannot_be_changed() -> None:
    policy_set = _native.PolicySet(RULE, b"{}", ["data.t.x"])

    with pytest.raises(AttributeError):
        policy_set.forms = []  # type: ignore[misc]
    with pytest.raises(AttributeError):
        policy_set.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "call",
    [
        "s.evaluate(['data.t.x'], '{}', [b'{}'], 1)",
        "s.evaluate(['data.t.x'], b'{}', ['{}'], 1)",
        "s.evaluate(['data.t.x'], b'{}', [b'{}'], -1)",
        "s.evaluate([1], b'{}', [b'{}'], 1)",
        "_native.PolicySet([('a', 'package \\ud800')], b'{}', [])",
        "_native.PolicySet([('a',)], b'{}', [])",
        "_native.PolicySet([], {}, [])",
    ],
)
def test_wrong_types_are_ordinary_exceptions(call: str) -> None:
    names = {"s": _native.PolicySet(RULE, b"{}", ["data.t.x"]), "_native": _native}

    with pytest.raises((TypeError, OverflowError, ValueError)):
        eval(call, names)


@pytest.mark.spec("ENG-9")
def test_nothing_is_written_when_the_engine_panics_or_fails() -> None:
    """In a process of its own: the engine writes past Python's streams."""
    program = """
        from cmf import _native
        rules = "package t\\nx := data.known[input.a]\\ny := to_number(input.b)"
        s = _native.PolicySet([("t.rego", rules)], b'{"known": {}}', ["data.t.x", "data.t.y"], use_compiled=False)
        view = b'{"a": {"canary": 1%s}, "b": "canary"}' % (b"0" * 309)
        for _ in range(3):
            x, y = s.evaluate(["data.t.x", "data.t.y"], b"{}", [view] * 2, 1000)
            assert (x[2], y[2]) == ("engine.panic", "engine.builtin-error")
    """
    environment = {"PYTHONPATH": "src", "RUST_BACKTRACE": "1"}

    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, capture_output=True, text=True, check=False
    )

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
