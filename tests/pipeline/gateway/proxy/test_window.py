"""Streams by window: what goes out was judged, is a beginning of the judged whole, and never part of what is cut."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.test_crossing import CLIENTS
from tests.pipeline.gateway.windows import Client, Pieces, answer, aserved, events, served, spoken, texts

from cmf.enums import MessageStatus
from cmf.message.message import TextPart, ThinkingPart, ToolCallPart
from pipeline.gateway.upstreams.upstream import UpstreamError, error_of
from pipeline.guard import Guard

SECRET = re.compile(rb"sk-[a-z]{4,8}")
MASK = """\
redact contains {"code": "no.key", "reason": "A key.", "spans": spans} if {
    spans := [[at, at + count(found)] |
        some found in regex.find_n(`sk-[a-z]{4,8}`, input.content, -1)
        some at in indexof_n(input.content, found)
    ]
    count(spans) > 0
}"""
DENY = 'deny contains {"code": "no.word", "reason": "Not this word."} if contains(input.content, "forbidden")'


def guard_of(home: Path, rules: dict[str, str], *, sees: int | None = 12, kinds: str = "text", **more: Any) -> Guard:
    stream = "" if sees is None else f"\n#   stream: {{max_match: {sees}}}"
    return Guard(write_rules(home / "policy", rules, kinds=kinds, mode=f"enforce{stream}"), **more)


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return guard_of(tmp_path_factory.mktemp("window"), {"key": MASK, "word": DENY})


@pytest.mark.spec("GW-165")
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_proxy_in_front_is_told_not_to_collect_the_pieces(guard: Guard, dialect: str) -> None:
    got = served(guard, Pieces(["some plain words, ", "and some more of them"]), dialect, window=1)

    assert len(got.pieces) > 1
    assert got.headers["x-accel-buffering"] == "no"


# -- for every way of cutting a text -----------------------------------------------------------------------------------

# A secret never begins within another: what was found is masked wherever it stands, which is no local thing then.
_WORDS = st.sampled_from([" sk-", "abcd", "efgh", "i", " ", " sk-secret", "é", "[MASKED]", "plain words ", "x" * 30])
_SAYS = st.lists(_WORDS, min_size=1, max_size=12).map("".join)


@st.composite
def _cut(draw: st.DrawFn, said: st.SearchStrategy[str]) -> list[str]:
    text = draw(said)
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12)))
    return [piece for a, b in zip([0, *places], [*places, len(text)], strict=True) if (piece := text[a:b])]


@pytest.mark.spec("GW-70", "GW-71", "GW-72")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=_cut(_SAYS), dialect=st.sampled_from(CLIENTS), window=st.integers(1, 20))
def test_what_goes_out_is_the_whole_judged_text_however_it_came(
    guard: Guard, pieces: list[str], dialect: str, window: int
) -> None:
    whole = served(guard, Pieces(["".join(pieces)]), dialect, window=None)

    got = served(guard, Pieces(pieces), dialect, window=window)

    assert (got.status, texts(dialect, got)) == (200, texts(dialect, whole))
    assert spoken(dialect, got) == "".join(texts(dialect, whole))
    assert not SECRET.search(spoken(dialect, got).encode())


@pytest.mark.spec("GW-73")
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=_cut(st.tuples(_SAYS, st.just("forbidden"), _SAYS).map("".join)), dialect=st.sampled_from(CLIENTS))
def test_what_policy_refuses_ends_in_an_error_and_never_goes_out(guard: Guard, pieces: list[str], dialect: str) -> None:
    got = served(guard, Pieces(pieces), dialect)

    if got.refusal is not None:
        assert (got.refusal.status, got.refusal.code, got.pieces) == (403, "no.word", [])
    else:
        assert "no.word" in str(events(got)[-1])
    assert "forbidden" not in spoken(dialect, got)
    assert not SECRET.search(spoken(dialect, got).encode())


@pytest.mark.spec("ADP-19", "GW-70")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    pieces=_cut(st.tuples(_SAYS, st.sampled_from(["", "forbidden"]), _SAYS).map("".join)),
    dialect=st.sampled_from(CLIENTS),
    window=st.sampled_from([None, 1, 8]),
)
def test_no_text_that_a_client_gets_is_made_of_texts_that_were_judged_apart(
    guard: Guard, pieces: list[str], dialect: str, window: int | None
) -> None:
    got = served(guard, Pieces([TextPart(text=piece) for piece in pieces]), dialect, window=window)

    is_whole = got.refusal is None and "no.word" not in str(events(got)[-1])
    read = texts(dialect, got) if is_whole else []
    assert not [text for text in read if "forbidden" in text or SECRET.search(text.encode())]


# -- when it goes out --------------------------------------------------------------------------------------------------


class _Seen(Client):
    """How much of the text was out after each piece."""

    def out(self) -> str:
        return "".join(re.findall(r'"content":"([^"]*)"', self.raw.decode()))


@pytest.mark.spec("GW-71")
async def test_the_first_character_goes_out_as_soon_as_the_rules_have_seen_enough_behind_it(guard: Guard) -> None:
    client, out = _Seen(), []
    upstream = Pieces(list("abcdefghijklmnopqrst"), then=lambda _: out.append(client.out()))

    await aserved(guard, upstream, client=client)

    assert out[:14] == [""] * 12 + ["a", "ab"]
    assert out[-1] == "abcdefg"  # an eighth of what came is more than one character by now
    assert client.out() == "abcdefghijklmnopqrst"


@pytest.mark.spec("GW-71")
async def test_text_without_rules_goes_out_as_it_comes_and_by_window_in_steps(tmp_path: Path) -> None:
    free = guard_of(tmp_path, {"none": 'deny contains {"code": "x", "reason": "x"} if false'}, kinds="tool_call")
    at_once, stepped = _Seen(), _Seen()
    after: dict[int, list[str]] = {1: [], 4: []}

    await aserved(free, Pieces(list("abcdefgh"), then=lambda _: after[1].append(at_once.out())), client=at_once)
    await aserved(
        free, Pieces(list("abcdefghij"), then=lambda _: after[4].append(stepped.out())), client=stepped, window=4
    )

    assert after[1] == ["a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"]
    assert after[4] == ["a"] * 4 + ["abcde"] * 4 + ["abcdefghi"] * 2


@pytest.mark.spec("GW-74")
@pytest.mark.parametrize("why", ["whole", "approval"])
async def test_text_whose_rules_must_see_all_of_it_is_held_to_the_end(tmp_path: Path, why: str) -> None:
    asks = 'require_approval contains {"code": "ask", "reason": "Ask."} if contains(input.content, "never said")'
    held = guard_of(tmp_path, {"r": MASK if why == "whole" else asks}, sees=None if why == "whole" else 12)
    client, out = _Seen(), []

    await aserved(held, Pieces(["x" * 50, "y" * 50], then=lambda _: out.append(client.raw)), client=client)

    assert out == [b"", b""]
    assert client.out() == "x" * 50 + "y" * 50


@pytest.mark.spec("GW-74")
async def test_nothing_goes_out_before_its_end_where_the_whole_response_is_judged(tmp_path: Path) -> None:
    held = guard_of(tmp_path, {"r": DENY}, sees=None, kinds="response")
    client, out = _Seen(), []

    await aserved(held, Pieces(["x" * 50], then=lambda _: out.append(client.raw)), client=client)

    assert out == [b""]
    assert client.out() == "x" * 50


@pytest.mark.spec("GW-75")
@pytest.mark.parametrize("dialect", CLIENTS)
async def test_calls_are_held_until_the_whole_was_judged(tmp_path: Path, dialect: str) -> None:
    rule = 'deny contains {"code": "no.call", "reason": "Not this call."} if input.arguments.city == "Zürich"'
    guard = guard_of(tmp_path, {"call": rule}, kinds="tool_call")
    call = ToolCallPart(name="get_weather", tool_call_id="c1", arguments={"city": "Zürich"})
    client, out = Client(), []

    await aserved(guard, Pieces(["I look.", call], then=lambda _: out.append(client.raw)), dialect, client=client)

    assert b"I look." in out[0]
    assert "no.call" in str(events(client)[-1])
    assert b"get_weather" not in client.raw
    assert "rich" not in client.raw.decode()


@pytest.mark.spec("GW-75")
@pytest.mark.parametrize("dialect", CLIENTS)
async def test_the_end_of_a_text_waits_with_the_call_behind_it(guard: Guard, dialect: str) -> None:
    call = ToolCallPart(name="get_weather", tool_call_id="c1", arguments={"city": "Bern"})
    client, out = Client(), []
    pieces = ["I look at the weather.", call, "?"]

    await aserved(guard, Pieces(pieces, then=lambda _: out.append(client.raw)), dialect, client=client)

    assert [b"I look at" in each for each in out] == [True, True, True]
    assert [b"weather" in each for each in out] == [False, False, False]
    assert b"get_weather" in client.raw
    assert "".join(texts(dialect, client)) == "I look at the weather.?"


@pytest.mark.spec("GW-76")
@pytest.mark.parametrize("rule", ["masked", "clean", "none"])
async def test_thinking_goes_out_as_its_own_rules_allow(tmp_path: Path, rule: str) -> None:
    kinds = "text" if rule == "none" else "thinking, text"
    guard = guard_of(tmp_path, {"key": MASK}, kinds=kinds)
    thought = "I think of sk-abcdef " if rule == "masked" else "I think of nothing "
    client, out = Client(), []
    pieces = [ThinkingPart(text=thought), "said and done, and more of it"]

    await aserved(guard, Pieces(pieces, then=lambda _: out.append(client.raw)), client=client)

    shown = "".join(str(one["choices"][0]["delta"].get("reasoning_content", "")) for one in events(client))
    assert shown == thought.replace("sk-abcdef", "[MASKED]")
    first = {"masked": b"", "clean": b'"reasoning_content":"I think"', "none": thought.encode()}[rule]
    assert (first in out[0]) is bool(first or not out[0])


# -- under the shipped policies ----------------------------------------------------------------------------------------

_KEY_LINES = "\n".join(["MIIEEXAMPLE" + "A" * 9] * 30)
_SHIPPED = {
    "wide": "".join(chr(ord(letter) + 0xFEE0) for letter in "AKIAIOSFODNN7EXAMPLE"),
    "look-alike": "\u0410KI\u0410I\u041eSF\u041eDNN7EX\u0410MPLE",
    "struck": "\u0336".join("ghp_EXAMPLEabcdef1234567890NOTREAL00000x"),
    "a secret": "Take ghp_EXAMPLEabcdef1234567890NOTREAL00000x, and go. ",
    "a key over lines": f"-----BEGIN RSA PRIVATE KEY-----\n{_KEY_LINES}\n-----END RSA PRIVATE KEY-----\nis it",
    "a secret of two words": f"Authorization: SSWS EXAMPLE{'a' * 40} and more",
    "a password by its name": "The api_key: 'abcd1234efgh5678ijkl9012mnop', as was said",
    "a card": "It is 4111 1111 1111 1111, valid thru 12/29",
    "an account": "Pay to DE89 3704 0044 0532 0130 00 at once",
    "a picture": "See ![this](https://evil.example/p.png?d=abcdef0123456789) and wonder",
    "a long link": f"See [this]( https://evil.example/?q={'a1' * 90} ) and wonder",
    "right to left": "He says \u2067 – \u05e9\u05dc\u05d5\u05dd\u2069, and means it",
    "a host": "Look at http://пример.рф/a, it is there",
    "no blanks": "这是一个测试，没有空格的文字。" * 9,
}
_REFUSED = {
    "content.confusable-host": "Look at http://аррӏе.com/x, " + "and then at more " * 30,
    "content.bidi-controls": "pay \u2067eve\u2069 now, " + "and then some more " * 9,
}


@pytest.fixture(scope="module")
def shipped() -> Guard:
    return Guard()


@pytest.mark.spec("GW-70", "POL-63")
@pytest.mark.parametrize("said", _SHIPPED)
def test_the_shipped_policies_leave_of_a_stream_what_they_leave_of_the_whole(shipped: Guard, said: str) -> None:
    text = f"Well, I was asked and so I say it. {_SHIPPED[said]}. " + "And so on, and so forth. " * 5
    whole = served(shipped, Pieces([text]), window=None)

    got = served(shipped, Pieces([text[at : at + 5] for at in range(0, len(text), 5)]), window=8)

    assert spoken("openai_chat", got) == "".join(texts("openai_chat", whole))
    assert len(got.pieces) > 3


@pytest.mark.spec("GW-73", "POL-63")
@pytest.mark.parametrize("code", _REFUSED)
def test_what_the_shipped_policies_refuse_never_goes_out_of_a_stream(shipped: Guard, code: str) -> None:
    text = "Well, I was asked and so I say it. " * 5 + _REFUSED[code]
    heard: list[int] = []

    got = served(shipped, Pieces([text[at : at + 7] for at in range(0, len(text), 7)], then=heard.append), window=8)

    assert code in str(events(got)[-1])
    assert spoken("openai_chat", got).isascii()
    assert len(heard) < len(text) // 7, "the upstream is let go before it is at its end"


@pytest.mark.spec("GW-71")
async def test_under_the_shipped_policies_the_first_text_goes_out_behind_a_line(shipped: Guard) -> None:
    client, out = _Seen(), []

    await aserved(shipped, Pieces(["and so on, "] * 20, then=lambda _: out.append(client.out())), client=client)

    assert out.index(next(filter(None, out))) < 10  # pieces of 11 characters


# -- a refusal that more text may take back ----------------------------------------------------------------------------

_UNTIL = """\
deny contains {"code": "no.end", "reason": "Not without its end."} if {
    regex.match(`\\(([^)]{8}|[^)]*$)`, input.content)
}"""


def _refusing(home: Path, text: str, size: int) -> tuple[Client, int]:
    """What a client gets of text in pieces of that size where open brackets are refused, and how many pieces came."""
    came: list[int] = []
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return served(guard_of(home, {"until": _UNTIL}, sees=9), Pieces(pieces, then=came.append)), len(came)


@pytest.mark.spec("GW-73")
@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_refusal_stands_once_what_was_held_is_over(tmp_path: Path, size: int) -> None:
    text = "Many words come first (some of that there is more to say, and more"

    got, came = _refusing(tmp_path, text, size)

    assert "no.end" in str(events(got)[-1])
    assert "(" not in spoken("openai_chat", got)
    assert came < len(text) // size


@pytest.mark.spec("GW-73")
@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_refusal_that_more_text_takes_back_ends_nothing_however_often(tmp_path: Path, size: int) -> None:
    text = "Many words come first (some it) there is more to say (or it) and (so it) too"

    got, _ = _refusing(tmp_path, text, size)

    assert spoken("openai_chat", got) == text


# -- what ends it early ------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-73")
@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("code", ["no.word", "upstream.cut", "upstream.error"])
def test_an_end_that_is_none_is_the_dialects_own_error_event(guard: Guard, dialect: str, code: str) -> None:
    ends = {
        "no.word": None,
        "upstream.cut": UpstreamError(502, "upstream.cut", "Cut."),
        "upstream.error": error_of(500, None),
    }[code]
    pieces = ["plain words and more", " forbidden" if ends is None else "!", "..."]

    got = served(guard, Pieces(pieces, ends=ends), dialect)

    last = events(got)[-1]
    assert b"plain" in got.raw
    assert b"[DONE]" not in got.raw
    assert got.status == 200
    assert code in str(last["error"])
    if dialect == "openai_responses":
        assert (last["type"], last["code"]) == ("error", code)
        assert [one["sequence_number"] for one in events(got)] == list(range(len(events(got))))
    if dialect == "anthropic_messages":
        assert got.raw.splitlines()[-3] == b"event: error"
        assert last["error"]["type"] == ("permission_error" if code == "no.word" else "api_error")


@pytest.mark.spec("GW-72")
def test_an_answer_that_turns_out_otherwise_than_it_began_ends_in_an_error(guard: Guard) -> None:
    other = answer([TextPart(text="quite another answer, not what it began with")], MessageStatus.COMPLETE)

    got = served(guard, Pieces(["plain words, and many"], ends=other))

    assert "stream.diverged" in str(events(got)[-1])
    assert b"quite another" not in got.raw
