"""Write docs/reference.md, the field-by-field reference, from the types and tables: `make docs`."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import cmf.enums
import cmf.errors
import cmf.message.message
import cmf.message.request
import cmf.message.security
import cmf.message.tools
import cmf.models.capabilities
from cmf.errors import CmfError
from cmf.json.value import Value, json_schema
from cmf.views.tiers import SLOTS, SUBJECT_FIELDS
from cmf.views.view import MessageView
from pipeline.policy.schemas import view_schema

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference.md"
VALUES: tuple[tuple[str, ModuleType], ...] = (
    ("Messages, their parts and extensions", cmf.message.message),
    ("Security", cmf.message.security),
    ("Requests and responses", cmf.message.request),
    ("Tools", cmf.message.tools),
    ("Capabilities of models", cmf.models.capabilities),
)


def page() -> str:
    """The whole page."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    yield "# Reference"
    yield ""
    yield "Made by `make docs` from the types and tables: do not edit. What the fields mean together: `docs/spec/`."
    for title, module in VALUES:
        yield from ("", f"## {title}")
        for cls in classes(module):
            yield from _value(cls)
    yield from _tiers()
    yield from _view()
    yield from _policy_input()
    yield from _closed_sets()
    yield from _errors()


def classes(module: ModuleType) -> list[type[Value]]:
    """The value types that a module defines, in its order."""
    return [
        held
        for held in vars(module).values()
        if inspect.isclass(held) and issubclass(held, Value) and held.__module__ == module.__name__
        if dataclasses.is_dataclass(held)
    ]


def _value(cls: type[Value]) -> Iterator[str]:
    schema = json_schema(cls)
    required = set(schema.get("required", ()))
    yield from ("", f"### {cls.__name__}", "", _paragraph(cls), "", "| field | type | default |", "|---|---|---|")
    for name in (field.name for field in dataclasses.fields(cls) if field.metadata.get("dump", True)):
        field = schema["properties"][name]
        default = "required" if name in required else _default(cls, name, field)
        yield f"| `{name}` | {_cell(in_words(field))} | {default} |"


def _paragraph(holder: Any) -> str:
    return " ".join((inspect.getdoc(holder) or "").split())


def _default(cls: type[Value], name: str, field: dict[str, Any]) -> str:
    """The default as JSON spells it; `null` is what a field that is absent has."""
    if "const" in field:
        return f"`{field['const']}`"
    declared = next(each for each in dataclasses.fields(cls) if each.name == name)
    held = field.get("default", None if declared.default is dataclasses.MISSING else declared.default)
    if isinstance(held, StrEnum):
        return f"`{held.value}`"
    if isinstance(held, dict) or declared.default_factory is not dataclasses.MISSING:
        return "`{}`"
    if isinstance(held, tuple | list | frozenset):
        return "`[]`"
    if held is None or not isinstance(held, bool | int | str):
        return "absent"
    return f"`{str(held).lower() if isinstance(held, bool) else held}`"


def in_words(schema: dict[str, Any]) -> str:
    """A JSON Schema in words."""
    if "$ref" in schema:
        return f"`{schema['$ref'].rsplit('/', 1)[-1]}`"
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " or ".join(f"`{item}`" for item in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            named = [in_words(item) for item in schema[union] if item.get("type") != "null"]
            return "any part" if len(named) > 10 else " or ".join(dict.fromkeys(named))
    kind = schema.get("type", "any JSON")
    if kind == "array":
        items = f"array of {in_words(schema.get('items', {}))}"
        return f"{items}, as a set" if schema.get("uniqueItems") else items
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {in_words(schema['additionalProperties'])}"
    bounds = [f"{word} {schema[key]}" for key, word in (("minimum", "≥"), ("maximum", "≤")) if key in schema]
    return " ".join([*(kind if isinstance(kind, list) else [kind]), *_format(schema), *bounds])


def _format(schema: dict[str, Any]) -> list[str]:
    return [f"({schema['format']})"] if "format" in schema else []


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _tiers() -> Iterator[str]:
    yield from ("", "## Slots of the extensions", "", "| slot | tier | read with | written with |", "|---|---|---|---|")
    for name, slot in SLOTS.items():
        write = f"`{slot.write.value}`" if slot.write else "nothing more"
        yield f"| `{name}` | {slot.tier.value} | {_capability(slot.read)} | {write} |"
    yield from ("", "| field of the subject | read with |", "|---|---|")
    for name, capability in SUBJECT_FIELDS.items():
        yield f"| `{name}` | {_capability(capability)} |"


def _capability(capability: StrEnum | None) -> str:
    return f"`{capability.value}`" if capability is not None else "nothing"


def _view() -> Iterator[str]:
    yield from (
        "",
        "## MessageView",
        "",
        _paragraph(MessageView),
        "",
        "| attribute or method | what it is |",
        "|---|---|",
    )
    shown = ["kind", "role", "path"]
    for name in shown:
        yield f"| `{name}` | the view's {name} |"
    for name, held in vars(MessageView).items():
        if name.startswith("_") or name in shown or name == "args":
            continue
        call = "" if isinstance(held, property) else "()" if callable(held) else None
        if call is not None:
            yield f"| `{name}{call}` | {_cell(_summary(held))} |"


def _summary(held: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(held) or "").split("\n\n")[0].split())


def _policy_input() -> Iterator[str]:
    schema = view_schema()
    required = set(schema["required"])
    yield from ("", "## Policy input", "", "What Rego finds under `input`. A value that is absent is not null.", "")
    yield from ("| field | type | there |", "|---|---|---|")
    for name, field in schema["properties"].items():
        yield f"| `{name}` | {_cell(in_words(field))} | {'always' if name in required else 'where it applies'} |"
        for inner, inner_field in field.get("properties", {}).items():
            yield f"| `{name}.{inner}` | {_cell(in_words(inner_field))} | where it applies |"
    items = schema["properties"]["origins"].get("items", {})
    for name, field in items.get("properties", {}).items():
        there = "always" if name in items["required"] else "where it applies"
        yield f"| `origins[].{name}` | {_cell(in_words(field))} | {there} |"


def _closed_sets() -> Iterator[str]:
    yield from ("", "## Closed sets", "", "| set | what it says | values |", "|---|---|---|")
    for held in vars(cmf.enums).values():
        if inspect.isclass(held) and issubclass(held, StrEnum) and held is not StrEnum:
            values = ", ".join(f"`{member.value}`" for member in held)
            yield f"| `{held.__name__}` | {_cell(_summary(held))} | {values} |"


def _errors() -> Iterator[str]:
    yield from ("", "## Errors", "", "| error | code | when |", "|---|---|---|")
    for held in vars(cmf.errors).values():
        if inspect.isclass(held) and issubclass(held, CmfError):
            yield f"| `{held.__name__}` | `{held.default_code}` | {_cell(_summary(held))} |"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
