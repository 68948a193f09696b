"""The two public doors say exactly what they offer; that it can be imported is tests/cmf/test_exports.py's business."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.house.tree import PACKAGES

DOORS = pytest.mark.parametrize("package", PACKAGES)


@DOORS
def test_only_names_of_the_project_are_offered(package: str) -> None:
    """What `exports` imports is offered: something of another library would be, too. The reference lists every name."""
    door = importlib.import_module(package)
    offered = {name: getattr(door, name) for name in door.__all__}
    homes = {
        name: value.__module__ for name, value in offered.items() if inspect.isclass(value) or inspect.isroutine(value)
    }

    assert homes
    assert {name: home for name, home in homes.items() if home.split(".")[0] not in PACKAGES} == {}


@DOORS
def test_what_is_offered_can_be_completed_and_nothing_else(package: str) -> None:
    """Lazy or not: `dir` is what editors and notebooks ask, and what a newcomer looks at first."""
    door = importlib.import_module(package)

    assert dir(door) == sorted(door.__all__)


@DOORS
def test_every_exported_class_and_function_says_what_it_is(package: str) -> None:
    door = importlib.import_module(package)
    exported = ((name, getattr(door, name)) for name in door.__all__)

    silent = [
        name
        for name, value in exported
        if (inspect.isclass(value) or inspect.isfunction(value)) and not (value.__doc__ or "").strip()
    ]

    assert silent == []


def test_the_wire_formats_can_be_completed() -> None:
    adapters = importlib.import_module("cmf.adapters")

    assert {*adapters.__all__, *adapters.FORMATS} == set(dir(adapters))
