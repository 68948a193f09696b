"""The policies that come with this package: where they are, and the functions that any set can import from them.

Spec: docs/spec/policies.md [POL-52].
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cmf.codec import loads
from pipeline.engines.survey import data_at
from pipeline.errors import PolicyError
from pipeline.policies.metadata import Module, package_of

WORD: Final = "shipped"
"""Stands for the shipped policies where a place of policies is named."""

PACKAGE: Final = "cmf.lib"

_NAMED: Final = re.compile(r"\bdata\.(cmf\.lib(?:\.[a-z_]+)?)\b")
_SETTING: Final = re.compile(r"\bdata\.cmf\.defaults((?:\.[a-z_]+)+)")


def shipped() -> Path:
    """The directory of the policies that come with this package, installed or in a checkout."""
    path = Path(str(importlib.resources.files("pipeline").joinpath("_policies"))).resolve()
    if not path.is_dir():
        hint = "install the package again"
        raise PolicyError("the shipped policies are missing", hint=hint, code="policy.not-shipped")
    return path


def missing(modules: Iterable[Module], data: Mapping[str, Any]) -> tuple[list[Module], dict[str, Any]]:
    """The modules of the shipped library that `modules` name and do not hold, and the settings that those read.

    The settings are those that `data` says nothing of, as a document to merge into it.
    """
    modules = list(modules)
    held = {package_of(module) for module in modules}
    added: list[Module] = []
    waiting = modules
    while waiting:
        named = {name for module in waiting for name in _packages(module.text)} - held
        waiting = [module for name, module in _library().items() if name in named]
        held |= named
        added += waiting
    settings: dict[str, Any] = {}
    for module in added:
        for found in _SETTING.finditer(module.text):
            _fill(settings, data, ("cmf", "defaults", *found[1].split(".")[1:]))
    return added, settings


def _packages(text: str) -> set[str]:
    """The packages of the library that a text may mean: `data.cmf.lib.pii`, or a function of `data.cmf.lib`."""
    return {name for match in _NAMED.finditer(text) for name in (match[1], PACKAGE)} if PACKAGE in text else set()


def _fill(settings: dict[str, Any], data: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Put into `settings` what the shipped value at `path` holds and that of `data` does not."""
    value, own = data_at(_settings(), path), data_at(data, path)
    if value is None or (lacking := _lacking(value, own)) is None:
        return
    for step in path[:-1]:
        settings = settings.setdefault(step, {})
    settings[path[-1]] = lacking


def _lacking(value: Any, own: Any) -> Any:
    """What `value` has more than `own`, key by key; None for nothing."""
    if own is None or not (isinstance(value, Mapping) and isinstance(own, Mapping)):
        return value if own is None else None
    more = {key: lacking for key, item in value.items() if (lacking := _lacking(item, own.get(key))) is not None}
    return more or None


@functools.cache
def _library() -> dict[str, Module]:
    """By package, the modules of the library."""
    root = shipped()
    paths = sorted(path for path in (root / "cmf" / "lib").rglob("*.rego") if not path.name.endswith("_test.rego"))
    found = [Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")) for path in paths]
    return {package_of(module): module for module in found}


@functools.cache
def _settings() -> Mapping[str, Any]:
    return {"cmf": {"defaults": loads((shipped() / "cmf" / "defaults" / "data.json").read_bytes())}}


__all__ = ["PACKAGE", "WORD", "missing", "shipped"]
