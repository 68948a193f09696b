"""The fields of what a tool was given and returned, and their labels. Spec: provenance.md [PROV-7], profiles [PRF-9].

Text is read as fields only where that reading is the only one: strict JSON, block YAML without anchors, tags or
repeated keys, or a Python literal that spells itself. Anything else is one text, as far trusted as its worst field.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import yaml

from cmf.errors import DecodeError
from cmf.json.codec import loads
from cmf.json.frozen import MAX_DEPTH
from cmf.message.message import Part, TextPart, ToolCallPart, ToolResultPart
from pipeline.decisions.field_paths import Mark, Path, leaves, names
from pipeline.provenance.profile import ResultProfile

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


def result_leaves(part: ToolResultPart, form: str) -> Iterator[tuple[Path, Any]]:
    """The leaves of a result with their paths; the empty path is for what cannot be read into fields.

    Of a result that is made of parts only texts have fields: any other part is one leaf, the part itself.
    """
    if isinstance(part.content, tuple):
        for inner in part.content:
            if isinstance(inner, TextPart):
                yield from _text_leaves(inner.text, form)
            else:
                yield (), inner
    elif isinstance(part.content, str):
        yield from _text_leaves(part.content, form)
    else:
        yield from leaves(part.content)


def _text_leaves(text: str, form: str) -> Iterator[tuple[Path, Any]]:
    found = read_fields(text, form)
    return leaves(found) if found is not None else iter([((), text)])


def result_labels(part: ToolResultPart, rules: ResultProfile) -> frozenset[str]:
    """The labels of what a result holds: of the whole, and of each field that is there and has labels [PRF-9].

    An error, and what cannot be read into fields, has the labels of all fields.
    """
    every = rules.every_label
    if part.is_error:
        return every
    labels, open_patterns = set(rules.labels), [(pattern, set(found)) for pattern, found in rules.patterns]
    met: set[Path] = set()
    by_index = any(isinstance(step, int) for pattern, _ in open_patterns for step in pattern)
    for path, _ in result_leaves(part, rules.format) if open_patterns else ():
        if not path:
            return every
        like = path if by_index else tuple(0 if isinstance(step, int) else step for step in path)
        if like in met:
            continue
        met.add(like)
        for pattern, found in open_patterns:
            if not found <= labels and names(pattern, path):
                labels |= found
        if labels == every:
            break
    return frozenset(labels)


def result_values(part: ToolResultPart, form: str) -> Iterator[tuple[Path, str | float]]:
    """The values of a result with their paths; a text that cannot be read into fields has the empty path."""
    for path, item in result_leaves(part, form):
        if isinstance(item, Part):
            yield from (((), content) for content in strings(item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield path, item
    if isinstance(part.content, tuple) and (joined := joined_text(part.content)) is not None:
        yield (), joined


def joined_text(parts: Sequence[Part]) -> str | None:
    """The texts among the parts as one, as models read them; None if there are not several."""
    texts = [part.text for part in parts if isinstance(part, TextPart) and part.text]
    return "".join(texts) if len(texts) > 1 else None


def argument_values(call: ToolCallPart) -> Iterator[tuple[Path, Any]]:
    """The values of a call's arguments but null and booleans; argument names are the tool's own words."""
    if call.arguments is None:
        if call.arguments_raw:
            yield (), call.arguments_raw
        return
    for path, content in leaves(call.arguments):
        is_name = len(path) == 2 and path[1] is Mark.KEY
        if not is_name and content is not None and not isinstance(content, bool):
            yield path, content


def strings(part: Part) -> Iterator[str]:
    """Every text of a part but encoded bytes, whatever kind it is."""
    body = part.model_dump()
    body.pop("content_type", None)
    body.pop("blob", None)
    if body.get("type") == "base64":
        body.pop("data", None)
    return (item for path, item in leaves(body) if isinstance(item, str) and path[-1] is not Mark.KEY)


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
    if depth > MAX_DEPTH or event.anchor is not None or event.tag is not None:  # an alias has an anchor too, and no tag
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
