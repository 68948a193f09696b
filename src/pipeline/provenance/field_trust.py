"""How far a field of a result is trusted by its key and its shape [G3]. Spec: docs/spec/profiles.md [PRF-14].

What a service fills in (ids, addresses, dates, amounts, names) has no room for a sentence. Whatever has room for one
may have been written by anybody, and so may all that stands under a key for text, however short it is.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Final

from pipeline.decisions.field_paths import Mark, Path
from pipeline.provenance.words import inferred_words, words_of

MAX_NAME: Final = 80  # characters of a name
MAX_WORDS: Final = 8
MIN_CAPITAL: Final = 4  # letters of a word that begins with a capital in title case
MAX_TOKEN: Final = 256  # characters of an id or address
_TOKEN: Final = re.compile(r"[^\s,;|<>\"'`]+")
_WORD: Final = re.compile(r"[^\W_]+")
_ADDRESS: Final = re.compile(r"\S+@\S+\.\S+|[a-z][a-z0-9+.-]*://\S+|www\.\S+", re.I)
_FIGURES: Final = re.compile(r"[-+\d.,:/%\s()TZ$\u20ac\u00a3]+")
_SENTENCE: Final = re.compile(r"[.!?;](?:\s|\Z)|[\n\r\t!?]|\w\s*[<>{}]|:\s")
_ABBREVIATED: Final = re.compile(r"(?<!\w)(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|Inc|Ltd|Co|Corp|No|Str|Ave|Blvd|Rd)\.")
_MIXED: Final = re.compile(r"(?=\S*\d)(?=\S*[^\W\d_])\S{6,}|\S*\d{5,}\S*|\S*[@/\\=]\S*")
"""A word that could be an id or an address: among other words it may be the one that an attacker wants used."""


def trust_of(path: Path, content: str) -> bool:
    """Whether a service fills in a value: its key is not one for text, and it has the shape of no sentence."""
    is_key = path[-1:] == (Mark.KEY,)
    key = next((step for step in reversed(path) if isinstance(step, str)), None)
    if key is not None and not is_key and _is_free(key):
        return False
    text = content.strip()
    if not text or _FIGURES.fullmatch(text):
        return len(text) <= MAX_NAME
    if _TOKEN.fullmatch(text):
        return len(text) <= MAX_TOKEN and (
            _ADDRESS.fullmatch(text) is None or (key is not None and _holds_address(key))
        )
    return (
        _is_name(text)
        if key is not None
        else bool(path)
        and (_is_name(text) and all(len(word) < MIN_CAPITAL or not word[0].islower() for word in text.split()))
    )


def _is_name(text: str) -> bool:
    if len(text) > MAX_NAME or _SENTENCE.search(_ABBREVIATED.sub("", text)):
        return False
    words = text.split()
    return len(words) <= MAX_WORDS and not any(map(_MIXED.fullmatch, words))


@lru_cache(maxsize=4096)
def _key_words(key: str) -> tuple[str, ...]:
    return tuple(word for word in words_of(key) if not word.isdecimal())


def _is_free(key: str) -> bool:
    """Whether a key is one for text: `body`, `review_text`; `message_id` is not."""
    words = _key_words(key)
    return bool(words) and (words[-1] in _free() or words[-1].removesuffix("s") in _free())


def _holds_address(key: str) -> bool:
    words = _key_words(key)
    return any(word in _pointing() or word.removesuffix("s") in _pointing() for word in words)


@cache
def _free() -> frozenset[str]:
    return frozenset(inferred_words()["free_fields"])


@cache
def _pointing() -> frozenset[str]:
    words = inferred_words()
    return frozenset(words["arguments"]["control"]) | frozenset(words["address_fields"])
