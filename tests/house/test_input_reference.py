"""The input reference names every field that a view can have, with a value that one really has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, settings
from scripts.input_reference import DEFAULT, NEVER, PAGE, PROSE, page, paths
from scripts.specimens import bare, documents

from cmf import iter_views
from cmf.enums import ViewKind
from pipeline.policy.schemas import PROPERTY_KINDS, view_schema
from tests.cmf.strategies import values

FIELDS = {
    **PROSE["view"],
    **{f"extensions.{name}": said for name, said in PROSE["extensions"].items()},
    **PROSE["session"],
    **PROSE["origins"],
    **PROSE["addresses"],
}


def test_the_input_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_it_names_every_field_of_the_schema_and_no_other() -> None:
    assert set(FIELDS) == set(paths())
    assert set(PROSE["kinds"]) == {kind.value for kind in ViewKind}


def test_it_names_every_property_that_some_view_has_and_no_other() -> None:
    known = view_schema()["properties"]["properties"]["properties"]

    assert {name for view in [*documents(), *bare()] for name in view["properties"]} == set(PROSE["properties"])
    assert set(known) == set(PROSE["properties"])


def test_each_property_occurs_in_exactly_the_documented_kinds() -> None:
    seen = {(name, view["kind"]) for view in [*documents(), *bare()] for name in view["properties"]}

    assert {(name, kind) for name, kind in seen if kind not in PROPERTY_KINDS[name]} == set()
    assert set(PROPERTY_KINDS) == set(PROSE["properties"])


@pytest.mark.spec("POL-37")
@given(values)
@settings(max_examples=200, deadline=None)
def test_no_view_has_a_property_of_another_kind(value: Any) -> None:
    for view in iter_views(value):
        assert [name for name in view.properties if view.kind not in PROPERTY_KINDS[name]] == []


def test_every_field_has_an_example() -> None:
    made = list(documents())

    assert [path for path in FIELDS if not any(_found(view, path.split(".")) for view in made)] == []


@pytest.mark.parametrize("views", [documents, bare])
def test_the_views_of_the_examples_are_valid_under_the_schema(views: Any) -> None:
    validator = jsonschema_rs.validator_for(view_schema())

    assert [view["path"] for view in views() if not validator.is_valid(view)] == []


def test_what_is_never_absent_is_there_even_if_nothing_is_given() -> None:
    made = [*documents(), *bare()]
    promised = [path for path, (_, absent) in FIELDS.items() if absent == NEVER]

    assert [path for path in promised if not all(_there(view, path.split(".")) for view in made)] == []
    kinds = {name: {view["kind"] for view in made if name in view["properties"]} for name in PROSE["properties"]}
    for name, (_, absent) in PROSE["properties"].items():
        own = [view for view in made if view["kind"] in kinds[name]]
        assert absent != NEVER or all(name in view["properties"] for view in own), name


def test_what_is_absent_at_its_default_is_absent_if_nothing_is_given() -> None:
    made = list(bare())
    promised = [path for path, (_, absent) in FIELDS.items() if absent == DEFAULT]

    assert promised
    assert [path for path in promised if all(_there(view, path.split(".")) for view in made)] == []


def _found(value: Any, steps: list[str]) -> bool:
    return any(name in holder for holder, name in _holders(value, steps))


def _there(value: Any, steps: list[str]) -> bool:
    """Whether the last step is there wherever the others lead."""
    return all(name in holder for holder, name in _holders(value, steps))


def _holders(value: Any, steps: list[str]) -> Iterator[tuple[dict[str, Any], str]]:
    """What a path's last step is read from, with its name."""
    if len(steps) == 1:
        if isinstance(value, dict):
            yield value, steps[0]
        return
    name, many, _ = steps[0].partition("[]")
    held = value.get(name) if isinstance(value, dict) else None
    for inner in (held or ()) if many else [held]:
        yield from _holders(inner, steps[1:])
