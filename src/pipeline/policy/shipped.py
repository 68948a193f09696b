"""The policies that come with this package: where they are, and the library functions that any set can import.

Spec: docs/spec/policies.md [POL-52].
"""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cmf.json.codec import loads
from pipeline.decisions.errors import PolicyError
from pipeline.policy.analysis import data_at
from pipeline.policy.metadata import Module, Rule, package_of, rule_of

WORD: Final = "shipped"
"""The word that names the shipped policies wherever a policy path is expected."""

PACKAGE: Final = "cmf.lib"

_LIBRARY_REFERENCE: Final = re.compile(r"\bdata\.(cmf\.lib(?:\.[a-z_]+)?)\b")
_SETTING_REFERENCE: Final = re.compile(r"\bdata\.cmf\.defaults((?:\.[a-z_]+)+)")


def shipped() -> Path:
    """The directory of the policies that come with this package, installed or in a checkout."""
    path = Path(str(importlib.resources.files("pipeline").joinpath("_policies"))).resolve()
    if not path.is_dir():
        hint = "reinstall the package"
        raise PolicyError("the shipped policies are missing", hint=hint, code="policy.not-shipped")
    return path


def missing(modules: Iterable[Module], data: Mapping[str, Any]) -> tuple[list[Module], dict[str, Any]]:
    """The shipped library modules that `modules` import but do not include, and default values for their settings.

    The defaults are a document to merge into `data`; it holds only what `data` does not set.
    """
    modules = list(modules)
    held = {package_of(module) for module in modules}
    added: list[Module] = []
    waiting = modules
    while waiting:
        found = (match for module in waiting for match in _LIBRARY_REFERENCE.finditer(module.text))
        named = {name for match in found for name in (match[1], PACKAGE)} - held
        waiting = [module for name, module in _library().items() if name in named]
        held |= named
        added += waiting
    settings: dict[str, Any] = {}
    for module in added:
        for match in _SETTING_REFERENCE.finditer(module.text):
            _fill(settings, data, ("cmf", "defaults", *match[1].split(".")[1:]))
    return added, settings


@functools.cache
def shipped_tests() -> frozenset[Module]:
    """The tests of the shipped policies, which hold with the settings that are shipped [POL-47]."""
    root = shipped()
    return frozenset(_module(path, root) for path in root.rglob("*_test.rego"))


def _fill(settings: dict[str, Any], data: Mapping[str, Any], path: tuple[str, ...]) -> None:
    """Copy into `settings` what the shipped value at `path` has and the one in `data` lacks."""
    value, own = data_at(_settings(), path), data_at(data, path)
    if value is None or (lacking := _lacking(value, own)) is None:
        return
    for step in path[:-1]:
        settings = settings.setdefault(step, {})
    settings[path[-1]] = lacking


def _lacking(value: Any, own: Any) -> Any:
    """The keys of `value`, at any depth, that `own` lacks; None if there are none."""
    if own is None or not (isinstance(value, Mapping) and isinstance(own, Mapping)):
        return value if own is None else None
    more = {key: lacking for key, item in value.items() if (lacking := _lacking(item, own.get(key))) is not None}
    return more or None


def shipped_rule(name: str) -> Rule | None:
    """The shipped rule of that id; None if there is none."""
    return _rules().get(name)


@functools.cache
def _rules() -> Mapping[str, Rule]:
    return {rule.id: rule for rule in map(rule_of, _modules("rules"))}


@functools.cache
def _library() -> dict[str, Module]:
    """The library's modules by package."""
    return {package_of(module): module for module in _modules("lib")}


def _modules(folder: str) -> list[Module]:
    root = shipped()
    paths = sorted((root / "cmf" / folder).rglob("*.rego"))
    return [_module(path, root) for path in paths if not path.name.endswith("_test.rego")]


def _module(path: Path, root: Path) -> Module:
    return Module(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))


@functools.cache
def _settings() -> Mapping[str, Any]:
    return {"cmf": {"defaults": loads((shipped() / "cmf" / "defaults" / "data.json").read_bytes())}}
