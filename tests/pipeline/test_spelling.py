"""When two spellings are the same value, and where a value ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conversations import index_of, says, sources, trusts

from pipeline import spelling


def finds(text: str, value: str | float) -> bool:
    return trusts(index_of(says("user", text)), value) == {"trusted"}


@pytest.mark.spec("PROV-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("write to john.smith@bank.com", "smith@bank.com"),
        ("write to smith@bank.com.au", "smith@bank.com"),
        ("write to bob@evil.com", "@evil.com"),
        ("see http://bank.com.evil.org", "http://bank.com"),
        ("see http://bank.com/evil", "http://bank.com"),
        ("see http://bank.com/a", "http://bank.com/A"),
        ("see http://bank.com/a", "https://bank.com/a"),
        ("see http://good@evil.com/", "http://good"),
        ("see http://good.com/evil", "/evil"),
        ("john, doe. Company com", "john@doe.company.com"),
        ("pay 1,150", "150"),
        ("pay 1,150", 1),
        ("pay 1.50", 50),
        ("at 12:30", 30),
        ("debt of -5", 5),
        ("debt of -5", "5"),
        ("agent 007", 7),
        ("on 2022-03-04", 2022),
        ("jean-pierre", "jean"),
        ("evil_name", "evil"),
        ("concatenate", "cat"),
        ("CH93 0076 2011 6238 5295 8", "CH9300762011623852958"),
        ("123456789", "1234567.89"),
        ("tel 555 1234", "5551235"),
        ("e\u0301vil", "e"),
        ("a........b", "a"),
        ("something", ""),
        ("a b", " "),
        ("!!!", "!!"),
    ],
)
def test_a_piece_or_another_spelling_is_not_the_value(text: str, value: str | float) -> None:
    assert not finds(text, value)


@pytest.mark.spec("PROV-4")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("write to <Ann@Bank.com>, please.", "ann@bank.com"),
        ("at Le Baratin's tonight", "le  baratin"),
        ("see www.a.com!", "http://www.a.com/"),
        ("see https://A.com:443", "a.com"),
        ("see https://a.com/%7Eann?q=1.", "https://a.com/~ann?q=1"),
        ("to CH93 0076 2011 6238 5295 7 AND MORE", "CH9300762011623852957"),
        ("to GB29NWBK60161331926819", "gb29 nwbk 6016 1331 9268 19"),
        ("card 4237-4252-7456-2574", "4237425274562574"),
        ("call (555) 123-4567", "5551234567"),
        ("pay $1,000.50", 1000.5),
        ("pay 100.00", 100),
        ("pay 100", 100.0),
        ("debt of -5.0", -5),
        ("pay 1,000", "1000"),
        ("12345678901234567890123", 12345678901234567890123),
        ("the \uff21\uff42\uff43 one", "abc"),
        ("Stra\u00dfe 5", "STRASSE 5"),
        ("a\nb  c", "b c"),
        ("\u4f1a\u8bae\u5ba4\u4e8c\u53f7", "\u8bae\u5ba4"),
        ("!!!", "!!!"),
        ("**general**", "general"),
        ("0", 0.0),
        ("x" * 70_000 + " y", "x" * 70_000),
    ],
)
def test_the_same_value_is_found_however_it_is_spelled(text: str, value: str | float) -> None:
    assert finds(text, value)


@pytest.mark.spec("PROV-4")
def test_matches_are_graded() -> None:
    index = index_of(says("user", "Ann"), says("system", "ask Ann, please"))

    assert sources(index, "Ann") == [("user", "trusted", 0, "exact"), ("system", "trusted", 1, "contained")]
    assert [match for *_, match in sources(index, "ann")] == ["normalised", "normalised"]


@pytest.mark.spec("PROV-4")
@given(st.text(max_size=20))
def test_normal_text_is_normal(text: str) -> None:
    once = spelling.normal(text)

    assert spelling.normal(once) == once


@pytest.mark.spec("PROV-4")
@given(
    st.from_regex(r"[a-z][a-z0-9@._/-]{0,10}[a-z]", fullmatch=True),
    st.sampled_from([" ", "\n", ", ", " (", ' "']),
    st.sampled_from([" ", "\t", "!", ") ", '" ', ". ", "? "]),
)
def test_a_value_between_spaces_and_marks_stands_as_a_whole(value: str, before: str, after: str) -> None:
    assert spelling.stands_in(f"x{before}{value}{after}x", value)


@pytest.mark.spec("PROV-4")
@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_a_number_has_one_key_however_it_is_written(number: object) -> None:
    spelled = f"{number:f}"

    assert spelling.number_key(spelled) == spelling.number_key(spelled + "000")
    assert spelling.number_key("1" + "0" * 99) is None
    assert spelling.number_key("x") is None
