"""One corpus for the matcher in Python and the one in Rego [B6]."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.views.uris import matches, normalise
from pipeline.decisions.engine import Decided
from pipeline.engines.embedded import EmbeddedEngine
from pipeline.policy import policy_set

CORPUS = [
    ("tool://mail/send", "tool://mail/send", True),
    ("tool://mail/send", "**", True),
    ("tool://mail/send", "tool://*/send", True),
    ("tool://mail/send", "tool://*/*", True),
    ("tool://mail/send", "tool://*", False),
    ("tool://mail/send", "tool://**", True),
    ("tool://mail/send_now", "tool://mail/send_*", True),
    ("tool://mail/send_now", "tool://mail/*_n*", True),
    ("tool://Mail/send", "tool://mail/*", False),
    ("tool://my_namespace/tool", "tool://my.namespace/*", False),
    ("tool://a/b1", "tool://a/b[1]*", False),
    ("tool://a/.hidden", "tool://a/*", True),
    ("tool://a/(b)+?", "tool://*/(b)+?", True),
    ("tool://a/b|c", "tool://*/b", False),
    ("tool://a/{x,y}", "tool://*/{x,y}", True),
    ("tool://a/x", "tool://*/{x,y}", False),
    ("tool://a/!b", "tool://*/!b", True),
    ("tool://a/^$", "tool://*/^$", True),
    ("file:///a/b/c.txt", "file:///**/c.txt", True),
    ("file:///c.txt", "file:///**/c.txt", True),
    ("file:///a/b/c.txt", "file:///a/**", True),
    ("file:///a", "file:///a/**", True),
    ("file:///ab", "file:///a/**", False),
    ("file:///a/b/c/d", "file:///a/**/d", True),
    ("file:///a/b/c/d", "file:///a/*/d", False),
    ("file:///a/b/c/d", "file:///a/b**/d", False),
    ("file:///a/bc/d", "file:///a/b**/d", True),
    ("file:///a/b", "file:///a/***", True),
    ("llm://openai/gpt-4o", "llm://openai/gpt-4*", True),
    ("llm://ollama/minimax-m3%3Acloud", "llm://ollama/*", True),
    ("opaque://canonical/message", "opaque://canonical/message", True),
    ("x", "**/x", True),
    ("", "", True),
    ("", "**", True),
    ("a", "", False),
]
RULE = """
package patterns

import data.cmf.lib

matched contains index if {
	some index, [uri, pattern] in input.cases
	lib.uri_matches(uri, pattern)
}

any_matched contains index if {
	some index, [uri, patterns] in input.cases
	lib.any_expression_matches(uri, lib.expressions(patterns))
}
"""
ENTRYPOINTS = ["data.patterns.matched", "data.patterns.any_matched"]
CHARACTERS = "ab/*.-_[?+(é"


@pytest.fixture(scope="module")
def rego() -> EmbeddedEngine:
    lib = (policy_set.shipped() / "cmf" / "lib" / "lib.rego").read_text(encoding="utf-8")
    return EmbeddedEngine([("lib.rego", lib), ("patterns.rego", RULE)], {}, ENTRYPOINTS)


def matched(
    engine: EmbeddedEngine, cases: Sequence[tuple[str, str | list[str]]], entrypoint: str = ENTRYPOINTS[0]
) -> list[bool]:
    view = json.dumps({"cases": cases}).encode()
    (result,) = engine.evaluate([entrypoint], b"{}", [view], timeout_seconds=10.0)
    assert isinstance(result, Decided), result
    return [index in result.value for index in range(len(cases))]


@pytest.mark.spec("POL-20")
def test_the_corpus_in_rego(rego: EmbeddedEngine) -> None:
    answers = matched(rego, [(uri, pattern) for uri, pattern, _ in CORPUS])

    assert [case[:2] for case, answer in zip(CORPUS, answers, strict=True) if answer is not case[2]] == []


@pytest.mark.spec("POL-20")
@pytest.mark.parametrize("count", [0, 1, 8, 9, 20])
def test_several_patterns_match_where_one_of_them_does(rego: EmbeddedEngine, count: int) -> None:
    cases = [(uri, [pattern for _, pattern, _ in CORPUS[at : at + count]]) for at, (uri, _, _) in enumerate(CORPUS)]

    answers = matched(rego, cases, ENTRYPOINTS[1])

    assert answers == [any(matches(uri, pattern) for pattern in patterns) for uri, patterns in cases]


@pytest.mark.spec("POL-20")
def test_the_corpus_in_python() -> None:
    assert [case[:2] for case in CORPUS if matches(case[0], case[1]) is not case[2]] == []


@pytest.mark.spec("POL-20")
@given(st.lists(st.tuples(st.text(CHARACTERS, max_size=8), st.text(CHARACTERS, max_size=8)), min_size=1, max_size=40))
def test_both_agree_on_normalised_text(rego: EmbeddedEngine, cases: list[tuple[str, str]]) -> None:
    prepared = [(normalise(f"tool://n/{uri}"), normalise(f"tool://n/{pattern}")) for uri, pattern in cases]

    assert matched(rego, prepared) == [matches(uri, pattern) for uri, pattern in prepared]
