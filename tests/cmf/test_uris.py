"""URIs and the patterns that match them. The same corpus is run in Rego (tests/policies)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.uris import matches, normalise, segment, tool_uri
from tests.cmf.uri_corpus import CORPUS


@pytest.mark.spec("VIEW-10")
@pytest.mark.spec("VIEW-11")
@pytest.mark.parametrize(("uri", "pattern", "expected"), CORPUS)
def test_the_corpus_of_patterns(uri: str, pattern: str, expected: bool) -> None:
    assert matches(uri, pattern) is expected


@pytest.mark.spec("VIEW-9")
@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("FILE:///a/./b/../c", "file:///a/c"),
        ("https://EXAMPLE.com/A", "https://example.com/A"),
        ("file:///ok/%2e%2e/etc", "file:///etc"),
        ("file:///a/%7Euser", "file:///a/~user"),
        ("file:///a%2fb", "file:///a%2Fb"),
        ("https://h/../../x", "https://h/x"),
        ("https://h/a/..", "https://h/"),
        ("https://h/a/.", "https://h/a/"),
        ("https://h?q=/../x", "https://h?q=/../x"),
        ("https://h/a/../b?c=..", "https://h/b?c=.."),
        ("mailto:X@Y", "mailto:X@Y"),
        ("no scheme", "no scheme"),
        ("tool://A/../B", "tool://A/../B"),
        ("Tool://A/b", "tool://A/b"),
    ],
)
def test_a_uri_has_one_spelling(raw: str, normal: str) -> None:
    assert normalise(raw) == normal
    assert normalise(normal) == normal


@pytest.mark.spec("VIEW-8")
@given(name=st.text(min_size=1), namespace=st.none() | st.text(min_size=1))
def test_different_tools_have_different_uris(name: str, namespace: str | None) -> None:
    uri = tool_uri(name, namespace)

    assert uri.count("/") == 3
    assert uri == normalise(uri)
    assert matches(uri, uri)
    assert matches(uri, "tool://*/*")
    assert uri != tool_uri(name + "x", namespace)
    assert segment("") == "_"


@given(st.text(alphabet="ab/.*[](){}+?|\\^$%2e", max_size=12), st.text(alphabet="ab/.*[](){}+?|\\^$%2e", max_size=12))
def test_a_pattern_without_stars_matches_only_itself(uri: str, pattern: str) -> None:
    literal = pattern.replace("*", "x")

    assert matches(uri, literal) == (normalise(uri) == normalise(literal))
