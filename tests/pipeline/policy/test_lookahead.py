"""What the end of a stream is held for: characters, the word that is not over, what may have blanks in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.policy.lookahead import Lookahead, held_at_end, least_held, open_word

SECRETS = Lookahead(word=40, opened_by=("BEGIN", "SSWS"))


@pytest.mark.spec("POL-63")
@pytest.mark.parametrize(
    ("lookahead", "text", "held"),
    [
        (Lookahead(), "abc", ""),
        (Lookahead(chars=4), "some words", "ords"),
        (Lookahead(chars=40), "some words", "some words"),
        (Lookahead(word=8), "some words", "words"),
        (Lookahead(word=8), "some words ", ""),
        (Lookahead(word=8), "some words\n", ""),
        (Lookahead(word=8), "a-very-long-word", "ong-word"),
        (Lookahead(word=8), "文字", ""),
        (Lookahead(word=8), "文字abc", "abc"),
        (SECRETS, "so: --BEGIN a b\nc", "--BEGIN a b\nc"),
        (SECRETS, "so: --BEG", "--BEG"),
        (SECRETS, "so: SSWS x BEGIN y z", "SSWS x BEGIN y z"),
        (SECRETS, "so: BEGIN " + "z " * 17, "BEGIN " + "z " * 17),
        (SECRETS, "so: BEGIN " + "z " * 20, ""),
    ],
)
def test_the_end_that_is_held(lookahead: Lookahead, text: str, held: str) -> None:
    assert text[len(text) - lookahead.held(text) :] == held


@pytest.mark.spec("POL-63")
@pytest.mark.parametrize(
    ("lookahead", "text", "held"),
    [
        (Lookahead(word=8), "文字 ＡＢＣ", "ＡＢＣ"),
        (Lookahead(word=8), "文字 Ａ\u200bＢ\u200b", "Ａ\u200bＢ\u200b"),
        (Lookahead(word=8), "a \u0410\u0412 ", ""),
        (Lookahead(chars=2), "a\u200bb\u200bc\u200bd", "c\u200bd"),
        (SECRETS, "so: ＢＥＧＩＮ a", "ＢＥＧＩＮ a"),
    ],
)
def test_the_end_that_is_held_in_other_letters(lookahead: Lookahead, text: str, held: str) -> None:
    assert text[len(text) - held_at_end(text, (lookahead,)) :] == held


@pytest.mark.spec("POL-63")
@settings(max_examples=50)
@given(st.lists(st.sampled_from([Lookahead(chars=4), Lookahead(word=9), SECRETS])), st.text("aBEGIN S"))
def test_the_find_that_holds_most_decides(finds: list[Lookahead], text: str) -> None:
    held = held_at_end(text, tuple(finds))

    assert held == max((one.held(text) for one in finds), default=0)
    assert held >= min(least_held(open_word(text), tuple(finds)), len(text))


@pytest.mark.spec("POL-63")
@pytest.mark.parametrize(
    ("where", "applies"),
    [
        (None, True),
        *((f"data.{name}", False) for name in ("texts.none", "texts.empty")),
        *((f"data.{name}", True) for name in ("texts", "texts.some", "texts.null", "texts.some.further", "missing")),
    ],
)
def test_a_lookahead_applies_unless_the_data_that_it_searches_for_are_empty(where: str | None, applies: bool) -> None:
    data = {"texts": {"none": [], "empty": {}, "some": ["a"], "null": None}}

    assert Lookahead(chars=4, where=where).applies(data) is applies
