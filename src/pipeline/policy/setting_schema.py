"""What the settings of a rule may be: the JSON Schemas of its METADATA. Spec: docs/spec/policies.md [POL-68].

A setting of a wrong type, or a pattern that nothing matches, switches a rule off without a word. So each setting is
held to its schema, whose formats also say whether a pattern can match at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote

from cmf import _native
from cmf.enums import ViewKind
from cmf.views.uris import segment
from pipeline.decisions.display import meant

_SEGMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("NAMESPACE", "NAME"),
    "tool_result": ("NAME",),
    "prompt": ("SERVER", "NAME"),
    "prompt_result": ("NAME",),
    "llm": ("PROVIDER", "MODEL"),
    "opaque": ("FORMAT", "TYPE"),
}
"""The schemes of the product's own URIs, and what their segments are."""

_SCHEMES: Final[Mapping[ViewKind, str]] = {
    ViewKind.TOOL_CALL: "tool",
    ViewKind.TOOL_DEFINITION: "tool",
    ViewKind.TOOL_RESULT: "tool_result",
    ViewKind.PROMPT_REQUEST: "prompt",
    ViewKind.PROMPT_RESULT: "prompt_result",
    ViewKind.REQUEST: "llm",
    ViewKind.RESPONSE: "llm",
    ViewKind.OPAQUE: "opaque",
}
"""The scheme of each kind that has one; resources and media have any URI, texts none."""

WITHOUT_URI: Final = frozenset({ViewKind.TEXT, ViewKind.THINKING})
"""The kinds that never have a URI."""


def uri_hint(uri: str, kinds: Set[ViewKind] | None, *, is_pattern: bool = False) -> str | None:
    """What to write instead of a URI, or pattern, that no view has; None if one can.

    `kinds` are those that the rule is evaluated for; None if they are not known.
    """
    scheme, separator, rest = uri.partition("://")
    if is_pattern and ("*" in scheme if separator else "**" in uri.split("/")):
        return None
    schemes = {_SCHEMES.get(kind) for kind in (kinds or ()) if kind not in WITHOUT_URI}
    if schemes and None not in schemes and (not separator or scheme not in schemes):
        forms = " or ".join(sorted(f"{one}://{'/'.join(_SEGMENTS[one])}" for one in schemes if one is not None))
        return f"for the rule's kinds it is {forms}"
    names = _SEGMENTS.get(scheme) if separator else None
    if names is None:
        is_relative = is_pattern and not re.search("[:*]", uri)
        return "a URI begins with a scheme, as in tool://NAMESPACE/NAME" if is_relative else None
    parts = rest.split("/")
    written = f"{scheme}://{'/'.join(_written(part, is_pattern=is_pattern) for part in parts)}"
    if written != uri and len(parts) == len(names):
        return f"write {written}"
    if is_pattern and "**" in parts and len(parts) - parts.count("**") <= len(names):
        return None
    if len(parts) == len(names):
        return None
    if len(names) == 2 and len(parts) == 1:
        return f"write {scheme}://_/{rest}, or another namespace for `_` (none)"
    return f"it is {scheme}://{'/'.join(names)}"


def _written(part: str, *, is_pattern: bool) -> str:
    """A segment of a URI or pattern as views spell it."""
    pieces = part.split("*") if is_pattern and "*" in part else [part]
    return "*".join(segment(unquote(piece)) if piece or len(pieces) == 1 else "" for piece in pieces)


Kinds = Set[ViewKind]
Step = str | int


class Misfit(NamedTuple):
    """A value that its schema does not allow: where below the setting, what is wrong, and what to do."""

    steps: tuple[Step, ...]
    message: str
    hint: str
    is_unknown: bool = False


class _Format(NamedTuple):
    """A format of texts: in words, and what to write instead of a text that has not got it (None: it has)."""

    words: str
    advice: Callable[[str, Kinds], str | None]


_KEYWORDS: Final = frozenset(
    {"type", "enum", "format", "pattern", "minLength", "minimum", "maximum", "items", "minItems", "description"}
    | {"properties", "required", "additionalProperties", "propertyNames", "minProperties"}
)
"""The keywords of JSON Schema that a declaration may use: a misspelt one would check nothing."""
_KNOWN: Final = f"known: {', '.join(sorted(_KEYWORDS))}"

_HOST: Final = re.compile(r"\*|\[[0-9a-f:.]+\]|(?:\*\.)?[^\s/@:*?#\\\[\]A-Z.]+(?:\.[^\s/@:*?#\\\[\]A-Z.]+)*")
_NAME: Final = re.compile(r"(?:(?!://)[^\s*])+")
_TEXT: Final = re.compile(r"\S(?:.*\S)?", re.DOTALL)
_NO_BLANKS: Final = "write it without blanks at its ends"
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")


def _uri(text: str, kinds: Kinds) -> str | None:
    return "write it without `*`" if "*" in text else uri_hint(text, kinds)


def _expression(text: str, _: Kinds) -> str | None:
    problem = _native.foreign_pattern(text) if text else ("empty", "write what to look for")
    return None if problem is None else f"it has {problem[0]}: {problem[1]}"


def _counter(text: str, kinds: Kinds) -> str | None:
    kept, _, uri = text.partition(":")
    if kept == "calls" or "://" in text:
        advice = uri_hint(uri, {ViewKind.TOOL_CALL}) if kept == "calls" else "a tool's is calls:<tool uri>"
        return advice or _uri(uri, {ViewKind.TOOL_CALL})
    return _shaped(_TEXT, _NO_BLANKS)(text, kinds)


def _shaped(shape: re.Pattern[str], advice: str) -> Callable[[str, Kinds], str | None]:
    return lambda text, _: None if shape.fullmatch(text) else advice


_FORMATS: Final[Mapping[str, _Format]] = {
    "uri": _Format("a URI", _uri),
    "uri-pattern": _Format("a URI pattern", partial(uri_hint, is_pattern=True)),
    "tool-pattern": _Format(
        "a URI pattern of tools", lambda text, _: uri_hint(text, {ViewKind.TOOL_CALL}, is_pattern=True)
    ),
    "host-pattern": _Format(
        "a host (`example.com`, `*.example.com`, `*`)",
        _shaped(_HOST, "write the host alone, in lower case, without scheme, port and path"),
    ),
    "expression": _Format("a regular expression (RE2)", _expression),
    "name": _Format("a name", _shaped(_NAME, "write the name itself: no pattern, no URI, no blanks")),
    "text": _Format("a text", _shaped(_TEXT, _NO_BLANKS)),
    "media-type": _Format(
        "a media type", _shaped(_MEDIA_TYPE, "write it in lower case, without parameters: application/pdf")
    ),
    "counter": _Format("a counter", _counter),
}

_NOUNS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


_KINDS: Final = (
    (bool, "true or false"),
    (int | float, "a number"),
    (str, "a text"),
    (list, "a list"),
    (dict, "an object"),
)


def declaration_problem(declared: object) -> str | None:
    """What is wrong with the `settings` of METADATA; None if it is a schema for each name."""
    import jsonschema_rs  # takes a while to import, and few programs load rules

    if not isinstance(declared, dict):
        return "it is no object of schemas by name"
    for name, schema in declared.items():
        problem = next(_schema_problems(schema), None)
        if problem is None and not jsonschema_rs.meta.is_valid(schema):
            problem = "it is no JSON Schema"
        if problem is not None:
            return f"{name}: {problem}"
    return None


def _schema_problems(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict) or not schema:
        yield "write a JSON Schema, such as {type: boolean}"
        return
    yield from (f"unknown keyword {word}; {meant(str(word), _KEYWORDS, _KNOWN)}" for word in schema.keys() - _KEYWORDS)
    if schema.get("format", "text") not in _FORMATS:
        yield f"unknown format; {meant(str(schema['format']), _FORMATS, 'known: ' + ', '.join(_FORMATS))}"
    inner = [schema[word] for word in ("items", "propertyNames") if word in schema]
    inner += [schema["additionalProperties"]] if isinstance(schema.get("additionalProperties"), dict) else []
    inner += schema["properties"].values() if isinstance(schema.get("properties"), dict) else []
    for each in inner:
        yield from _schema_problems(each)


def misfits(schema: dict[str, Any], value: Any, kinds: Kinds) -> Iterator[Misfit]:
    """Where a value is not what the schema asks for; `kinds` are those of the views that the rule judges."""
    import jsonschema_rs

    formats: dict[str, Callable[..., bool]] = {name: partial(_fits, each, kinds) for name, each in _FORMATS.items()}
    validator = jsonschema_rs.Draft202012Validator(schema, validate_formats=True, formats=formats)
    for error in validator.iter_errors(value):
        steps, inner = tuple(error.instance_path), cast("Any", schema)
        for step in [*error.schema_path][:-1]:
            inner = inner[step]
        match error.kind:
            case jsonschema_rs.ValidationErrorKind.AdditionalProperties(unexpected=names):
                for name in names:
                    yield Misfit((*steps, name), "unknown name", _meant(name, inner["properties"]), is_unknown=True)
            case jsonschema_rs.ValidationErrorKind.PropertyNames(error=within):
                name = str(within.instance)
                yield Misfit((*steps, name), f"the name is not {_noun(inner)}", _advice(inner, name, kinds))
            case jsonschema_rs.ValidationErrorKind.Format():
                yield Misfit(steps, f"this is not {_noun(inner)}", _advice(inner, error.instance, kinds))
            case _:
                message = f"expected {words(inner)}, found {_found(error.instance)}"
                yield Misfit(steps, message, _advice(inner, error.instance, kinds))


def unknown(name: str, known: Iterable[str]) -> Misfit:
    """That there is nothing of that name."""
    return Misfit((name,), "unknown name", _meant(name, known), is_unknown=True)


def _meant(name: str, known: Iterable[str]) -> str:
    return meant(name, known, f"known: {', '.join(known)}")


def _fits(form: _Format, kinds: Kinds, text: str) -> bool:
    return form.advice(text, kinds) is None


def _advice(schema: Mapping[str, Any], value: Any, kinds: Kinds) -> str:
    """What to do about a value that the schema does not allow."""
    if isinstance(value, str) and "format" in schema:
        return _FORMATS[schema["format"]].advice(value, kinds) or "correct it"
    if value in ([], {}) and schema.keys() & {"minItems", "minProperties"}:
        return "leave it out, or switch the rule off by its mode (data.cmf.modes), which is on record"
    if schema.get("type") == "array" and not isinstance(value, list):
        return "write a list: […]"
    if isinstance(value, str) and {schema.get("type")} & {"integer", "number", "boolean"}:
        return "write it without quotes"
    return "correct it"


def _found(value: Any) -> str:
    """What kind of value it is, never the value."""
    noun = next((noun for kind, noun in _KINDS if isinstance(value, kind)), "null")
    return noun.replace(" ", " empty ", 1).replace("a e", "an e") if value in ("", [], {}) else noun


def words(schema: Mapping[str, Any]) -> str:
    """What a schema asks for, in words."""
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    at_least = schema.get("minItems", schema.get("minProperties"))
    some = f" of at least {at_least}" if at_least else ""
    match schema:
        case {"type": "array", "items": items}:
            return f"a list{some}: {words(items)}"
        case {"type": "object", "properties": known}:
            must = schema.get("required", ())
            return f"an object{some}: {', '.join(f'{name} (required)' if name in must else name for name in known)}"
        case {"type": "object", "additionalProperties": dict(inner)}:
            return f"an object{some}: {_noun(schema.get('propertyNames', {'format': 'name'}))} → {words(inner)}"
    signs = (("minimum", "≥"), ("maximum", "≤"))
    return _noun(schema) + some + "".join(f", {sign} {schema[word]:,}" for word, sign in signs if word in schema)


def _noun(schema: Mapping[str, Any]) -> str:
    if "format" in schema:
        return _FORMATS[schema["format"]].words
    types = schema.get("type", [])
    return " or ".join(_NOUNS[name] for name in ([types] if isinstance(types, str) else types)) or "a value"
