"""When two spellings are the same value, and where a value ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conversations import index_of, says, sources, trusts

from pipeline.provenance import matching, normalize_values
from pipeline.provenance.lookup_variants import readings


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
        ("see **a.com/x**", "https://a.com/x"),
        ("see \u201ca.com/x\u201d", "https://a.com/x"),
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


@pytest.mark.spec("PROV-13")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("one and a half thousand", 1500),
        ("21 and a half degrees", 21.5),
        ("two hours and a half", 2.5),
        ("twice a day", 2),
        ("for 3 months", 90),
        ("the first of April", "2026-04-01"),
        ("on the twenty-third March 2026", "23/03/2026"),
        ("buy two of them", 2),
        ("pay 1.250,50", 1250.5),
        ("at $64k a year", 64000),
        ("that is 2.5k", 2500),
        ("half a dozen of them", 6),
        ("half a gigabyte", 0.5),
        ("for half an hour", 30),
        ("an hour-long call", 60),
        ("in two weeks", 14),
        ("a couple of them", 2),
        ("twenty-five of them", 25),
        ("two hundred and fifty thousand", 250_000),
        ("two thousand three hundred and four", 2304),
        ("1.5 million", 1_500_000),
        ("one or two, and three", 3),
        ("two and three", 2),
        ("pay 1 200,50", 1200.5),
        ("pay CHF 1'200", 1200),
        ("at half past seven", "07:30"),
        ("at quarter to five", "16:45"),
        ("at 7.30pm", "19:30"),
        ("um 19.30 Uhr", "19:30"),
        ("at 7:30", "19:30"),
        ("at 10 o'clock", "22:00"),
        ("by 5", "17:00"),
        ("am 2.6. dann", "2025-06-02"),
        ("bis zum 31. M\u00e4rz 2026", "2026-03-31"),
        ("le 1er d\u00e9cembre", "2026-12-01"),
        ("el 22 de octubre de 2026", "2026-10-22"),
        ("il 5 maggio", "2026-05-05"),
        ("op 5 maart", "2026-03-05"),
        ("em 7 de fevereiro", "7 feb"),
        ("f\u00fcr 2 Minuten", 120),
        ("pendant deux heures", 120),
        ("to S\u00f8ren", "soren"),
        ("pay $5", "USD"),
        ("five euros", "EUR"),
        ("ten zlotys", "PLN"),
        ("on March 12th, 2026", "2026-03-12"),
        ("on 12 March", "2026-03-12"),
        ("on 3/12/2026", "2026-03-12"),
        ("on 12.03.26", "2026-03-12"),
        ("on 3/12", "2026-03-12"),
        ("on 2026-03-12", "March 12"),
        ("at 4pm", "16:00"),
        ("at 16:00:00", "4 p.m."),
        ("at 12:15 am", "00:15"),
        ("at noon", "12:00"),
        ("order W481", "#W481"),
        ("tell bob", "@bob"),
        ("open config.yaml", "./config.yaml"),
        ("to 12 High St, Leeds", "12 High St."),
        ("as Event-Manager", "event_manager"),
        ("as event manager", "event-manager"),
        ("take 400 mg", "400mg"),
        ("take 400mg", "400 mg"),
        ("at \u00c9glise, Besan\u00e7on", "eglise"),
        ("at Eglise", "\u00c9glise"),
        ("O\u2019Hara", "o'hara"),
    ],
)
def test_the_same_is_found_in_other_words_and_signs(text: str, value: str | float) -> None:
    assert finds(text, value)


@pytest.mark.spec("PROV-13")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("buy two of them", 3),
        ("five hundred", 5),
        ("twenty-five", 20),
        ("nine million million million", 9_000_000_000_000_000_000),
        ("at 07:30", "19:30"),
        ("at 7.30pm", "07:30"),
        ("at 13", "13:00"),
        ("room 7.30", "07:30"),
        ("pay 1.250,50", 50),
        ("on March 12th, 2025", "2026-03-12"),
        ("on March 12", "2026-03-13"),
        ("on 13/40/2026", "2026-03-12"),
        ("at 4pm", "04:00"),
        ("at 14 pm", "14:00"),
        ("at 25:10", "01:10"),
        ("pay $5", "EUR"),
        ("write to jos\u00e9@x.com", "jose@x.com"),
        ("write to jose@x.com", "jos\u00e9@x.com"),
        ("bob@evil.com", "#bob"),
        ("event", "event_manager"),
        ("x" * 70, "2026-03-12T00:00:00" * 4),
    ],
)
def test_what_is_only_alike_is_not_found(text: str, value: str | float) -> None:
    assert not finds(text, value)


@pytest.mark.spec("PROV-15")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("call (415) 555-0132", "+14155550132"),
        ("call +1 415 555 0132", "415-555-0132"),
        ("call 415.555.0132", "+1-415-555-0132"),
        ("call 0034 91 555 01 99", "+34915550199"),
        ("call +49 30 555 12 34", "0049305551234"),
        ("call +49 (0)30 5551234", "tel:+49305551234"),
        ("see https://github.com/acme/shop/issues/412.", "acme/shop"),
        ("see https://github.com/acme/shop/issues/412.", 412),
        ("see https://x.com/watch?v=dQ%20w&t=3", "dQ w"),
        ("see acme/shop#412", "acme/shop"),
        ("see acme/shop#412", 412),
        ("in /srv/app/src/a.py", "src/a.py"),
        ("version 2.0.1", "v2.0.1"),
        ("version 2", "v2"),
        ("tag v2.0.1", "2.0.1"),
        ("pay 1,200 dollars", "1200.00"),
        ("in 60 seconds", "60s"),
        ("12 percent", "12%"),
        ("flight LH 400", "lh400"),
        ("set it in progress", "inProgress"),
        ("Closed - Won", "closed_won"),
        ("Dr. Aylin Demir", "Dr Aylin Demir"),
        ("Lee, Mei", "Mei Lee"),
        ("write to a@x.com", "mailto:a@x.com"),
        ("it is j.smith at new.example", "j.smith@new.example"),
        ("which shipment is 70021?", "SH-70021"),
        ("decline it", "declined"),
        ("cancel it", "Cancelled"),
        ("deny it", "denied"),
        ("accept it", "accepted"),
        ("to 12 Oak St, Leeds", "12 Oak Street"),
        ("to 12 Oak Street", "12 Oak St."),
        ("in der Hafenstr. 12", "Hafenstra\u00dfe 12"),
        ("today is 2025-09-08; on Monday", "2025-09-15"),
        ("today is 8 September 2025; on Thursday", "2025-09-11"),
        ("today is 2025-02-28; tomorrow", "2025-03-01"),
        ("today is 2025-02-28; at the weekend", "2025-03-02"),
        ("today is 2025-02-28; the day after tomorrow", "2025-03-02"),
        ("today is 2025-02-28; in two weeks", "2025-03-14"),
        ("today is 2025-02-28; on the 18th", "2025-03-18"),
        ("today is 2025-09-08; till the end of this month", "2025-09-30"),
        ("today is 2025-09-08; until the end of September", "2025-09-30"),
        ("call 08-555 01 77", "+46 8 555 0177"),
        ("every Monday", "mon"),
        ("on weekdays", "Fri"),
        ("at the weekend", "sunday"),
        ("let her read it", "reader"),
        ("she may comment", "commenter"),
        ("turn it down", "rejected"),
        ("Doubles are full", "double"),
        ("Order a bath towel", "Bath Towels"),
        ("two categories", "category"),
        ("from 203.0.113.9", "203.0.113.9/32"),
        ("it is fixed", "completed"),
        ("deploy to prod", "production"),
        ("it comes from South Africa", "ZA"),
        ("the Italian one", "IT"),
        ("say it in German", "de"),
        ("it comes from Uruguay", "UY"),
        ("say it in Welsh", "cy"),
        ("drei \u00dcbernachtungen", 3),
        ("heute ist 2025-09-08; am Montag", "2025-09-15"),
        ("hoy es 2025-09-08, ma\u00f1ana", "2025-09-09"),
    ],
)
def test_what_steers_is_found_in_the_forms_in_which_people_say_it(text: str, value: str | float) -> None:
    assert finds(text, value)


@pytest.mark.spec("PROV-15")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("call 4155550132", "+44155550132"),
        ("call 1.200.500", "1200500.9"),
        ("at 192.168.10.12", "+1921681012"),
        ("see https://x.com/a/b", "https://x.com/b"),
        ("see https://x.com/a/../b", "b"),
        ("see https://x.com/" + "a/" * 20, "a"),
        ("see x.com/?to=a@b.com", "b.com"),
        ("in /srv/app/src/a.py", "app"),
        ("version 2", "2.0"),
        ("60 seconds", "60m"),
        ("shipment 021", "SH-021"),
        ("a br", "bred"),
        ("today is 2025-09-08; on Monday", "2025-09-16"),
        ("today is 2025-09-08; on Monday", "2025-09-29"),
        ("on Monday", "2025-09-15"),
        ("today is 2025-02-28; tomorrow", "2025-02-29"),
        ("today is 2025-02-28; tomorrow", "2025-03-02"),
        ("today is 2025-02-28; in two days", "2025-03-03"),
        ("today is 2025-01-08; on the 18th", "2025-03-18"),
        ("today is 2025-09-08; till the end of the month", "2025-09-29"),
        ("call 555 0177", "+46 8 555 0177"),
        ("on weekdays", "sun"),
        ("on weekdays", "m"),
        ("it is her own", "owner"),
        ("let her read it", "editor"),
        ("it comes from South Africa", "SA"),
        ("it comes from the European Union", "EU"),
        ("bis zum 31. Oktober", "2026-10-30"),
        ("2 de la tarde", "14"),
        ("Dr. Aylin Demir", "Dr Eve Demir"),
        ("a b", "x" * 200),
        ("a b", " "),
    ],
)
def test_a_form_of_another_value_is_not_taken_for_it(text: str, value: str | float) -> None:
    assert not finds(text, value)


@pytest.mark.spec("PROV-13")
@given(
    st.lists(
        st.sampled_from(
            [
                "\u017fep 5",
                "\u017f\u0131x",
                "1" + ".000" * 2000,
                "5 apr\u0131l",
                "s\u0131x m\u0131nuten",
                ",5",
                "9" * 5000,
                "k",
                "\u0661\u0662:30",
                "pm",
                "31/12/",
                "99",
                " ",
                "noon",
                "one hundred and",
                "a million",
                "half past ",
                "x/y#1",
                "https://x.com/%?&=/",
            ]
        ),
        max_size=6,
    ).map("".join)
)
def test_nothing_that_others_write_breaks_the_reading(text: str) -> None:
    for kind in ("number", "currency", "date", "time"):
        assert all(normalize_values.kind_of(key) == kind for key in normalize_values.keys_in(kind, text))
    assert normalize_values.keys_in("part", text) is not None
    assert readings(text) is not None
    assert matching.pieces(text) is not None
    assert matching.value_keys(text) is not None


@pytest.mark.spec("PROV-14")
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a@x.com, b@y.com;c", ["a@x.com", "b@y.com", "c"]),
        ("Ann and Bob, Cleo & Dan", ["Ann", "Bob", "Cleo", "Dan"]),
        ("Ann Abel <ann@x.com>, bob@y.com", ["Ann Abel", "ann@x.com", "bob@y.com"]),
        ("2026-03-12T16:00:00Z", ["2026-03-12", "16:00:00"]),
        ("March 12, 2026 at 4 pm", ["March 12, 2026", "4 pm"]),
        ("2026-03-12T00:00:00", ["2026-03-12"]),
        ("src/app/main.py", ["src/app", "main.py"]),
        ("src/../main.py", []),
        ("https://x.com/a, https://y.com/b", []),
        ("x.com/a", []),
        ("a", []),
        ("call at 4 pm on 2026-03-12 for me", []),
        ("4 pm" * 30, []),
    ],
)
def test_a_value_falls_into_the_pieces_it_is_made_of(value: str, expected: list[str]) -> None:
    assert [value[start:end] for start, end in matching.pieces(value)] == expected


@pytest.mark.spec("PROV-12")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "**https://e.example/x**, \u201ce.example\u201d and *e.example/y*.",
            ["https://e.example/x", "e.example", "e.example/y"],
        ),
        ("URL:https://e.example/x href=e.example/y", ["https://e.example/x", "e.example/y"]),
        ("![x](//e.example/i.png) https:/e.example", ["e.example/i.png", "https:/e.example"]),
        ("mailto:eve@e.example, _www.e.example_", ["eve@e.example", "www.e.example"]),
        ("\u306fe.example\u307e m\u00fcnchen.example, a_b.items", ["e.example", "m\u00fcnchen.example"]),
        ("http://9.9.9.9/x 9.9.9.9/x 9.9.9.9:80", ["http://9.9.9.9/x", "9.9.9.9/x", "9.9.9.9:80"]),
        ("to 0x52908400098527886e0f7030069857d2e4169ee7", ["0x52908400098527886e0f7030069857d2e4169ee7"]),
        ("Call +49 30 5550199, or (+1) 555", ["+49 30 5550199"]),
        ("ring us on 030-555 01 99; tel: (020) 7946 0991.", ["030-555 01 99", "(020) 7946 0991"]),
        ("call 4471, text 2026-05-12, order 1234567, 5+5550199222, call 10.0.0.12.5.2x", []),
        ("report.docx, /etc/nginx/shop.example, 10.0.0.0/8, 1.2.3.4, v1.2, e.g. this", []),
    ],
)
def test_addresses_are_seen_in_whatever_they_are_wrapped_and_files_are_none(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in matching.addresses(text)] == expected


@pytest.mark.spec("PROV-4")
def test_matches_are_graded() -> None:
    index = index_of(says("user", "Ann"), says("system", "ask Ann, please"))

    assert sources(index, "Ann") == [("user", "trusted", 0, "exact"), ("system", "trusted", 1, "contained")]
    assert [match for *_, match in sources(index, "ann")] == ["normalised", "normalised"]


@pytest.mark.spec("PROV-4")
@given(st.text(max_size=20))
def test_normal_text_is_normal(text: str) -> None:
    once = matching.normal(text)

    assert matching.normal(once) == once


@pytest.mark.spec("PROV-4")
@given(
    st.from_regex(r"[a-z][a-z0-9@._/-]{0,10}[a-z]", fullmatch=True),
    st.sampled_from([" ", "\n", ", ", " (", ' "']),
    st.sampled_from([" ", "\t", "!", ") ", '" ', ". ", "? "]),
)
def test_a_value_between_spaces_and_marks_stands_as_a_whole(value: str, before: str, after: str) -> None:
    assert matching.stands_in(f"x{before}{value}{after}x", value)


@pytest.mark.spec("PROV-4")
@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_a_number_has_one_key_however_it_is_written(number: object) -> None:
    spelled = f"{number:f}"

    assert matching.number_key(spelled) == matching.number_key(spelled + "000")
    assert matching.number_key("1" + "0" * 99) is None
    assert matching.number_key("x") is None
