"""URIs and the patterns that match them. The same corpus is run in Rego (tests/policies)."""

from __future__ import annotations

from urllib.parse import unquote

import ada_url
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cmf.uri_corpus import CORPUS

from cmf.views.uris import matches, normalise, segment, tool_uri


@st.composite
def _addresses(draw: st.DrawFn) -> str:
    """Addresses of the web in odd spellings, and what is nearly one."""
    scheme = draw(st.sampled_from(["http", "HTTPS", "wS", "ftp", "h\tttp", " https"]))
    slashes = draw(st.sampled_from(["//", "/", "", "\\\\", "///", "/\\", "/\n/"]))
    user = draw(st.sampled_from(["", "", "a@", "a:b@", "a.b@c@", "%40@"]))
    label = st.sampled_from(
        [
            *(
                "a",
                "1",
                ".",
                "0",
                "-",
                "_",
                "127",
                "0x7f",
                "256",
                "\u3002",
                "\uff11",
                "\u00fc",
                "xn--",
                "xn--bcher-kva",
            ),
            *("xn--bcher-kva", "%31", "%00", "\t", " ", "\u0430"),
        ]
    )
    host = draw(st.sampled_from(["[::1]", "[::ffff:1.2.3.4]", "[1::", ""]) | st.lists(label, max_size=8).map("".join))
    port = draw(st.sampled_from(["", "", ":", ":80", ":443", ":21", ":0080", ":65536", ":a"]))
    piece = st.sampled_from([*"/\\.ab?#%'|\t ~", "..", "%2e", "%2E%2e", "%2f", "%41", "\u00e9", "%zz"])
    return f"{scheme}:{slashes}{user}{host}{port}{draw(st.sampled_from(['', '/', '?', '#']))}" + "".join(
        draw(st.lists(piece, max_size=8))
    )


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
        ("file:///a%2fb", "file:///a/b"),
        ("https://h/a%2fb", "https://h/a%2Fb"),
        ("https://h/../../x", "https://h/x"),
        ("https://h/a/..", "https://h/"),
        ("https://h/a/.", "https://h/a/"),
        ("https://h?q=/../x", "https://h/?q=/../x"),
        ("https://h/a/../b?c=..", "https://h/b?c=.."),
        ("mailto:X@Y", "mailto:X@Y"),
        ("no scheme", "no scheme"),
        ("tool://A/../B", "tool://A/../B"),
        ("Tool://A/b", "tool://A/b"),
        ("http://local\thost/", "http://localhost/"),
        (" \x01http://h/\u00a0", "http://h/"),
        ("http:\\\\h\\a", "http://h/a"),
        ("https:evil.net/x", "https://evil.net/x"),
        ("//evil.net", "https://evil.net/"),
        ("\\\\evil.net\\x", "https://evil.net/x"),
        ("\uff48ttp\uff1a//h", "http://h/"),
        ("http://h.:80/a#b", "http://h/a"),
        ("http://ann:pw@h/", "http://h/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[::FFFF:127.0.0.1]", "http://[::ffff:7f00:1]/"),
        ("http://a\u3002b\uff0ec", "http://a.b.c/"),
        ("http://b\u00fccher.example", "http://xn--bcher-kva.example/"),
        ("view-source:HTTP:h", "view-source:http://h/"),
        ("jdbc:mysql://H:1/d", "jdbc:mysql://h:1/d"),
        ("redis://u:p@0x7f.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("mongodb://u:p@A:1,b./d", "mongodb://a:1,b/d"),
        ("memo://My%20Notes/%7E/../x", "memo://my%20notes/x"),
        ("file:////etc/shadow", "file:///etc/shadow"),
        ("file:/etc//./shadow#x", "file:///etc/shadow"),
        ("file:///etc/shadow?x", "file:///etc/shadow"),
        ("file:\\\\localhost\\etc", "file:///etc"),
        ("file:///srv/..%2f..%5cetc", "file:///etc"),
    ],
)
def test_a_uri_has_one_spelling(raw: str, normal: str) -> None:
    assert normalise(raw) == normal
    assert normalise(normal) == normal


@pytest.mark.spec("VIEW-26")
@pytest.mark.parametrize("uri", ["http://h:99999/", "http://a b/", "http://[::1/", "http://1.2.3.4.5/", "//a%00b/"])
def test_what_no_client_reads_matches_no_pattern_for_addresses(uri: str) -> None:
    assert normalise(uri).startswith("invalid:")
    assert normalise(normalise(uri)) == normalise(uri)
    assert not matches(uri, "http*://**")
    assert matches("http://10.0.0.1:80/x", "http://*:*/**") is False
    assert matches("http://10.0.0.1:81/x", "http://*:*/**")


@pytest.mark.spec("VIEW-9")
@given(_addresses())
@settings(max_examples=500, deadline=None)
def test_an_address_of_the_web_is_the_one_that_another_parser_reads(address: str) -> None:
    try:
        other = ada_url.URL(address)
    except ValueError:
        assert normalise(address).startswith("invalid:")
        return
    host = other.hostname.removesuffix(".")
    if not host or "" in host.split("."):
        assert normalise(address).startswith("invalid:")
        return
    if "xn--" in host and normalise(address).startswith("invalid:"):
        return  # of what is no punycode, either parser may be the stricter one

    ours = ada_url.URL(normalise(address))

    assert (ours.protocol, ours.hostname, ours.port) == (other.protocol, host, other.port)
    assert unquote(ours.pathname) == unquote(other.pathname)
    assert unquote(ours.search) == unquote(other.search)
    assert normalise(normalise(address)) == normalise(address)


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
