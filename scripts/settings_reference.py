"""Write docs/settings.md, every setting of `cmf.yaml`: `make docs`. Types, defaults and texts are those of the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline.authoring.rule_pages import made_by
from pipeline.gateway.config.settings import settings_schema

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "settings.md"
_SECRET: Final = "Secret"
_SIGNS: Final = {"exclusiveMinimum": ">", "minimum": "≥", "maximum": "≤"}

_INTRODUCTION: Final = """\
# The gateway's settings

{made_by}

For platform engineers: every key of `cmf.yaml`, with its type and default. [gateway.md](gateway.md) shows how they are
used, and [spec/gateway.md](spec/gateway.md) has a complete example. `cmf config check` finds what is wrong with a file,
`cmf config show` prints the values in force and where each was set, and `cmf schema config` prints the JSON Schema, for
completion in an editor.

- An unknown key is refused.
- Paths are relative to the file. Among policies, `shipped` stands for the shipped ones: `[shipped, policy]` adds yours.
- A variable of the environment overrides the file: `CMF_` and the path, with two underscores between keys, such as
  `CMF_LISTEN__PORT=9000`.
- A *secret* is never in the file: write `{{env: NAME}}` or `{{file: PATH}}`.
- Times are in seconds.
"""


def page() -> str:
    """The whole page."""
    schema = settings_schema()
    places = dict(_places(schema))
    lines = [_INTRODUCTION.format(made_by=made_by("make docs"))]
    for name, place in {"": "The file", **places}.items():
        section = schema["$defs"][name] if name else schema
        if section.get("properties"):
            lines += [f"## {place}", "", section["description"], "", *_table(section, places, schema["$defs"]), ""]
    return "\n".join(lines)


def _places(schema: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each section by the name of its type, with the path at which it stands first."""
    waiting: list[tuple[str, Mapping[str, Any]]] = [("", schema)]
    seen = {_SECRET}
    while waiting:
        path, section = waiting.pop(0)
        inner = []
        for setting, own in section.get("properties", {}).items():
            for end, name in _references(own):
                if name not in seen and schema["$defs"][name].get("type") == "object":
                    seen.add(name)
                    inner.append((f"{path}.{setting}{end}".lstrip("."), schema["$defs"][name]))
                    yield name, inner[-1][0]
        waiting = [*inner, *waiting]


def _references(own: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The types that a setting can hold, each with what is between the setting and it."""
    if "$ref" in own:
        yield "", _name(own)
    for one in own.get("anyOf", ()):
        yield from _references(one)
    if isinstance(own.get("items"), dict):
        yield from ((f"[]{end}", name) for end, name in _references(own["items"]))
    for one in own.get("patternProperties", {}).values():
        yield from ((f".NAME{end}", name) for end, name in _references(one))


def _name(own: Mapping[str, Any]) -> str:
    return str(own["$ref"]).rpartition("/")[2]


def _table(section: Mapping[str, Any], places: Mapping[str, str], types: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| setting | type | default | what it is |", "| --- | --- | --- | --- |")
    for setting, own in section["properties"].items():
        default = "required" if setting in section.get("required", ()) else _default(own)
        cells = [f"`{setting}`", _type(own, places, types), default, own["description"]]
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _type(own: Mapping[str, Any], places: Mapping[str, str], types: Mapping[str, Any]) -> str:
    if "$ref" in own:
        return _type_named(_name(own), places, types)
    if "anyOf" in own:
        kinds = [_type(one, places, types) for one in own["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in own or "const" in own:
        return ", ".join(f"`{one}`" for one in own.get("enum", [own.get("const")]))
    kind = own.get("type", "string")
    if kind == "array":
        return f"list of {_type(own.get('items', {}), places, types)}"
    if kind == "object":
        inner = next(iter(own.get("patternProperties", {}).values()), own.get("additionalProperties"))
        return f"by name: {_type(inner, places, types)}" if isinstance(inner, dict) else "mapping"
    bounds = [f"{sign} {own[key]:,}".replace(",", " ") for key, sign in _SIGNS.items() if key in own]
    return "path" if own.get("format") == "path" else ", ".join([str(kind), *bounds])


def _type_named(name: str, places: Mapping[str, str], types: Mapping[str, Any]) -> str:
    if name == _SECRET:
        return "secret"
    if name == "Mode":  # `off` is refused: everything is judged
        return "`enforce`, `observe`"
    if "enum" in types[name]:
        return _type(types[name], places, types)
    if not types[name].get("properties"):
        return "`{}`"
    return f"[{places[name]}](#{re.sub(r'[^a-z0-9_-]', '', places[name].lower())})"


def _default(own: Mapping[str, Any]) -> str:
    default = own.get("default")
    if default is None or default in ([], {}, "") or isinstance(default, dict):
        return "" if isinstance(default, dict) or "default" not in own else "none"
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
