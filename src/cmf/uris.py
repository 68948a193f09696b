"""The URIs of views, and matching them. Spec: docs/spec/views.md [VIEW-8] to [VIEW-11], [B5], [B6].

In a pattern only `*` (characters of one segment; alone: one whole segment) and `**` (as a segment: any number of
segments, none included) are special; dots, brackets, plus and question marks are literal. Case counts. Both sides are
normalised first, so that no second spelling of a URI slips past.
"""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import quote

_UNRESERVED = re.compile(r"[A-Za-z0-9._~-]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_SPECIAL = re.compile(r"[\[\]{}()!?|@+\\-]")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+._-]*):(//)?")
_OWN_SCHEMES = frozenset({"tool", "tool_result", "prompt", "prompt_result", "llm", "opaque"})


def segment(text: str) -> str:
    """`text` as one URI segment: everything but unreserved characters is percent-encoded."""
    if text.isidentifier() and text.isascii():  # most names are; `quote` takes ten times as long to say so
        return text
    return quote(text, safe="._~-") if text else "_"


def tool_uri(name: str, namespace: str | None) -> str:
    """`tool://<namespace or _>/<name>`."""
    return f"tool://{segment(namespace or '')}/{segment(name)}"


def normalise(uri: str) -> str:
    """The one spelling of `uri`: scheme and host in lower case, unreserved escapes decoded, dot segments resolved.

    Of our own schemes (`tool`, `tool_result`, `prompt`, `prompt_result`, `llm`, `opaque`) the authority is a name, and
    keeps its case.
    """
    uri = _ESCAPE.sub(_decoded, uri)
    scheme_match = _SCHEME.match(uri)
    if scheme_match is None:
        return uri
    scheme, slashes = scheme_match.group(1).lower(), scheme_match.group(2) or ""
    rest = uri[scheme_match.end() :]
    if not slashes:
        return f"{scheme}:{rest}"
    authority, separator, tail = _cut(rest, "/?#")
    if scheme not in _OWN_SCHEMES:
        authority = authority.lower()
        if separator == "/":
            path, mark, query = _cut(tail, "?#")
            tail = _without_dots(path) + mark + query
    return f"{scheme}://{authority}{separator}{tail}"


def matches(uri: str, pattern: str) -> bool:
    """Whether `uri` matches the glob `pattern`."""
    return _walk(normalise(uri).split("/"), _compiled(pattern))


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> tuple[re.Pattern[str] | None, ...]:
    """A matcher per segment; None stands for `**`."""
    return tuple(_segment_matcher(part) for part in normalise(pattern).split("/"))


def _segment_matcher(part: str) -> re.Pattern[str] | None:
    if part == "**":
        return None
    from wcmatch import fnmatch  # a sixth of the time of importing this package, and few programs match at all

    # wcmatch has no flags that switch off classes and question marks, and its `$` allows a newline: escape, anchor.
    escaped = _SPECIAL.sub(r"\\\g<0>", re.sub(r"\*+", "*", part))
    (regex,), _ = fnmatch.translate(escaped, flags=fnmatch.DOTMATCH | fnmatch.CASE | fnmatch.FORCEUNIX)
    return re.compile(regex.removesuffix("$") + r"\Z")


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


def _decoded(escape: re.Match[str]) -> str:
    character = chr(int(escape.group(1), 16))
    return character if _UNRESERVED.match(character) else escape.group(0).upper()


def _cut(text: str, marks: str) -> tuple[str, str, str]:
    """What is before the first of the marks, that mark, and what is behind it."""
    at = next((index for index, character in enumerate(text) if character in marks), len(text))
    return text[:at], text[at : at + 1], text[at + 1 :]


def _without_dots(path: str) -> str:
    kept: list[str] = []
    parts = path.split("/")
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part != ".":
            kept.append(part)
    if parts[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)
