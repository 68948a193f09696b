"""The URIs of views, and matching them. Spec: docs/spec/views.md [VIEW-8] to [VIEW-11], [VIEW-26], [B5], [B6].

In a pattern only `*` (characters of one segment; alone: one whole segment) and `**` (as a segment: any number of
segments, none included) are special; dots, brackets, plus and question marks are literal. Case counts. Both sides are
normalised first, so that no second spelling of a URI slips past.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from cmf._native import normal_form

_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_SPECIAL = re.compile(r"[\[\]{}()!?|@+\\-]")
_OWN_SCHEME = re.compile(r"(?:tool|tool_result|prompt|prompt_result|llm|opaque)://", re.IGNORECASE)
INVALID: Final = "invalid"
"""The scheme of what is an address and has no normal form."""


def segment(text: str) -> str:
    """`text` as one URI segment: everything but unreserved characters is percent-encoded."""
    if text.isidentifier() and text.isascii():  # most names are; `quote` takes ten times as long to say so
        return text
    return quote(text, safe="._~-") if text else "_"


def tool_uri(name: str, namespace: str | None) -> str:
    """`tool://<namespace or _>/<name>`."""
    return f"tool://{segment(namespace or '')}/{segment(name)}"


def normalise(uri: str) -> str:
    """The one spelling of `uri`: that of the address which browsers and clients ask for [VIEW-9].

    Of our own schemes (`tool`, `tool_result`, `prompt`, `prompt_result`, `llm`, `opaque`) the authority is a name: it
    keeps its case, and so does all behind it. An address that no client can read becomes an `invalid:` URI, which
    matches no pattern for addresses [VIEW-26].
    """
    normal = _normal(uri)
    return f"{INVALID}:{quote(uri, safe='')}" if normal is None else normal


def _normal(uri: str) -> str | None:
    scheme = _OWN_SCHEME.match(uri)
    if scheme is None:
        return normal_form(uri)

    def decoded(escape: re.Match[str]) -> str:
        character = chr(int(escape[1], 16))
        return character if _UNRESERVED.match(character) else escape[0].upper()

    return scheme[0].lower() + _ESCAPE.sub(decoded, uri[scheme.end() :])


def matches(uri: str, pattern: str) -> bool:
    """Whether `uri` matches the glob `pattern`."""
    return _walk(normalise(uri).split("/"), _compiled(pattern))


def name_matches(name: str, pattern: str) -> bool:
    """Whether a name that is no address, such as a subject's id, matches the glob: nothing of it is normalised."""
    return _walk(name.split("/"), _compiled(pattern, is_address=False))


@lru_cache(maxsize=4096)
def _compiled(pattern: str, *, is_address: bool = True) -> tuple[re.Pattern[str] | None, ...]:
    """A matcher per segment, in the spelling of what it is held against; None stands for `**`."""
    from wcmatch import fnmatch  # a sixth of the time of importing this package, and few programs match at all

    normal = pattern
    if is_address:  # it stays as it stands where stars make it no address
        normal = (_normal(pattern) or pattern) if "*" in pattern else normalise(pattern)
    matchers: list[re.Pattern[str] | None] = []
    for part in normal.split("/"):
        # wcmatch has no flags that switch off classes and question marks, and its `$` allows a newline: escape, anchor.
        escaped = _SPECIAL.sub(r"\\\g<0>", re.sub(r"\*+", "*", part))
        (regex,), _ = fnmatch.translate(escaped, flags=fnmatch.DOTMATCH | fnmatch.CASE | fnmatch.FORCEUNIX)
        matchers.append(None if part == "**" else re.compile(regex.removesuffix("$") + r"\Z"))
    return tuple(matchers)


def _walk(parts: list[str], pattern: tuple[re.Pattern[str] | None, ...]) -> bool:
    """Glob matching with one point to come back to: the last `**` seen."""
    at = want = 0
    back: tuple[int, int] | None = None
    while at < len(parts):
        matcher = pattern[want] if want < len(pattern) else _NOTHING
        if matcher is None:
            back = (at, want)
            want += 1
        elif matcher.match(parts[at]):
            at, want = at + 1, want + 1
        elif back is not None:
            back = (back[0] + 1, back[1])
            at, want = back[0], back[1] + 1
        else:
            return False
    return all(matcher is None for matcher in pattern[want:])


_NOTHING = re.compile(r"(?!)")
