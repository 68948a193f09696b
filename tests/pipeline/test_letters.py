"""Text in plain letters: what rules see of it, and what of the content their spans mask."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pipeline.conftest import Rules

from cmf import _native
from cmf.enums import ViewKind
from cmf.json.codec import dumps, loads
from cmf.message.message import Message, TextPart, ToolCallPart
from pipeline import Guard
from pipeline.decisions.decision import Action
from pipeline.decisions.policy_input import Facts, with_facts

KEY = "AKIAIOSFODNN7EXAMPLE"
WIDE = "".join(chr(ord(letter) + 0xFEE0) for letter in KEY)
BOLD = "".join(chr(0x1D400 + ord(letter) - 65) if letter.isalpha() else letter for letter in KEY)
CIRCLED = "".join(chr(0x24B6 + ord(letter) - 65) if letter.isalpha() else letter for letter in KEY)
DARK = "".join(chr(0x1F150 + ord(letter) - 65) if letter.isalpha() else letter for letter in KEY)
CYRILLIC = KEY.replace("A", "\u0410").replace("I", "\u0406").replace("O", "\u041e").replace("S", "\u0405")
SPACED = "\u200b".join(KEY)
STRUCK = "\u0336".join(KEY) + "\u0336"
CONTROLLED = "\x00".join(KEY)
ANNOTATED = "\ufff9".join(KEY[:9]) + "\ufffa\ufffb" + KEY[9:]
DISGUISES = [WIDE, BOLD, CIRCLED, DARK, CYRILLIC, SPACED, STRUCK, CONTROLLED, ANNOTATED, KEY[:9] + "\u00ad" + KEY[9:]]
SHIPPED = Guard()

MASK_FOLDED = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": spans, "of": "folded"} if {
	spans := [[at, at + 8] | some at in indexof_n(input.folded, "passwort")]
	count(spans) > 0
}
"""
DENY_PLAIN = """\
deny contains {"code": "test.plain", "reason": "Another text in plain letters."} if input.plain
"""
BAD_FORM = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[0, 1]], "of": "reversed"} if input.content
"""
BEYOND = """\
redact contains {"code": "test.mask", "reason": "Masked.", "spans": [[0, count(input.folded) + 1]], "of": "folded"}
"""
PLAIN_POINTER = """\
redact contains {"code": "test.mask", "reason": "Masked.", "pointer": "/properties/extra/w", "of": "plain"} if {
	input.properties.extra
}
"""


def says(text: str, **more: Any) -> Message:
    return Message(role="user", content=[TextPart(text=text, **more)])


def shown(text: str) -> dict[str, Any]:
    view = dumps({"kind": "text", "content": text})
    found: dict[str, Any] = loads(with_facts(view, Facts(plain=True, folded=True)))
    return found


@pytest.mark.spec("INP-7")
@pytest.mark.parametrize("key", DISGUISES)
def test_a_key_in_a_call_is_refused_in_whatever_letters(key: str) -> None:
    decision = SHIPPED.decide(Message(role="assistant", content=[ToolCallPart(name="t", arguments={"a": key})]))

    assert decision.action is Action.REFUSE
    assert "data.secret" in {hit.code for hit in decision.hits}


@pytest.mark.spec("INP-8")
def test_spans_beyond_a_form_and_of_no_form_are_refused(guarded: Rules) -> None:
    beyond = guarded({"mask": BEYOND}, kinds="text").decide(says("\uff41b\u200b"))
    unknown = guarded({"mask": BAD_FORM}, kinds="text").decide(says("ab"))

    assert [hit.code for hit in beyond.hits if hit.effect == "deny"] == ["effect.span-outside"]
    assert [hit.code for hit in unknown.hits] == ["policy.bad-effect"]


@pytest.mark.spec("INP-7")
@pytest.mark.parametrize("key", [KEY, *DISGUISES])
def test_a_key_in_a_text_is_masked_in_whatever_letters(key: str) -> None:
    outcome = SHIPPED.run(says(f"Größe: {key}, ½ ok"))

    if outcome.message is None:  # a long run of what nobody sees is refused by another rule
        assert {hit.rule for hit in outcome.decision.reasons} == {"content/invisible_unicode"}
    else:
        assert outcome.message.content[0].text == "Größe: [MASKED], ½ ok"  # type: ignore[union-attr]


@pytest.mark.spec("INP-8")
def test_a_span_of_the_folded_form_masks_what_it_was_made_from(guarded: Rules) -> None:
    guard = guarded({"mask": MASK_FOLDED}, kinds="text")

    for said in ("PASSWORT", "Pa\u200bßwort", "\uff30asswort", "p\u0430sswo\u0301rt".replace("\u0301", "")):
        outcome = guard.check(says(f"Mein {said}!"))
        assert outcome.message is not None
        assert outcome.message.content[0].text == "Mein [MASKED]!"  # type: ignore[union-attr]


@pytest.mark.spec("INP-8")
def test_a_form_says_nothing_of_a_pointer(guarded: Rules) -> None:
    message = says("x", extra={"w": 1})

    outcome = guarded({"mask": PLAIN_POINTER}, kinds="text").check(message)

    assert outcome.message is not None
    assert outcome.message.content[0].extra is None


@pytest.mark.spec("INP-7")
def test_the_forms_are_there_only_for_rules_that_read_them(guarded: Rules) -> None:
    plain, folded = (guarded({"mask": rule}, kinds="text").policies.facts for rule in (DENY_PLAIN, MASK_FOLDED))

    assert plain == {ViewKind.TEXT: Facts(plain=True)}
    assert folded == {ViewKind.TEXT: Facts(folded=True)}
    assert guarded({"mask": DENY_PLAIN}, kinds="text").decide(says("as it is: ä")).action is Action.FORWARD
    assert guarded({"mask": DENY_PLAIN}, kinds="text").decide(says("\uff41")).action is Action.REFUSE


@pytest.mark.spec("INP-7")
@given(st.text(st.characters(codec="ascii", exclude_characters="\\\\%&")))
def test_ascii_is_plain_but_for_controls_and_escapes(text: str) -> None:
    seen = "".join(letter for letter in text if letter.isprintable() or letter in "\t\n\r")

    found = shown(text)

    assert found.get("plain", text) == seen
    assert ("plain" in found) == (seen != text)
    assert found["folded"] == seen.lower()


TAME = st.characters(categories=["Ll", "Lu", "Nd", "Zs", "Po"], max_codepoint=0x24F)


@pytest.mark.spec("INP-7")
@given(st.text(TAME))
def test_latin_text_is_composed(text: str) -> None:
    found = shown(text)

    whole = unicodedata.normalize("NFKC", text)
    assert len(found.get("plain", text)) <= len(whole)


@pytest.mark.spec("INP-8")
@given(
    st.lists(
        st.sampled_from(
            ["\\u0041", "\\\\x4a", "%41", "%C3", "%9F", "&", "&#65;", "&amp;", "a", "\u0301", "\uff25", "\u200b"]
        )
        | st.text()
    ),
    st.booleans(),
)
def test_a_span_of_the_whole_form_is_within_the_text(words: list[str], is_folded: bool) -> None:
    text = "".join(words)
    found = shown(text)
    form = found["folded"] if is_folded else found.get("plain", text)

    spans = [(at, at + 1) for at in range(len(form))]
    places = _native.in_content(text, is_folded, spans)

    assert all(0 <= start < end <= len(text) for start, end in places)
    assert [place[0] for place in places] == sorted(place[0] for place in places)


ESCAPES = {
    "JSON": "".join(f"\\u{ord(letter):04x}" for letter in KEY),
    "JSON in JSON": "".join(f"\\\\u{ord(letter):04X}" for letter in KEY),
    "of bytes": "".join(f"\\x{ord(letter):02x}" for letter in KEY),
    "of code points": "".join(f"\\u{{{ord(letter):x}}}" for letter in KEY),
    "long": "".join(f"\\U{ord(letter):08x}" for letter in KEY),
    "surrogates": KEY[:5] + "\\ud835\\udc0e" + KEY[6:8] + "\\uff2f" + KEY[9:],
    "percent": "".join(f"%{ord(letter):02X}" for letter in KEY),
    "percent, wide": "".join(f"%{byte:02X}" for byte in WIDE.encode()),
    "percent twice": "".join(f"%25{ord(letter):02X}" for letter in KEY),
    "percent in wide letters": "".join(f"\uff05{ord(letter):02X}" for letter in KEY),
    "HTML": "".join(f"&#{ord(letter)};" for letter in KEY),
    "HTML in hexadecimal": "".join(f"&#x{ord(letter):x};" for letter in KEY),
    "HTML twice": "".join(f"&amp;#{ord(letter)};" for letter in KEY),
    "one letter": KEY[:9] + "\\u" + f"{ord(KEY[9]):04x}" + KEY[10:],
    "what nobody sees": KEY[:9] + "\\u200b&#8203;%E2%80%8B" + KEY[9:],
}
SPELLED_KEYS = [letters for name, letters in ESCAPES.items() if name != "surrogates"]


@pytest.mark.spec("INP-7")
@pytest.mark.parametrize("key", SPELLED_KEYS)
def test_a_key_in_escapes_is_refused_in_a_call_and_masked_in_a_text(key: str) -> None:
    refused = SHIPPED.decide(Message(role="assistant", content=[ToolCallPart(name="t", arguments={"a": key})]))
    outcome = SHIPPED.run(says(f"Größe: {key}, 50% & ½ ok"))

    assert "data.secret" in {hit.code for hit in refused.hits}
    assert outcome.message is not None
    assert outcome.message.content[0].text == "Größe: [MASKED], 50% & ½ ok"  # type: ignore[union-attr]


@pytest.mark.spec("INP-7")
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"\ud835\udc00\uD83D", r"A\uD83D"),
        (r"C:\users\u12 \u{} \u{110000} \x4 100% %zz %C3 &; &none;", None),
        (r"%F0%9F%98%80 &lt;b&gt;", "\U0001f600 <b>"),
    ],
)
def test_only_escapes_are_read(text: str, plain: str | None) -> None:
    assert _native.plain(text) == plain


@pytest.mark.spec("INP-8")
def test_a_span_of_what_was_escaped_is_the_escape() -> None:
    assert _native.in_content(r"\u0041b%25%34%31", False, [(0, 1), (1, 2), (2, 3)]) == [(0, 6), (6, 7), (7, 16)]
    assert _native.in_content("a\u0301b &#65;", False, [(0, 1), (1, 2), (3, 4)]) == [(0, 2), (2, 3), (4, 9)]


@pytest.mark.spec("INP-7")
@pytest.mark.parametrize(
    "text", ["Größe: 5 €", "привет, мир", "查询天气", "안녕하세요", "été à la plage", "a = b; // ok"]
)
def test_honest_text_passes(text: str) -> None:
    assert SHIPPED.decide(says(text)).verdict == "allow"
