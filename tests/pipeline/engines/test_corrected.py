"""Builtins that the crate answers otherwise than OPA are answered as OPA answers them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.engines.asking import FORMS

from pipeline.decisions.engine import Decided, Failed
from pipeline.engines.embedded import EmbeddedEngine

Draw = Callable[[random.Random], list[Any]]
LETTERS = "ab/é😀\u0130 "
ESCAPED = ["a", "é", "=", "&", "#", "+", "%2B", "%23", "%C3%A9", "%ff", "%00", "%2f", "\t", "\n", " ", "?", "/", "😀"]
ADDRESSES = [
    "10.1.2.3",
    "::ffff:10.1.2.3",
    "::FFFF:0a01:0203",
    "::10.1.2.3",
    "fd00::1",
    "11.0.0.1",
    "::1",
    "10.0.0.0/9",
]
NETWORKS = ["10.0.0.0/8", "0.0.0.0/0", "fd00::/8", "::/0", "10.1.2.3/32"]
GLOBS = ["a", "b", "*", "**", "***", "?", "[ab]", "[!a]", "[a-c]", "[!/]", "{a,b}", "{a*,b?}", "{a,{b,c}}", "{,a}"]
SEPARATORS = [["/"], ["."], [], [":"], [":", "/"], None]  # of `-` see "Where engines differ"
OBJECT = {"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "b": 1, "": {"a": 3}}
PATHS = ["/a/b", "a/b", "/b", "//a/d", "a/d/1", "/a/d/0", "/c", "b", "/"]


BAD_GLOBS = ["[a", "{a", "[]", "[z-a]", "[a-z0]", "{", "\\", "{a,b", "[!]", "a{b", "[^", 1]


def word(rng: random.Random, most: int = 6) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randrange(most)))


def query(rng: random.Random) -> str:
    return "".join(rng.choices(ESCAPED, k=rng.randrange(8)))


def pairs(rng: random.Random) -> dict[str, str]:
    return {word(rng, 3) or "a": word(rng, 4) for _ in range(rng.randrange(5))}


def paths(rng: random.Random) -> list[str]:
    """Of which none leads below another: what is kept and taken out then is another difference."""
    return [rng.choice(PATHS)]


def glob(rng: random.Random) -> list[Any]:
    pattern = "".join(rng.choices([*GLOBS, ".", "/", ":", "é", "\\*", "\\,"], k=rng.randrange(1, 5)))
    return [pattern, rng.choice(SEPARATORS), "".join(rng.choices("aabbc./:é*😀,", k=rng.randrange(5)))]


DRAWN: dict[str, Draw] = {
    "glob.match": glob,
    "glob.quote_meta": lambda rng: ["".join(rng.choices("a*?[]{}\\,-!^é", k=6))],
    "count": lambda rng: [word(rng)],
    "json.filter": lambda rng: [OBJECT, paths(rng)],
    "json.remove": lambda rng: [OBJECT, paths(rng)],
    "net.cidr_contains": lambda rng: [rng.choice(NETWORKS), rng.choice(ADDRESSES)],
    "strings.replace_n": lambda rng: [pairs(rng), word(rng, 12)],
    "urlquery.decode": lambda rng: [query(rng)],
    "urlquery.decode_object": lambda rng: [query(rng)],
}


def module(name: str) -> str:
    """A rule that asks the builtin about each row of arguments."""
    arity = len(DRAWN[name](random.Random(0)))
    given = ", ".join(f"row[{at}]" for at in range(arity))
    return f"package t\n\nx := [{name}({given}) | some row in input.rows]\n"


@pytest.mark.opa
@pytest.mark.spec("ENG-2")
@pytest.mark.parametrize("name", DRAWN)
def test_it_answers_as_opa_does(name: str, opa_binary: Path, tmp_path: Path) -> None:
    rng = random.Random(7)
    document = json.dumps({"rows": [DRAWN[name](rng) for _ in range(2_000)]})
    (tmp_path / "t.rego").write_text(module(name), encoding="utf-8")
    command = [opa_binary, "eval", "--format=json", "-d", tmp_path / "t.rego", "--stdin-input", "data.t.x"]
    done = subprocess.run(command, input=document, capture_output=True, text=True, check=True)
    expected = json.loads(done.stdout)["result"][0]["expressions"][0]["value"]

    for compiled in (True, False):
        engine = EmbeddedEngine([("t.rego", module(name))], {}, ["data.t.x"], use_compiled=compiled)
        (answer,) = engine.evaluate(["data.t.x"], b"{}", [document.encode()], timeout_seconds=5.0)
        assert isinstance(answer, Decided)
        differing = [
            row for row in zip(json.loads(document)["rows"], answer.value, expected, strict=True) if row[1] != row[2]
        ]
        assert differing == []


@pytest.mark.spec("ENG-2")
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        ("urlquery.decode(input.a)", "%"),
        ("urlquery.decode(input.a)", "%4"),
        ("urlquery.decode(input.a)", "a%zz"),
        ("urlquery.decode(input.a)", "%+1"),
        ("urlquery.decode_object(input.a)", "a=%é"),
        ("urlquery.decode_object(input.a)", "a;b"),
        ("urlquery.decode(input.a)", 1),
        *((f"glob.match(input.a, {mark}, `a`)", bad) for mark in ("null", "[`/`]") for bad in BAD_GLOBS),
        ("glob.match(`a`, [`ab`], input.a)", "a"),
        ("glob.match(`a`, `/`, input.a)", "a"),
        ("glob.quote_meta(input.a)", 1),
        ("count(input.a)", 1),
        ('net.cidr_contains("10.0.0.0/8", input.a)', "x"),
        ('net.cidr_contains("10.0.0.0/8", input.a)', 1),
        ("strings.replace_n(input.a, `b`)", {"a": 1}),
        ("strings.replace_n(input.a, `b`)", "a"),
        ("strings.replace_n({`a`: `b`}, input.a)", 1),
        ("json.remove(input.a, [`/a`])", "a"),
    ],
)
@FORMS
def test_what_opa_fails_on_fails(call: str, argument: object, compiled: bool) -> None:
    engine = EmbeddedEngine([("t.rego", f"package t\n\nx := {call}\n")], {}, ["data.t.x"], use_compiled=compiled)

    (answer,) = engine.evaluate(["data.t.x"], b"{}", [json.dumps({"a": argument}).encode()], timeout_seconds=2.0)

    assert isinstance(answer, Failed)
    assert answer.code == "engine.builtin-error"
