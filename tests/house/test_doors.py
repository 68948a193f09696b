"""The two public doors say exactly what they offer; that it can be imported is tests/cmf/test_exports.py's business."""

from __future__ import annotations

import importlib
import inspect

import pytest

from tests.house.tree import PACKAGES

DOORS = pytest.mark.parametrize("package", PACKAGES)


@DOORS
def test_all_names_nothing_twice(package: str) -> None:
    """Its order is ruff's business (RUF022)."""
    names = importlib.import_module(package).__all__

    assert len(names) == len(set(names)) > 0


@DOORS
def test_all_names_exactly_what_the_exports_offer(package: str) -> None:
    """The door itself is lazy; `exports` is what stands behind it."""
    exports = importlib.import_module(f"{package}.exports")
    offered = {
        name
        for name, value in vars(exports).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }

    assert offered == set(importlib.import_module(package).__all__)


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
