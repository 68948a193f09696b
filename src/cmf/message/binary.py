"""Facts about binary data that do not show it: digests, length, true type, and its text if it is text [B3 (d)].

Spec: docs/spec/views.md [VIEW-14].
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import unquote_to_bytes

_READABLE: Final = re.compile(r"[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd]{8,}")  # shorter words are in random bytes, too
TEXT_TYPES: Final = ("text/", "application/json", "application/xml", "application/x-ndjson", "image/svg+xml")


def decoded(text: str) -> bytes | None:
    """The bytes that base64 `text` (standard or URL-safe, padded or not, with or without white space) spells."""
    compact = "".join(text.split()).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True)
    except ValueError:
        return None


def data_url(url: str) -> tuple[str, str] | None:
    """The media type (it may be empty) and the base64 text of a `data:` URL that the two spell again; else None."""
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    return head[len("data:") : -len(";base64")], data


def describe_url(field: str, url: str, declared_type: str | None = None) -> dict[str, Any] | None:
    """The facts about the bytes that a `data:` URL holds, as `describe` gives them; None if it is no such URL.

    Every spelling is read that readers of URLs take: letters of either case, parameters, white space, and percent signs
    (RFC 2397). The type is that of the URL, or else the declared one. `mismatch` is also said where the bytes are not
    of the declared one.
    """
    head, comma, data = url.lstrip().partition(",")
    scheme, _, own = head.partition(":")
    if not comma or scheme.lower() != "data":
        return None
    kind, *parameters = [word.strip() for word in own.split(";")]
    raw = unquote_to_bytes(data)
    if any(word.lower() == "base64" for word in parameters):
        facts = describe(field, raw.decode("utf-8", "replace"), kind or declared_type)
    else:
        facts = {"field": field, "sha256": hashlib.sha256(data.encode()).hexdigest(), "length": len(data)}
        facts |= describe_bytes(raw, kind or declared_type)
        facts |= {"declared_type": kind or declared_type} if kind or declared_type else {}
    is_one_type = declared_type is not None and "/" in declared_type and "*" not in declared_type  # not `image/*`
    if kind and declared_type and is_one_type and not agrees(declared_type, facts.get("sniffed_type")):
        facts["mismatch"] = True
    return facts


def describe(field: str, text: str, declared_type: str | None = None, *, shown: bool = True) -> dict[str, Any]:
    """The facts for policy about base64 (or otherwise opaque) `text` in `field`.

    Keys: field, sha256 (of the text as it stands), length (characters); for valid base64 also decoded_sha256,
    decoded_length (bytes), sniffed_type, `text` where the bytes are UTF-8 text, `readable` with the text in bytes of
    unknown or no declared type, and `mismatch` where the bytes are not of the declared type. What is no base64, or only
    because words without their spaces could be, is text itself. Where the input does not have `text` anywhere else
    (`shown`), it is the first of `readable`: a word may be base64 by its letters alone.
    """
    facts: dict[str, Any] = {"field": field, "sha256": hashlib.sha256(text.encode()).hexdigest(), "length": len(text)}
    if declared_type is not None:
        facts["declared_type"] = declared_type
    raw = decoded(text)
    if raw is None:
        if declared_type is not None:
            facts["mismatch"] = True
        return facts | {"text": text}
    facts |= describe_bytes(raw, declared_type)
    if "sniffed_type" not in facts and len(text.split(maxsplit=1)) > 1:
        facts["text"] = text
    if declared_type is None and "text" not in facts and not shown:
        facts["readable"] = [text, *facts.get("readable", ())]
    return facts


def describe_bytes(raw: bytes, declared_type: str | None = None) -> dict[str, Any]:
    """The part of `describe` that concerns the decoded bytes."""
    facts: dict[str, Any] = {"decoded_sha256": hashlib.sha256(raw).hexdigest(), "decoded_length": len(raw)}
    kind = sniff(raw)
    if kind is not None:
        facts["sniffed_type"] = kind
    if kind == "text/plain":
        facts["text"] = raw.decode("utf-8")
    if kind is None and declared_type is None and (readable := _READABLE.findall(raw.decode("utf-8", "replace"))):
        facts["readable"] = readable
    if declared_type is not None and not agrees(declared_type, kind):
        facts["mismatch"] = True
    return facts


def sniff(raw: bytes) -> str | None:
    """The media type that the bytes really are, by their first bytes; `text/plain` for UTF-8 text; None if unknown."""
    for kind, test in _SIGNATURES:
        if test(raw):
            return kind
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return "text/plain" if raw and b"\x00" not in raw else None


def type_of(text: str, declared: str | None) -> str | None:
    """The media type of base64 `text`: the declared one, else what the bytes really are; None if unknown."""
    raw = None if declared is not None else decoded(text)
    return declared if raw is None else sniff(raw)


def agrees(declared: str, sniffed: str | None) -> bool:
    """Whether data declared as one type may be of the sniffed one: same type, or text declared as a textual type.

    `application/octet-stream` says of bytes that they are bytes, and so claims nothing that could be wrong.
    """
    declared = declared.split(";")[0].strip().lower()
    if declared == _ANY_BYTES:
        return True
    if sniffed is None:
        return False
    if sniffed == "text/plain":
        return declared.startswith(TEXT_TYPES) or declared.endswith(("+xml", "+json"))
    return _FAMILY.get(declared, declared) == _FAMILY.get(sniffed, sniffed)


_ANY_BYTES: Final = "application/octet-stream"
_FAMILY: Final = {
    "image/jpg": "image/jpeg",
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/m4a": "video/mp4",
    "audio/mp4": "video/mp4",
    "audio/x-m4a": "video/mp4",
    "audio/aac": "audio/aac",
    "video/quicktime": "video/mp4",
    "audio/webm": "video/webm",
    "video/x-matroska": "video/webm",
    "audio/opus": "audio/ogg",
    "video/ogg": "audio/ogg",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "application/zip",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "application/zip",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "application/zip",
    "application/epub+zip": "application/zip",
}


def _starts(*signatures: bytes) -> Callable[[bytes], bool]:
    return lambda raw: raw.startswith(signatures)


def _riff(kind: bytes) -> Callable[[bytes], bool]:
    return lambda raw: raw[:4] == b"RIFF" and raw[8:12] == kind


def _brand(*brands: bytes) -> Callable[[bytes], bool]:
    return lambda raw: raw[4:8] == b"ftyp" and (not brands or raw[8:12] in brands)


_SIGNATURES: Final[tuple[tuple[str, Callable[[bytes], bool]], ...]] = (
    ("image/png", _starts(b"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", _starts(b"\xff\xd8\xff")),
    ("image/gif", _starts(b"GIF87a", b"GIF89a")),
    ("image/webp", _riff(b"WEBP")),
    ("image/bmp", lambda raw: raw[:2] == b"BM" and raw[6:10] == bytes(4)),
    ("image/tiff", _starts(b"II*\x00", b"MM\x00*")),
    ("image/avif", _brand(b"avif", b"avis")),
    ("image/heic", _brand(b"heic", b"heix", b"mif1")),
    ("application/pdf", _starts(b"%PDF-")),
    ("application/zip", _starts(b"PK\x03\x04", b"PK\x05\x06")),
    ("application/gzip", _starts(b"\x1f\x8b")),
    ("audio/wav", _riff(b"WAVE")),
    ("audio/flac", _starts(b"fLaC")),
    ("audio/ogg", _starts(b"OggS")),
    ("audio/aac", _starts(b"\xff\xf1", b"\xff\xf9")),
    ("audio/mpeg", _starts(b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2")),
    ("audio/aiff", lambda raw: raw[:4] == b"FORM" and raw[8:12] in (b"AIFF", b"AIFC")),
    ("video/mp4", _brand()),
    ("video/webm", _starts(b"\x1aE\xdf\xa3")),
    ("video/mpeg", _starts(b"\x00\x00\x01\xba", b"\x00\x00\x01\xb3")),
    ("video/x-msvideo", _riff(b"AVI ")),
    ("video/x-flv", _starts(b"FLV\x01")),
)
