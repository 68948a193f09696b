"""The fields of what a tool returned. Spec: docs/spec/provenance.md [PROV-7].

Text is read as fields only where that reading is the only one: strict JSON, block YAML without anchors, tags or
repeated keys, or a Python literal that spells itself. Anything else is one text, as far trusted as its worst field.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Final

import yaml

from cmf.codec import loads
from cmf.errors import DecodeError
from cmf.frozen import MAX_DEPTH

MAX_PYTHON_CHARACTERS: Final = 262_144  # of a Python literal; parsing one takes about 100 times its size in memory
_LOADER: Final = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_ODD_ESCAPE: Final = re.compile(r"(?:[^\\]|\A)(?:\\\\)*\\[^\\'\"nrtxuU]")
_BLOCK: Final = re.compile(r"- |-\n|[^\s\[\]{}#&*!|>%@`][^\n]*?:(?:\s|\Z)|['\"]")


def read_fields(text: str, form: str) -> dict[str, Any] | list[Any] | None:
    """The object or array that `text` spells in `form` (`auto`, `json`, `yaml`, `python`); None if it is just text."""
    readers = {"json": (_json,), "yaml": (_yaml,), "python": (_python,), "text": ()}.get(form, (_json, _yaml, _python))
    for reader in readers:
        found = reader(text)
        if isinstance(found, dict | list):
            return found
    return None


def _json(text: str) -> Any:
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return loads(text, max_depth=MAX_DEPTH)
    except DecodeError:
        return None


def _python(text: str) -> Any:
    stripped = text.strip()
    if stripped[:1] not in ("{", "[") or len(stripped) > MAX_PYTHON_CHARACTERS or _ODD_ESCAPE.search(stripped):
        return None
    if max(_nesting(stripped), 0) > MAX_DEPTH:
        return None
    try:
        found = ast.literal_eval(stripped)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return found if _is_json(found) and repr(found) == stripped else None


def _nesting(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]})":
            depth -= 1
    return deepest


def _is_json(found: Any) -> bool:
    if isinstance(found, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in found.items())
    if isinstance(found, list):
        return all(map(_is_json, found))
    return found is None or type(found) in (str, int, float, bool)


class _NotConservativeError(Exception):
    """YAML that another reader could read in another way."""


def _yaml(text: str) -> Any:
    if not _BLOCK.match(text.lstrip("\n")):
        return None
    loader = _LOADER(text)
    try:
        return _document(loader)
    except (yaml.YAMLError, _NotConservativeError, ValueError):
        return None
    finally:
        loader.dispose()


def _document(loader: Any) -> Any:
    loader.get_event()  # the stream begins
    start = loader.get_event()
    if not isinstance(start, yaml.DocumentStartEvent) or start.explicit:
        raise _NotConservativeError
    root = loader.get_event()
    if getattr(root, "flow_style", None) is not False:
        raise _NotConservativeError
    value = _node(loader, root, 0)
    loader.get_event()  # the document ends
    if not isinstance(loader.get_event(), yaml.StreamEndEvent):
        raise _NotConservativeError
    return value


def _node(loader: Any, event: Any, depth: int) -> Any:
    if depth > MAX_DEPTH or isinstance(event, yaml.AliasEvent) or event.anchor is not None or event.tag is not None:
        raise _NotConservativeError
    if isinstance(event, yaml.ScalarEvent):
        return None if event.implicit[0] and event.value in ("", "null", "~") else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items = []
        while not isinstance(event := loader.get_event(), yaml.SequenceEndEvent):
            items.append(_node(loader, event, depth + 1))
        return items
    mapping: dict[str, Any] = {}
    while not isinstance(event := loader.get_event(), yaml.MappingEndEvent):
        key = _node(loader, event, depth + 1)
        if not isinstance(key, str) or key in mapping:
            raise _NotConservativeError
        mapping[key] = _node(loader, loader.get_event(), depth + 1)
    return mapping


__all__ = ["read_fields"]
