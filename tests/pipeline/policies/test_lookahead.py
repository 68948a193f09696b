"""What the end of a stream is held for: characters, the word that is not over, what may have blanks in it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.policies.lookahead import Lookahead, longest

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
        (Lookahead(chars=3, word=8), "some words a", "s a"),
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
@settings(max_examples=50)
@given(st.lists(st.sampled_from([Lookahead(chars=4), Lookahead(word=9), SECRETS, Lookahead()])), st.text("aBEGIN S"))
def test_several_rules_hold_what_each_of_them_does(rules: list[Lookahead], text: str) -> None:
    assert longest(rules).held(text) >= max((rule.held(text) for rule in rules), default=0)
