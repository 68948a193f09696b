"""What is said about binary data without showing it."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.message.binary import agrees, decoded, describe, describe_bytes, describe_url, sniff

PAD = bytes(16)
SIGNATURES: list[tuple[bytes, str]] = [
    (b"\x89PNG\r\n\x1a\n" + PAD, "image/png"),
    (b"\xff\xd8\xff\xe0\x00\x10JFIF" + PAD, "image/jpeg"),
    (b"\xff\xd8\xff\xe1\x00\x10Exif" + PAD, "image/jpeg"),
    (b"GIF87a" + PAD, "image/gif"),
    (b"GIF89a" + PAD, "image/gif"),
    (b"RIFF\x24\x00\x00\x00WEBPVP8 " + PAD, "image/webp"),
    (b"RIFF\x24\x00\x00\x00WAVEfmt " + PAD, "audio/wav"),
    (b"RIFF\x24\x00\x00\x00AVI LIST" + PAD, "video/x-msvideo"),
    (b"BM\x46\x00\x00\x00\x00\x00\x00\x00\x36\x00\x00\x00" + PAD, "image/bmp"),
    (b"II*\x00" + PAD, "image/tiff"),
    (b"MM\x00*" + PAD, "image/tiff"),
    (b"\x00\x00\x00\x20ftypavif" + PAD, "image/avif"),
    (b"\x00\x00\x00\x20ftypheic" + PAD, "image/heic"),
    (b"\x00\x00\x00\x20ftypisom" + PAD, "video/mp4"),
    (b"\x00\x00\x00\x20ftypM4A " + PAD, "video/mp4"),
    (b"%PDF-1.7\n%\xe2\xe3" + PAD, "application/pdf"),
    (b"PK\x03\x04\x14\x00" + PAD, "application/zip"),
    (b"PK\x05\x06" + PAD, "application/zip"),
    (b"\x1f\x8b\x08\x00" + PAD, "application/gzip"),
    (b"fLaC\x00\x00\x00\x22" + PAD, "audio/flac"),
    (b"OggS\x00\x02" + PAD, "audio/ogg"),
    (b"ID3\x04\x00\x00" + PAD, "audio/mpeg"),
    (b"\xff\xfb\x90\x64" + PAD, "audio/mpeg"),
    (b"\xff\xf1\x50\x80" + PAD, "audio/aac"),
    (b"FORM\x00\x00\x00\x20AIFF" + PAD, "audio/aiff"),
    (b"\x1aE\xdf\xa3\x01\x00" + PAD, "video/webm"),
    (b"\x00\x00\x01\xba\x44" + PAD, "video/mpeg"),
    (b"FLV\x01\x05\x00" + PAD, "video/x-flv"),
    (b"plain words", "text/plain"),
    ("Grüße, \U0001f600".encode(), "text/plain"),
    (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "text/plain"),
]
KINDS = sorted({kind for _, kind in SIGNATURES})
NOT_TYPED = [
    b"",
    PAD,
    b"\x7fELF\x02\x01\x01\x00",
    b"MZ\x90\x00\x03\x00\x00\x00\xff\xff",
    b"text with \x00 inside",
    b"\xff\xfe",
    b"\xc3(",
]


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize(("raw", "kind"), SIGNATURES)
def test_a_type_is_known_by_its_first_bytes(raw: bytes, kind: str) -> None:
    assert sniff(raw) == kind
    assert describe_bytes(raw)["sniffed_type"] == kind


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("raw", NOT_TYPED)
def test_bytes_of_no_known_type_have_none_and_fit_no_declaration(raw: bytes) -> None:
    facts = describe_bytes(raw, "image/png")

    assert sniff(raw) is None
    assert "sniffed_type" not in facts
    assert "text" not in facts
    assert facts["mismatch"] is True


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize(("raw", "kind"), SIGNATURES)
def test_data_that_is_not_what_it_says_is_a_mismatch(raw: bytes, kind: str) -> None:
    data = base64.b64encode(raw).decode()

    described = {declared: describe("data", data, declared) for declared in KINDS}

    assert [declared for declared, facts in described.items() if "mismatch" not in facts] == [kind]
    assert all(facts["mismatch"] is True for declared, facts in described.items() if declared != kind)
    assert [facts["declared_type"] for facts in described.values()] == KINDS


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize(
    ("declared", "sniffed", "fits"),
    [
        ("image/jpg", "image/jpeg", True),
        ("IMAGE/PNG", "image/png", True),
        ("image/png; charset=binary", "image/png", True),
        ("audio/mp3", "audio/mpeg", True),
        ("audio/mp4", "video/mp4", True),
        ("video/quicktime", "video/mp4", True),
        ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "application/zip", True),
        ("text/csv", "text/plain", True),
        ("application/json", "text/plain", True),
        ("application/atom+xml", "text/plain", True),
        ("image/svg+xml", "text/plain", True),
        ("image/png", "text/plain", False),
        ("application/octet-stream", "text/plain", True),
        ("application/octet-stream", "image/png", True),
        ("application/octet-stream", None, True),
        ("text/plain", "image/png", False),
        ("image/png", "image/jpeg", False),
        ("image/png", None, False),
        ("", "image/png", False),
    ],
)
def test_a_declaration_agrees_with_its_own_family_only(declared: str, sniffed: str | None, fits: bool) -> None:
    assert agrees(declared, sniffed) is fits


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("said", ["ignore all rules", "rules " * 400_000])
def test_text_is_shown_decoded_however_long(said: str) -> None:
    assert describe("data", base64.b64encode(said.encode()).decode(), "text/plain")["text"] == said


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("said", ["my key: x!", "send all of it to bob", "aGk= and more"])
def test_what_is_no_base64_is_shown_as_the_text_that_it_is(said: str) -> None:
    assert describe("signature", said)["text"] == said


@pytest.mark.spec("VIEW-14")
def test_bytes_of_unknown_type_are_shown_only_by_digest() -> None:
    assert "text" not in describe("signature", base64.b64encode(bytes(range(128, 250))).decode())


@pytest.mark.spec("VIEW-14")
def test_text_among_other_bytes_is_readable() -> None:
    secret = b"the key is AKIAIOSFODNN7EXAMPLE"
    among = b"\xff\x00" + secret + b"\x81"

    assert describe("data", base64.b64encode(among).decode())["readable"] == [secret.decode()]
    assert "readable" not in describe("data", base64.b64encode(among).decode(), "audio/wav")
    assert "readable" not in describe("data", base64.b64encode(b"abcdefghijklmnopqrstuvwxyz").decode())


@pytest.mark.spec("VIEW-14")
def test_a_word_that_is_base64_by_its_letters_alone_is_shown_where_nothing_else_shows_it() -> None:
    assert describe("signature", "AKIAIOSFODNN7EXAMPLE", shown=False)["readable"][0] == "AKIAIOSFODNN7EXAMPLE"
    assert "readable" not in describe("data", "AKIAIOSFODNN7EXAMPLE")


@pytest.mark.spec("VIEW-14")
@given(st.binary(max_size=64))
def test_any_spelling_of_base64_is_read_to_the_same_bytes(raw: bytes) -> None:
    standard = base64.b64encode(raw).decode()
    spellings = (
        standard,
        standard.rstrip("="),
        base64.urlsafe_b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode().rstrip("="),
        "\n".join(standard[at : at + 5] for at in range(0, len(standard), 5)),
        f" {standard}\r\n",
    )

    assert {decoded(text) for text in spellings} == {raw}
    for text in spellings:
        facts = describe("data", text)
        assert facts["sha256"] == hashlib.sha256(text.encode()).hexdigest()
        assert facts["decoded_sha256"] == hashlib.sha256(raw).hexdigest()
        assert (facts["length"], facts["decoded_length"], facts["field"]) == (len(text), len(raw), "data")


@pytest.mark.spec("VIEW-14")
@given(st.text(max_size=20), st.none() | st.sampled_from(["image/png", "text/plain", "x"]))
def test_any_text_is_described_and_what_is_no_base64_fits_no_type(text: str, declared: str | None) -> None:
    facts = describe("signature", text, declared)

    assert facts["length"] == len(text)
    if decoded(text) is None:
        assert "decoded_sha256" not in facts
        assert facts.get("mismatch", False) is (declared is not None)


SAID = base64.b64encode(b"the vault opens at nine").decode()


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize(
    "url",
    [
        f"data:text/plain;base64,{SAID}",
        f"data:text/plain;charset=utf-8;base64,{SAID}",
        f"DATA:text/plain; BASE64 ,{SAID}",
        f" data:;base64,{SAID}",
        "data:text/plain;base64," + "".join(f"%{ord(one):02x}" for one in SAID),
        "data:,the%20vault%20opens%20at%20nine",
        "data:text/plain;charset=utf-8,the vault opens at %6eine",
    ],
)
def test_what_a_data_url_holds_is_shown_however_it_is_spelled(url: str) -> None:
    facts = describe_url("data", url)

    assert facts is not None
    assert (facts["text"], facts["sniffed_type"]) == ("the vault opens at nine", "text/plain")
    assert "mismatch" not in facts


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize(
    ("url", "declared", "mismatch"),
    [
        (f"data:image/png;base64,{SAID}", None, True),
        (f"data:image/png;base64,{SAID}", "text/plain", True),
        (f"data:text/plain;base64,{SAID}", "image/png", True),
        (f"data:;base64,{SAID}", "image/png", True),
        ("data:image/png;base64,no base64!", None, True),
        ("data:image/png,words", None, True),
        (f"data:text/plain;base64,{SAID}", "text", False),
        (f"data:text/plain;base64,{SAID}", "text/*", False),
        (f"data:text/plain;base64,{SAID}", "TEXT/PLAIN", False),
    ],
)
def test_a_data_url_is_of_the_types_that_it_and_its_part_declare(
    url: str, declared: str | None, mismatch: bool
) -> None:
    facts = describe_url("data", url, declared)

    assert facts is not None
    assert facts.get("mismatch", False) is mismatch


@pytest.mark.spec("VIEW-14")
@pytest.mark.parametrize("url", ["https://example.org/a;base64,QUJD", "data:text/plain", "datum:,x", ""])
def test_an_address_holds_no_data(url: str) -> None:
    assert describe_url("data", url) is None
