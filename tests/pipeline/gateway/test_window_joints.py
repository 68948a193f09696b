"""Streams by window whose text or thinking stands in several places: held ends stay held, and nothing is lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.gateway.proxy.test_window import DENY, MASK, SECRET, guard_of
from tests.pipeline.gateway.test_crossing import CLIENTS, heard
from tests.pipeline.gateway.windows import Client, Piece, Pieces, aserved, events, served

from cmf.json.frozen import freeze
from cmf.message.message import ImagePart, Part, TextPart, ThinkingPart, ToolCallPart
from pipeline.guard import Guard

CALL = ToolCallPart(name="get_weather", tool_call_id="c1", arguments={"city": "Bern"})
BETWEEN: dict[str, Part] = {
    "call": CALL,
    "thought": ThinkingPart(text="hm, let me see"),
    "signed thought": ThinkingPart(text="hm, let me see", signature="c2ln"),
    "signed text": TextPart(text=" ", extra=freeze({"gemini": {"thoughtSignature": "c2ln"}})),
    "image": ImagePart(type="url", data="https://example.com/a.png"),
}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return guard_of(tmp_path_factory.mktemp("joints"), {"key": MASK, "word": DENY}, kinds="text, thinking")


def _own(thought: str, dialect: str) -> ThinkingPart:
    """A thought that this dialect can say."""
    return ThinkingPart(text=thought, extra=freeze({dialect: {}}) if dialect == "anthropic_messages" else None)


def _said(part: Part) -> str:
    return part.text if isinstance(part, TextPart) else ""


def _thought(part: Part) -> str:
    return (part.text or "") if isinstance(part, ThinkingPart) else ""


def _read(dialect: str, client: Client) -> tuple[str, str, list[Any]]:
    """All text, all thinking and all calls of the answer that the client got."""
    parts = heard(dialect, client.headers, client.raw).message.content
    calls = [(part.name, part.arguments) for part in parts if isinstance(part, ToolCallPart)]
    return "".join(map(_said, parts)), "".join(map(_thought, parts)), calls


@pytest.mark.spec("GW-75")
@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("between", [name for name in BETWEEN if name != "signed text"])
def test_the_end_of_a_text_is_held_whatever_comes_behind_it(guard: Guard, dialect: str, between: str) -> None:
    pieces: list[Piece] = ["plain words and a forbi", BETWEEN[between], "dden one, and then some more to be read"]

    got = served(guard, Pieces(pieces), dialect)

    code = got.refusal.code if got.refusal else str(events(got)[-1])
    assert "no.word" in code or "projection" in code
    assert "forb" not in got.raw.decode()
    assert "get_weather" not in got.raw.decode()


@pytest.mark.spec("GW-75", "GW-76")
@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("between", ["call", "text"])
def test_the_end_of_thinking_is_held_whatever_comes_behind_it(guard: Guard, dialect: str, between: str) -> None:
    behind = CALL if between == "call" else "some text that goes out meanwhile, and more"
    thoughts = [_own(text, dialect) for text in ("plain thoughts and a forbi", "dden one, and then some more")]

    got = served(guard, Pieces([thoughts[0], behind, thoughts[1]]), dialect)

    code = got.refusal.code if got.refusal else str(events(got)[-1])
    assert "no.word" in code
    assert "forb" not in got.raw.decode()


@pytest.mark.spec("GW-72", "GW-76")
@pytest.mark.parametrize("dialect", CLIENTS)
def test_thinking_that_was_sent_and_is_then_removed_whole_does_not_become_text(guard: Guard, dialect: str) -> None:
    pieces: list[Piece] = [_own(" sk- sk- sk- sk-", dialect), " sk-", ThinkingPart(text="abcd")]

    got = served(guard, Pieces(pieces), dialect)

    if dialect == "anthropic_messages":  # it has no thinking that was changed
        assert "stream.diverged" in str(events(got)[-1])
    else:
        assert _read(dialect, got) == _read(dialect, served(guard, Pieces(pieces), dialect, window=None))


@pytest.mark.spec("GW-75", "GW-70")
@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("between", [name for name in BETWEEN if name != "image"])
def test_a_mask_over_two_places_is_the_one_of_the_whole(guard: Guard, dialect: str, between: str) -> None:
    middle = BETWEEN[between]
    pieces: list[Piece] = ["some plain words, sk-ab", TextPart(text="cd") if isinstance(middle, TextPart) else middle]
    pieces = [*pieces, "efgh and a lot of words that come behind it"]

    got = served(guard, Pieces(pieces), dialect)
    whole = served(guard, Pieces(pieces), dialect, window=None)

    assert _read(dialect, got) == _read(dialect, whole)
    assert not SECRET.search(_read(dialect, got)[0].encode())
    assert len(got.pieces) > 1
    assert b"sk-" not in got.raw


@pytest.mark.spec("GW-76")
@pytest.mark.parametrize("dialect", CLIENTS)
async def test_text_goes_out_while_the_end_of_the_thinking_before_it_is_held(guard: Guard, dialect: str) -> None:
    thought = "a thought that is rather long"
    client, out = Client(), []
    pieces: list[Piece] = [_own(thought, dialect), "and some text ", "behind it, ", "which goes on and on"]

    await aserved(guard, Pieces(pieces, then=lambda _: out.append(client.raw.decode())), dialect, client=client)

    assert "a thought that is" in out[0]
    assert "text" in out[2]
    assert "rather long" not in out[-1]
    assert _read(dialect, client) == ("and some text behind it, which goes on and on", thought, [])


@pytest.mark.spec("GW-70")
@pytest.mark.parametrize("dialect", CLIENTS)
def test_text_before_and_behind_a_call_is_what_it_is_in_a_whole_answer(guard: Guard, dialect: str) -> None:
    pieces: list[Piece] = ["some text that stands before it", CALL, " and more behind it, which goes on", CALL, "so."]

    got = served(guard, Pieces(pieces), dialect)

    assert _read(dialect, got) == _read(dialect, served(guard, Pieces(pieces), dialect, window=None))
    assert len(got.pieces) > 1


# -- for every order of parts ------------------------------------------------------------------------------------------

_WORDS = st.lists(
    st.sampled_from([" sk-", "abcd", "efgh", "forb", "idden", "i", " ", "é", "plain words ", "x" * 30]),
    min_size=1,
    max_size=4,
).map("".join)
_ANY = st.one_of(
    _WORDS,
    _WORDS.map(lambda text: TextPart(text=text)),
    _WORDS.map(lambda text: ThinkingPart(text=text)),
    st.just(CALL),
)


def _innocent(pieces: list[Piece]) -> int:
    """How often a text, or the thinking, has the beginning of the word without its end."""
    texts = "".join(piece if isinstance(piece, str) else _said(piece) for piece in pieces)
    thoughts = "".join("" if isinstance(piece, str) else _thought(piece) for piece in pieces)
    return sum(len(re.findall("forbi(?!dden)", joined)) for joined in (texts, thoughts))


@pytest.mark.spec("GW-70")
@pytest.mark.parametrize("dialect", CLIENTS)
@pytest.mark.parametrize("middle", [ThinkingPart(text=" sk-"), TextPart(text="xy ")], ids=["thought", "text"])
def test_texts_that_are_alike_keep_their_order(guard: Guard, dialect: str, middle: Part) -> None:
    pieces: list[Piece] = [TextPart(text=" sk-"), middle, TextPart(text=" sk-plain words "), TextPart(text=" sk-")]

    got = served(guard, Pieces(pieces), dialect)

    assert _read(dialect, got) == _read(dialect, served(guard, Pieces(pieces), dialect, window=None))


@pytest.mark.spec("GW-70", "GW-75")
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(_ANY, min_size=1, max_size=7), dialect=st.sampled_from(CLIENTS), window=st.integers(1, 20))
def test_a_stream_gives_what_the_whole_answer_gives(
    guard: Guard, pieces: list[Piece], dialect: str, window: int
) -> None:
    whole = served(guard, Pieces(pieces), dialect, window=None)

    got = served(guard, Pieces(pieces), dialect, window=window)

    if whole.refusal is None:
        assert got.refusal is None
        assert _read(dialect, got) == _read(dialect, whole)
    elif got.refusal is not None:
        assert got.refusal.code == whole.refusal.code
    else:
        assert whole.refusal.code in str(events(got)[-1])
        assert got.raw.count(b"forbi") <= _innocent(pieces)
    assert not SECRET.search(got.raw)
