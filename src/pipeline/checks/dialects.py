"""Calls of builtins that the embedded engine answers otherwise than OPA. Spec: docs/spec/policies.md [POL-25].

In globs `:` does not separate here, and `**` goes over separators only where it stands between them, or at an end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pipeline.engines.survey import Place, Survey
from pipeline.policies.library import shipped
from pipeline.policies.metadata import Module

_TAB: Final = 4  # columns that the engine counts for a tab
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`|#[^\n]*|[{}\[\]()]|,', re.DOTALL)
_INSTEAD: Final = "for URIs ask `data.cmf.lib.uri_matches(uri, pattern)`, and else `regex.match`: they are heard alike"
_ESCAPES: Final = (
    r'`strings.replace_n({"#": "%23", "&": "%26", "=": "%3D", " ": "%20", "\t": "%09", "\n": "%0A", "\r": "%0D"}, …)`'
)


class Dissent(NamedTuple):
    """What is heard otherwise, and what to do; `surely` is False where that depends on what is asked."""

    message: str
    hint: str
    surely: bool


def dissents(survey: Survey, modules: Sequence[Module], data: Mapping[str, Any]) -> Iterator[tuple[Place, Dissent]]:
    """Every call that is heard otherwise by OPA, or may be; but for the shipped policies, which are proved alike."""
    texts = {module.path: module.text for module in modules if not (shipped() / module.path).is_file()}
    for definition in survey.definitions():
        for call in definition.calls:
            if call.place.module not in texts or call.name not in _ASKED:
                continue
            arguments = _arguments(texts[call.place.module], call.place)
            if len(arguments) != len(call.arguments):
                continue  # it is refused for that
            known = survey.text_of(call.arguments[0], data)
            found = _ASKED[call.name](known, arguments)
            if found is not None:
                yield call.place, found


def _glob(pattern: str | None, arguments: Sequence[str]) -> Dissent | None:
    separators = arguments[1]
    return None if len(arguments) != 3 or separators == "null" else dissent(pattern, _texts(separators))


def _query(_: str | None, arguments: Sequence[str]) -> Dissent | None:
    if "%23" in arguments[0]:
        return None
    message = "here this loses what is behind `#`, and every `&`, tab and line end; OPA keeps them"
    return Dissent(message, f"escape them first: {_ESCAPES}", surely=False)


def _network(_: str | None, arguments: Sequence[str]) -> Dissent | None:
    if "::ffff:" in arguments[-1]:
        return None
    message = "here an IPv4 address written as `::ffff:10.0.0.1` is in no IPv4 network; in OPA it is"
    return Dissent(message, 'ask for `trim_prefix(lower(…), "::ffff:")`', surely=False)


def _quoting(_: str | None, __: Sequence[str]) -> Dissent | None:
    return Dissent("here only `*` is quoted; OPA quotes `?`, `[`, `{` and `\\` too", _INSTEAD, surely=False)


def _pointers(_: str | None, arguments: Sequence[str]) -> Dissent | None:
    if not any(path.startswith("/") for path in _texts(arguments[1]) or ()):
        return None
    return Dissent("here a path that begins with `/` leads nowhere", 'write `"a/b"`', surely=True)


def _replacements(_: str | None, arguments: Sequence[str]) -> Dissent | None:
    try:
        words = json.loads(arguments[0])
    except ValueError:
        return None
    if not any(old and old in str(new) for old in words for other, new in words.items() if other != old):
        return None
    return Dissent("here one is replaced after the other, and in OPA all at once", "use `regex.replace`", surely=True)


_ASKED: Final[Mapping[str, Callable[[str | None, Sequence[str]], Dissent | None]]] = {
    "glob.match": _glob,
    "glob.quote_meta": _quoting,
    "json.filter": _pointers,
    "json.remove": _pointers,
    "net.cidr_contains": _network,
    "strings.replace_n": _replacements,
    "urlquery.decode": _query,
    "urlquery.decode_object": _query,
}


def dissent(pattern: str | None, separators: Sequence[str] | None) -> Dissent | None:
    """What OPA hears otherwise in a glob, None for nothing. A pattern and separators that are not known are None."""
    known = separators is not None and pattern is not None
    between = separators or ["."]
    if ":" in between:
        return Dissent("`:` separates in OPA, and not here: `*` goes over it", _INSTEAD, surely=True)
    if "/" in between and len(between) > 1:
        return Dissent("OPA hears `/` beside other separators otherwise", _INSTEAD, surely=True)
    if pattern is None:
        message = "the pattern is not known here; `**` inside a segment, `?` and `[…]` OPA hears otherwise"
        return Dissent(message, _INSTEAD, surely=False)
    for match in re.finditer(r"\*{2,}", pattern):
        before, after = pattern[: match.start()][-1:], pattern[match.end() :][:1]
        alone = before in ("", *between) and after in ("", *(one for one in between if one != "/"))
        if not alone or len(match[0]) > 2:
            return Dissent("OPA hears this `**` otherwise: here it stands for whole segments", _INSTEAD, surely=known)
    if re.search(r"[?\[]", pattern):
        return Dissent("OPA hears `?` and `[…]` otherwise where a text is not ASCII", _INSTEAD, surely=False)
    return None


def _texts(written: str) -> Sequence[str] | None:
    """The texts of a list that is written out; None for what is worked out."""
    try:
        value = json.loads(written)
    except ValueError:
        return None
    return value if isinstance(value, list) and all(isinstance(one, str) for one in value) else None


def _arguments(text: str, place: Place) -> list[str]:
    """The arguments of the call at `place`, as they are written."""
    rest = _from(text, place)
    depth, start = 0, 0
    found: list[str] = []
    for token in _TOKEN.finditer(rest):
        opens = token[0] in "{[("
        closes = token[0] in "}])"
        depth += opens - closes
        if opens and depth == 1:
            start = token.end()
        elif (closes and depth == 0) or (token[0] == "," and depth == 1):
            found.append(rest[start : token.start()].strip())
            start = token.end()
            if depth == 0:
                break
    return found


def _from(text: str, place: Place) -> str:
    lines = text.splitlines(keepends=True)
    at = 1
    for number, character in enumerate(lines[place.line - 1]):
        if at >= place.column:
            return lines[place.line - 1][number:] + "".join(lines[place.line :])
        at += _TAB if character == "\t" else 1
    return ""


__all__ = ["Dissent", "dissent", "dissents"]
