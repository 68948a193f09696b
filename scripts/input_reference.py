"""Write docs/input.md, what a rule can read of a view: `make docs`.

Types come from the JSON Schema, capabilities from the table that the loader checks rules by, examples from views that
are made here, what a field is from policy_input.yaml.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from scripts.reference import in_words
from scripts.specimens import documents

from cmf.enums import ViewKind
from cmf.views.tiers import SLOTS
from pipeline.authoring.rule_pages import made_by
from pipeline.policy.portability import gates_of
from pipeline.policy.schemas import PROPERTY_KINDS, view_schema

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "input.md"
PROSE: Final[dict[str, dict[str, Any]]] = yaml.safe_load(
    Path(__file__).with_name("policy_input.yaml").read_text(encoding="utf-8")
)
SHOWN: Final = 60  # characters of an example
DEFAULT: Final = "default"
NEVER: Final = "never"

_INTRODUCTION: Final = """\
# The policy input

{made_by}

A rule is asked once for each part of a message, request or answer, for each offered tool, and for the request or answer
as a whole. What it finds under `input` is one *view* of that kind. `cmf view FILE` prints the views of a file with the
path to each value; `cmf schema view` prints the JSON Schema, which `cmf` holds your rules to when it loads them.

**Absent is not null, and not empty.** A field that does not apply, is not known or was not granted is not there, and an
expression that reads it is undefined: a body that needs it does not hold, and `not` of it does. So write what is
allowed, and deny `not` that; then what is missing is denied. In the extensions, what is at its default is absent
too (`extensions.llm.capabilities` of a model without any); the access profile and the data policy of a view,
`extensions.security.object` and `.data_policy`, are always whole.

**Capabilities.** What is marked with one is there only for rules that name it in their METADATA:
`capabilities: [read_roles]`. A rule that reads it without is refused when it is loaded.

A whole input, of a tool call in a request:"""


def page() -> str:
    """The whole page."""
    return "\n".join([*_lines(), ""])


def _lines() -> Iterator[str]:
    made = list(documents())
    yield _INTRODUCTION.format(made_by=made_by("make docs"))
    yield from ("", "```json", json.dumps(_small(_first(made, ViewKind.TOOL_CALL)), indent=2), "```")
    yield from _kinds(made)
    yield from ("", "## The view", "")
    yield from _table("view", made)
    yield from ("", "## `input.properties`", "", "What is there depends on the kind.", "")
    yield from _properties(made)
    yield from (
        "",
        "## `input.extensions`",
        "",
        "The tier says how stages may change a slot on its way; rules change nothing.",
    )
    yield from ("", "| slot | tier |", "| --- | --- |")
    yield from (f"| `{name}` | {slot.tier.value} |" for name, slot in SLOTS.items())
    yield ""
    yield from _table("extensions", made, "extensions.")
    yield from (
        "",
        "## `input.session`",
        "",
        "As it was before this message was judged. Absent for a run without a session.",
        "",
    )
    yield from _table("session", made)
    yield from ("", "## `input.origins`", "", "See [provenance](spec/provenance.md) and [profiles](profiles.md).", "")
    yield from _table("origins", made)
    yield from (
        "",
        "## `input.addresses`",
        "",
        "Made only where a rule reads it, for the kinds of part that the rule is for [INP-9]. Arguments are read as",
        "JSON, with the JSON inside of their texts; words as Markdown and HTML.",
        "",
    )
    yield from _table("addresses", made)
    yield from (
        "",
        "## What a rule does not see",
        "",
        "A rule that needs one of these never hits, or always. `cmf impact` names new and changed rules without a hit",
        "in recorded traffic.",
        "",
        "| what a rule does not see | what can be done |",
        "| --- | --- |",
    )
    yield from (f"| {what} | {instead} |" for what, instead in PROSE["unseen"].items())


def _first(made: list[dict[str, Any]], kind: ViewKind) -> dict[str, Any]:
    return next(document for document in made if document["kind"] == kind.value)


def _small(document: Mapping[str, Any]) -> dict[str, Any]:
    """A view as most rules meet it: without the slots of the extensions that few hosts fill in."""
    extensions = {name: document["extensions"][name] for name in ("request", "security")}
    security = {name: extensions["security"][name] for name in ("subject", "labels")}
    return {**document, "extensions": {**extensions, "security": security}, "origins": document["origins"][1:2]}


# -- kinds -------------------------------------------------------------------------------------------------------------


def _kinds(made: list[dict[str, Any]]) -> Iterator[str]:
    yield from (
        "",
        "## Kinds",
        "",
        "| kind | action | direction | URI | what `content` is |",
        "| --- | --- | --- | --- | --- |",
    )
    for kind in ViewKind:
        uris = dict.fromkeys(view["uri"] for view in made if view["kind"] == kind.value and "uri" in view)
        uri = f"`{next(iter(uris))}`" if uris else "none"
        says, action = PROSE["kinds"][kind.value], _action(kind, made)
        yield f"| `{kind.value}` | {action} | {_direction(kind, made)} | {uri} | {says} |"
    yield from (
        "",
        "Words and media of the system and the user go in (`send`), those of the assistant come out (`send`), those of",
        "a tool come out (`receive`). Whatever stands inside a result is received.",
    )


def _action(kind: ViewKind, made: list[dict[str, Any]]) -> str:
    own = [view for view in made if view["kind"] == kind.value and "container" not in view["properties"]]
    return ", ".join(f"`{value}`" for value in dict.fromkeys(view["action"] for view in own))


def _direction(kind: ViewKind, made: list[dict[str, Any]]) -> str:
    own = [view for view in made if view["kind"] == kind.value and "container" not in view["properties"]]
    if kind in _AS_SPOKEN:
        return "by role"
    return "in" if own[0]["is_pre"] else "out"


_AS_SPOKEN: Final = frozenset(
    {ViewKind.TEXT, ViewKind.IMAGE, ViewKind.VIDEO, ViewKind.AUDIO, ViewKind.DOCUMENT, ViewKind.OPAQUE}
)


# -- fields ------------------------------------------------------------------------------------------------------------


def paths() -> dict[str, Mapping[str, Any]]:
    """Every path of the schema below `input`, with the schema there; arrays of objects go on behind `[]`."""
    schema = view_schema()
    return dict(_walked("", schema, schema["$defs"]))


def _walked(
    path: str, schema: Mapping[str, Any], definitions: Mapping[str, Any]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    here = _plain(schema, definitions)
    if here.get("type") == "array" and not path.endswith("history"):  # the history is messages, and so on for ever
        here, path = _plain(here.get("items", {}), definitions), f"{path}[]"
    for name, field in here.get("properties", {}).items():
        inner = f"{path}.{name}".lstrip(".")
        yield inner, _plain(field, definitions)
        if inner != "properties":  # they have a table of their own
            yield from _walked(inner, field, definitions)


def _plain(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema behind references and `or null`."""
    while True:
        choices = [choice for choice in schema.get("anyOf", ()) if choice.get("type") != "null"]
        if "$ref" in schema:
            schema = definitions[schema["$ref"].rsplit("/", 1)[-1]]
        elif len(choices) == 1:
            schema = choices[0]
        else:
            return schema


def _table(section: str, made: list[dict[str, Any]], prefix: str = "") -> Iterator[str]:
    known = paths()
    yield "| field | type | what it is | absent | capability | example |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, (says, absent) in PROSE[section].items():
        path = f"{prefix}{name}"
        schema, example = known[path], _example(path, made)
        when = f"it is {_shown(schema['default'])}" if absent == DEFAULT else _cell(absent)
        yield f"| `{path}` | {_cell(_type(schema))} | {_cell(says)} | {when} | {_needs(path)} | {example} |"


def _type(schema: Mapping[str, Any]) -> str:
    words = in_words(dict(schema))
    return "object" if "`" in words and schema.get("type") == "object" else words


def _needs(path: str) -> str:
    steps = tuple(path.replace("[]", "").split("."))
    return ", ".join(f"`{gate.value}`" for gate in sorted(gates_of(steps))) or "none"


def _properties(made: list[dict[str, Any]]) -> Iterator[str]:
    examples: dict[str, Any] = {}
    for view in made:
        examples = {**view["properties"], **examples}
    yield "| property | kinds | what it is | absent | example |"
    yield "| --- | --- | --- | --- | --- |"
    for name, (says, absent) in PROSE["properties"].items():
        having = PROPERTY_KINDS[name]
        there = "any" if len(having) == len(ViewKind) else ", ".join(kind for kind in ViewKind if kind in having)
        example = _shown(examples[name])
        yield f"| `{name}` | {there} | {_cell(says)} | {_cell(absent)} | {example} |"


def _example(path: str, made: list[dict[str, Any]]) -> str:
    for view in made:
        found = _at(view, path.split("."))
        if found is not None:
            return _shown(found)
    return ""


def _at(value: Any, steps: list[str]) -> Any:
    """The first value that a path leads to; None where it leads nowhere."""
    for number, step in enumerate(steps):
        name, many, _ = step.partition("[]")
        value = value.get(name) if isinstance(value, dict) else None
        if many:
            found = (_at(item, steps[number + 1 :]) for item in value or ())
            return next((item for item in found if item is not None), None)
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return f"`{_cell(text if len(text) <= SHOWN else text[: SHOWN - 1] + '…')}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
