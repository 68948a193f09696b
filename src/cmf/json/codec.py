"""The only place where bytes become JSON and JSON becomes bytes. Spec: docs/spec/codec.md.

Reading is strict: what two parsers could read differently is refused, because then policy would judge one reading and
the provider act on the other.
"""

from __future__ import annotations

import json
import math
import re
import sys
from bisect import bisect_left
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, NoReturn, cast

import orjson

from cmf._native import same_but_spaces
from cmf.errors import DecodeError
from cmf.json.frozen import MAX_DEPTH

MAX_BYTES = 32 * 1024 * 1024  # one document; providers stop at 20 to 32 MiB
MAX_BRACKETS = 512 * 1024  # of a document from outside: reading one is one call, during which no other thread runs
SAFE_INTEGER = 2**53 - 1  # beyond it a double cannot tell neighbours apart, and engines use doubles [A3]

_OPTIONS = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_STRICT = _OPTIONS | orjson.OPT_STRICT_INTEGER
_EXPONENT = "e+" if b"e+" in orjson.dumps(1e22) else "e"
_LONG = 8192  # to count the brackets in more text takes longer than to have orjson count levels
_ALWAYS_EXACT = 16  # so many characters with a point hold no more than 15 digits, as all doubles do
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def loads(
    data: bytes | str,
    *,
    max_bytes: int = MAX_BYTES,
    max_depth: int = MAX_DEPTH,
    max_brackets: int | None = None,
    is_embedded: bool = False,
) -> Any:
    """The JSON value that `data` spells, as plain dicts and lists; integers are exact whatever their size.

    Args:
        data: UTF-8 text without a byte order mark.
        max_bytes: ceiling on the encoded size.
        max_depth: ceiling on containers inside containers.
        max_brackets: ceiling on opening brackets and braces, those in texts included, which may be JSON too.
        is_embedded: whether the text itself may go out again: then each of its numbers has to be the one that is read.

    Raises:
        DecodeError: code says which rule: json.too-large, json.too-many, json.not-utf8, json.syntax,
            json.duplicate-key, json.lone-surrogate, json.not-finite, json.inexact, json.too-deep.
            Spec: [CODEC-1] to [CODEC-7].
    """
    try:
        raw = data if type(data) is bytes else data.encode("utf-8") if isinstance(data, str) else bytes(data)
    except UnicodeEncodeError:
        raise _lone_surrogate("") from None
    if len(raw) > max_bytes:
        raise DecodeError(
            f"{len(raw)} bytes are more than the {max_bytes} allowed", code="json.too-large", hint="send less at once"
        )
    if max_brackets is not None and len(raw) > max_brackets and raw.count(b"[") + raw.count(b"{") > max_brackets:
        raise DecodeError(
            f"more than {max_brackets} opening brackets and braces", code="json.too-many", hint="send less at once"
        )
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _checked_depth(_slow_loads(raw, is_embedded=is_embedded), max_depth)
    # What re-encodes to the very same bytes lost nothing on the way in: no duplicate key, no rounded number. Nor did
    # what differs in spaces alone: all tokens are still there, in their order, and those in texts are alike on both
    # sides. Text that is spelled in yet another way (escapes, exponents) takes the reader that looks at every key.
    plain = None
    if len(raw) > 2 * max_depth and (len(raw) > _LONG or _brackets(raw) > max_depth):
        plain = _written_if_shallow(value) if max_depth >= MAX_DEPTH else None
        if plain is None:
            # Before it is written again: orjson writes no more than 254 levels, and fails with another error.
            _checked_depth(value, max_depth)
    if plain is None:
        plain = orjson.dumps(value)
    if plain != raw and not same_but_spaces(plain, raw):
        value = _slow_loads(raw, is_embedded=is_embedded)
    return value


def dumps(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as compact UTF-8 JSON; floats keep their spelling (1.0 stays 1.0), integers are exact.

    Args:
        value: JSON values; with `default`, also whatever it turns into JSON values, a level at a time.
        default: asked for each thing that has no JSON form of its own; raises TypeError where it knows none either.

    Raises:
        DecodeError: the value has no JSON form (code json.not-json).
    """
    try:
        return orjson.dumps(value, default, _OPTIONS)
    except orjson.JSONEncodeError:
        return _slow_dumps(value, default)


def dumps_sorted(value: Any, default: Callable[[Any], Any]) -> bytes | None:
    """`value` as `dumps` gives it, with the keys in the order of their code points.

    None where it has an integer beyond ±(2^53 - 1), or no such form.
    """
    try:
        return orjson.dumps(value, default, _STRICT | orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:
        return None


def dumps_with_range(value: Any) -> tuple[str, bool]:
    """`value` as `dumps` spells it, and whether all its numbers are known to be within ±(2^53 - 1).

    False may also mean that it would take looking at each one: a sixth of the time of doing so, and most often enough.
    """
    text = _small_text(value)
    return (dumps(value).decode(), False) if text is None else (text, not _may_be_large(text))


def is_small(value: Any) -> bool:
    """Whether all numbers of a JSON value are known to be within ±(2^53 - 1), as `dumps_with_range` reports."""
    text = _small_text(value)
    return text is not None and not _may_be_large(text)


def _small_text(value: Any) -> str | None:
    try:
        return orjson.dumps(value, None, _STRICT).decode()
    except orjson.JSONEncodeError:
        return None


def _may_be_large(text: str) -> bool:
    # A float that large is written with an exponent, or with all its digits and `.0`. (Bytes take six times as long to
    # say what is in them.)
    return (_EXPONENT[-1] in text and _EXPONENT in text) or ("." in text and ".0" in text)


def ready(text: bytes) -> Any:
    """JSON text as a value that `dumps` writes unchanged; the caller has to know that it is valid."""
    return orjson.Fragment(text)


def loads_object(text: str) -> dict[str, Any] | None:
    """The object that `text` (embedded arguments, say) spells in strict JSON; None where it does not [A8]."""
    try:
        value = loads(text, is_embedded=True)
    except DecodeError:
        return None
    return value if isinstance(value, dict) else None


def _brackets(text: bytes) -> int:
    """How many of them open in a JSON text, those in strings included: it cannot be nested more deeply."""
    # To leave them out takes a third of the time of counting them: it skips what is between them.
    return 2 * len(text) - len(text.replace(b"{", b"")) - len(text.replace(b"[", b""))


def _slow_loads(raw: bytes, *, is_embedded: bool = False) -> Any:
    """The exact reader: every key and number is looked at."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"not UTF-8: byte {error.start} cannot be decoded", code="json.not-utf8", hint="encode as UTF-8"
        ) from None
    if text.startswith("\ufeff"):
        raise DecodeError("starts with a byte order mark", code="json.not-utf8", hint="encode as UTF-8 without a BOM")
    try:
        value = (_EMBEDDED_READER if is_embedded else _READER).decode(text)
    except json.JSONDecodeError as error:
        raise DecodeError(
            f"not JSON: {error.msg.lower()} at line {error.lineno} column {error.colno}",
            hint="check the text there",
        ) from None
    except RecursionError:
        raise _too_deep(MAX_DEPTH) from None
    except _DuplicateKeyError:
        raise DecodeError(
            "an object has the same key twice",
            path=_duplicate_path(text),
            code="json.duplicate-key",
            hint="send each key once",
        ) from None
    except DecodeError:
        raise
    except ValueError:
        raise DecodeError("a number has too many digits", code="json.not-finite", hint="send it as text") from None
    if "\\u" in text or "\\U" in text:
        _refuse_surrogates(value)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _DuplicateKeyError
    return value


class _DuplicateKeyError(ValueError):
    """Found while reading, when the path is not known yet."""


def _duplicate_path(text: str) -> str:
    """The JSON path of the first key that an object has twice."""
    stack: list[tuple[str, Any]] = [("$", json.JSONDecoder(object_pairs_hook=_Pairs).decode(text))]
    while stack:
        path, value = stack.pop()
        if isinstance(value, _Pairs):
            seen: set[str] = set()
            for key, item in value:
                if key in seen:
                    return _below(path, key).removesuffix(_ELLIPSIS)
                seen.add(key)
                stack.append((_below(path, key), item))
        elif isinstance(value, list):
            stack.extend((f"{path}[{index}]", item) for index, item in enumerate(value))
    return "$"


def _below(path: str, key: str) -> str:
    """The path of the value under `key`; a key that is not a short name could be content, and is left out."""
    return f"{path}.{key}" if key.isidentifier() and len(key) <= 64 else path + _ELLIPSIS


_ELLIPSIS = "[…]"


class _Pairs(list[Any]):
    """An object as its pairs, in order, the repeated ones too."""


def _float(digits: str, *, is_embedded: bool = False) -> float:
    """The number that policy is shown; refused unless that is what `digits` denote [CODEC-7]."""
    number = float(digits)
    if not math.isfinite(number):
        raise DecodeError("a number is out of range", code="json.not-finite", hint="send a finite number")
    if len(digits) <= _ALWAYS_EXACT and "e" not in digits and "E" not in digits:
        return number
    try:
        exact = Decimal(digits)
    except InvalidOperation:  # an exponent of 19 digits or more
        exact = Decimal("NaN")
    # Some programs print doubles with up to 17 digits where fewer would do; a body is written anew, with the fewest.
    is_printed_double = len(exact.as_tuple().digits) <= 17 and sys.float_info.min <= abs(number) < 1e15
    if exact != Decimal(repr(number)) and (is_embedded or not is_printed_double):
        raise DecodeError("a number has more digits than a double", code="json.inexact", hint="send it as text")
    return number


def _constant(name: str) -> NoReturn:
    raise DecodeError(f"{name} is not JSON", code="json.not-finite", hint="send a finite number")


_READER = json.JSONDecoder(object_pairs_hook=_unique, parse_float=_float, parse_constant=_constant)
_EMBEDDED_READER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=partial(_float, is_embedded=True), parse_constant=_constant
)


def _lone_surrogate(path: str) -> DecodeError:
    hint = "send well-formed Unicode"
    return DecodeError("text has a lone surrogate", path=path, code="json.lone-surrogate", hint=hint)


def _refuse_surrogates(value: Any) -> None:
    stack: list[tuple[str, Any]] = [("$", value)]
    while stack:
        path, item = stack.pop()
        if isinstance(item, str):
            if not item.isascii() and _LONE_SURROGATE.search(item):
                raise _lone_surrogate(path)
        elif isinstance(item, dict):
            stack.extend((path, key) for key in item)
            stack.extend((_below(path, key), each) for key, each in item.items())
        elif isinstance(item, list):
            stack.extend((f"{path}[{index}]", each) for index, each in enumerate(item))


def _checked_depth(value: Any, max_depth: int) -> Any:
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(max_depth):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, dict | list)
        ]
        if not level:
            return value
    raise _too_deep(max_depth)


def _nested(levels: int, inside: Any) -> list[Any]:
    """A thing in that many lists, one in the other."""
    for _ in range(levels):
        inside = [inside]
    return cast("list[Any]", inside)


def _fits(height: int, levels: int) -> bool:
    """Whether orjson writes so many levels inside of so many others."""
    try:
        orjson.dumps(_nested(height, _HOLE), lambda _: _nested(levels, 0))
    except orjson.JSONEncodeError:
        return False
    return True


_HOLE = object()
_MOST = 1024  # more levels than any orjson writes so far
# How many levels have to be around one with `MAX_DEPTH` levels for orjson to refuse it: found out, not known. (An empty
# container counts as no level there, so the bound is one lower.)
_HEIGHT = bisect_left(range(_MOST), True, key=lambda height: not _fits(height, MAX_DEPTH))
_TOWER = _nested(_HEIGHT, _HOLE)


def _written_if_shallow(value: Any) -> bytes | None:
    """What orjson makes of a parsed value that it finds to have no more than `MAX_DEPTH` levels; None if it may have.

    orjson counts levels as it writes, and stops at a bound of its own; this lifts the value up to that bound.
    """
    if _HEIGHT == _MOST:
        return None
    try:
        return orjson.dumps(_TOWER, lambda _: value)[_HEIGHT:-_HEIGHT]
    except orjson.JSONEncodeError:
        return None


def _too_deep(max_depth: int) -> DecodeError:
    return DecodeError(f"nested deeper than {max_depth} levels", code="json.too-deep", hint="flatten the document")


def _slow_dumps(value: Any, default: Callable[[Any], Any] | None) -> bytes:
    """For integers that do not fit 64 bits, which orjson refuses."""
    try:
        text = json.dumps(value, default=default, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        if "max_str_digits" in str(error):
            hint = "send it as text"
            raise DecodeError("a number has too many digits", code="json.not-finite", hint=hint) from None
        hint = "use text, finite numbers, true, false, null, lists and objects"
        raise DecodeError(f"not a JSON value: {type(error).__name__}", code="json.not-json", hint=hint) from None
