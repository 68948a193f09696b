"""Patterns mean the same in the embedded engine and in OPA, or are refused."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.engines.asking import ask, engine_of

from cmf import _native
from pipeline.decisions.engine import Decided, Failed

RULES = """
answers := [answer | some pair in input.pairs; answer := _answer(pair)]

_answer(pair) := {
    "match": regex.match(pair.pattern, pair.text),
    "found": regex.find_n(pair.pattern, pair.text, -1),
    "groups": regex.find_all_string_submatch_n(pair.pattern, pair.text, -1),
    "replaced": regex.replace(pair.text, pair.pattern, "<$0>"),
    "split": regex.split(pair.pattern, pair.text),
} if regex.is_valid(pair.pattern)

_answer(pair) := "invalid" if not regex.is_valid(pair.pattern)
"""

# What the two dialects were seen to read differently, and their neighbours.
CHOSEN = [
    r"\d+",
    r"\D+",
    r"[\d.]+",
    r"[^\d]+",
    r"[\D]+",
    r"[^\D]",
    r"\w+",
    r"\W+",
    r"[\w-]+",
    r"[\W_]",
    r"\s+",
    r"\S+",
    r"[\s,]",
    r"[^\s]",
    r"[\S]",
    r"\bw",
    r"\B.",
    r"(?i)k\b",
    r"(?i)[k]",
    r"(?i)\w+",
    r"(?i)straße",
    r"(?i)ſ",
    r"[a&&b]+",
    r"[a--b]",
    r"[a~~b]+",
    r"[a[b]+",
    r"[[ab]]",
    r"[]a]+",
    r"[^]a]+",
    r"[a-]",
    r"[-a]",
    r"[a-c-e]",
    r"[a-c&]+",
    r"[[:alpha:]]+",
    r"[[:^digit:]]+",
    r"[[:word:]é]+",
    r"[[:nope:]]",
    r"[:alpha:]",
    r"a{2}",
    r"a{2,}",
    r"a{1,2}",
    r"a{,2}",
    r"a{",
    r"a{x}",
    r"{",
    r"}",
    r"a{2}{3}",
    r"a**",
    r"a+?",
    r"a??",
    r"*a",
    r"(*a)",
    r"a|*",
    r"|a",
    r"(|a)",
    r"()",
    r"",
    r"^*",
    r"a{1001}",
    r"\Aa",
    r"a\z",
    r"a$",
    r"(?m)a$",
    r"(?m)^b",
    r"(?s).+",
    r"(?U)a+",
    r"(?U)a+?",
    r"(?x)a b",
    r"(?u)a",
    r"(?-i)a",
    r"(?i-s:A)",
    r"(?P<n>a)",
    r"(?<n>a)",
    r"(?P=n)",
    r"(?=a)",
    r"(?!a)",
    r"(?<=a)",
    r"(?<!a)b",
    r"(?>a)",
    r"\x41",
    r"\x{41}",
    r"\x{1F600}",
    r"\xG1",
    r"\u0041",
    r"\101",
    r"\07",
    r"\1",
    r"(a)\1",
    r"\Qa.b\E+",
    r"\Q.",
    r"\Q\E*",
    r"\C",
    r"\pL+",
    r"\p{L}+",
    r"\p{Greek}+",
    r"\P{Greek}+",
    r"\p{^Greek}",
    r"\P{^Greek}+",
    r"[\p{^L}]",
    r"\0",
    r"\1012",
    r"[\101-\103]",
    r"\18",
    r"\p{Lu}",
    r"[\p{Lu}\d]+",
    r"[\pN]",
    r"\pé",
    r"\<",
    r"\>",
    r"\_",
    r"\-",
    r"\/",
    r"\%",
    r"\é",
    r"\y",
    r"\a",
    r"[\a]",
    r"[\b]",
    r"\Z",
    r"\z",
    r"[\z]",
    r"[z-a]",
    r"[a-\d]",
    r"[\d-a]",
    r"a\\",
    "a\\",
    r"#a b",
    r"(?i)İ",
    r"é+",
    r"[é-ü]+",
    r"[^a]",
    r".",
    r"(?i)[^k]+",
    r"[\x{2028}-\x{2029}]",
]
TEXTS = [
    "",
    "a",
    "aa b{2} k1 W_w-é",
    "٣ 12 ３ ſ K\u212a straße STRASSE",
    "line\nb\r\na\tc\vd\fe\u00a0f\u2028g",
    "a.b [a] &~-^]{x} a{,2} ||",
    "aaabbb",
    "Ωλ Zz \x07 \u1680 Ünïcode ²",
    "z-a&b~c--d",
    "\U0001f600AS",
]

# A made-up pattern is a few of these in a row.
PIECES = [
    "a",
    "b",
    "k",
    "é",
    " ",
    "-",
    "&",
    "~",
    ".",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "\\b",
    "\\B",
    "[",
    "]",
    "[^",
    "(",
    ")",
    "(?:",
    "(?i)",
    "(?i:",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{1,3}",
    "{,2}",
    "{",
    "}",
    "^",
    "$",
    "\\pL",
    "\\x{e9}",
    "\\.",
    "\\[",
    "[a-z]",
    "[^\\d]",
    "[\\w.]",
    "&&",
    "--",
    "[:alpha:]",
    "\\Q",
    "\\E",
    "\\-",
]

Compare = Callable[[Sequence[str]], dict[str, int]]


@pytest.fixture
def compare(opa_binary: Path, tmp_path: Path) -> Compare:
    """A function that holds both engines to each other over patterns, and counts what came of them."""

    def both(patterns: Sequence[str]) -> dict[str, int]:
        pairs = [{"pattern": pattern, "text": text} for pattern in patterns for text in TEXTS]
        policy, document = tmp_path / "t.rego", tmp_path / "input.json"
        policy.write_text(f"package t\n{RULES}")
        document.write_text(json.dumps({"pairs": pairs}))
        arguments = ["eval", "--data", policy, "--input", document, "--format", "raw", "data.t.answers"]
        theirs = json.loads(subprocess.run([opa_binary, *arguments], check=True, capture_output=True).stdout)
        engine = engine_of(RULES, "answers")
        counts = {"alike": 0, "invalid": 0, "refused": 0}
        for pair, expected in zip(pairs, theirs, strict=True):
            counts[_outcome(ask(engine, {"pairs": [pair]}, "answers", seconds=5), pair, expected)] += 1
        return counts

    return both


def _outcome(result: object, pair: dict[str, str], expected: Any) -> str:
    if result == Failed("engine.builtin-limit", "regex.is_valid in data.t._answer"):
        assert _native.foreign_pattern(pair["pattern"]) is not None, pair
        return "refused"
    assert isinstance(result, Decided), (pair, result)
    if result.value == ["invalid"]:
        if expected == "invalid":
            return "invalid"
        # What OPA takes and this engine cannot is said when the set is loaded.
        assert _native.foreign_pattern(pair["pattern"]) is not None, pair
        return "refused"
    assert result.value == [expected], pair
    return "alike"


@pytest.mark.spec("ENG-14")
def test_patterns_that_dialects_read_differently_mean_what_they_mean_in_opa(compare: Compare) -> None:
    counts = compare(CHOSEN)

    assert counts["alike"] > 90 * len(TEXTS), counts
    assert counts["refused"] <= 12 * len(TEXTS), counts


@pytest.mark.proof
@pytest.mark.spec("ENG-14")
def test_made_up_patterns_mean_what_they_mean_in_opa(
    compare: Compare, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    dice = random.Random(proof_seed)
    patterns = ["".join(dice.choices(PIECES, k=dice.randint(1, 6))) for _ in range(int(6_000 * proof_scale))]

    counts = compare(patterns)

    proof_row("Patterns mean the same in both engines", patterns=len(patterns), **counts)
    assert counts["alike"] > counts["refused"], counts


@pytest.mark.spec("ENG-14")
@pytest.mark.parametrize(
    ("pattern", "instead"),
    [
        (r"(?x)a b", "flags i, m, s and U"),
        (r"(?=a)", "(?:…)"),
        (r"\u0041", r"\x{…}"),
        (r"\1", "what is referred to"),
        (r"\8", "what is referred to"),
        (r"a**", "group"),
        (r"\p{^greek}", r"\p{…}"),
        (r"a{1001}", "group"),
        (r"\pL{600}", "repeat less"),
        (r"[[:nope:]]", "[:alpha:]"),
        (r"(", "correct it"),
    ],
)
def test_what_only_one_dialect_has_is_named_with_what_to_write_instead(pattern: str, instead: str) -> None:
    found = _native.foreign_pattern(pattern)

    assert found is not None
    assert instead in found[1]
