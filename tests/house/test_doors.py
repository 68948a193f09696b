"""The two public doors say exactly what they offer."""

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
def test_every_name_in_all_can_be_imported(package: str) -> None:
    door = importlib.import_module(package)

    assert [name for name in door.__all__ if not hasattr(door, name)] == []


@DOORS
def test_every_public_name_behind_the_door_is_in_all(package: str) -> None:
    door = importlib.import_module(package)
    public = {
        name
        for name, value in vars(door).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }

    assert public - set(door.__all__) == set()


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
