"""A directory of policies as one value: modules, data, rules and the entrypoints generated from them.

Spec: docs/spec/policies.md [POL-1] to [POL-12].
"""

from __future__ import annotations

import hashlib
import importlib.resources
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import yaml

from cmf.codec import dumps, loads
from cmf.enums import Capability, ViewKind
from cmf.errors import DecodeError
from cmf.frozen import FrozenDict
from pipeline import entrypoints
from pipeline.decision import Mode
from pipeline.errors import PolicyError
from pipeline.metadata import Module, Rule, load_yaml, package_of, rule_of

Data: TypeAlias = dict[str, Any]

DATA_FILES: Final = ("data.json", "data.yaml", "data.yml")
"""Only these are data, as in an OPA bundle; their directory is their path under `data`."""

MAX_SAFE_INTEGER: Final = 2**53 - 1  # beyond it engines disagree about a number [A3]

_ENTRYPOINT: Final = re.compile(r"data(?:\.[A-Za-z_][A-Za-z0-9_]*){2,}")
_SETTINGS: Final = re.compile(r"data\.cmf\.defaults((?:\.[a-z_][a-z0-9_]*)+)")
_ALIAS: Final = re.compile(r"^(?P<name>_[a-z0-9_]+) := data\.cmf\.defaults(?P<path>(?:\.[a-z_]\w*)+)[ \t]*$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySet:
    """A loaded policy set.

    `modules` are the files of the set and, after them, the generated ones; `data` is merged and frozen; `rules` are all
    rules, those that are `off` included; `revision` is the SHA-256 of modules and data in hex.
    """

    modules: tuple[Module, ...]
    data: Mapping[str, Any]
    rules: tuple[Rule, ...]
    entrypoints: tuple[str, ...]
    revision: str

    def entrypoint(self, kind: ViewKind) -> str:
        """The entrypoint that judges views of `kind`."""
        name = entrypoints.kind_entrypoint(kind)
        return name if name in self.entrypoints else entrypoints.DECISION

    def rules_for(self, kind: ViewKind) -> tuple[Rule, ...]:
        """The rules asked for views of `kind`, by id; those that are `off` are not among them."""
        return tuple(rule for rule in self.rules if kind in rule.kinds and rule.mode is not Mode.OFF)

    @property
    def modes(self) -> dict[str, Mode]:
        """Mode by rule id."""
        return {rule.id: rule.mode for rule in self.rules}

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the rules that are on need to see."""
        return frozenset(need for rule in self.rules if rule.mode is not Mode.OFF for need in rule.capabilities)

    @property
    def batch_module(self) -> Module:
        """The one extra module that an OPA server is given [POL-11]."""
        return entrypoints.batch_module(self.entrypoints, self.revision)

    def bundle(self) -> dict[str, bytes]:
        """The files of an OPA bundle of this set, by path: modules, the batch module, data, manifest [POL-12]."""
        manifest = {"revision": self.revision, "roots": self._roots(), "rego_version": 1}
        files = {module.path: module.text.encode() for module in (*self.modules, self.batch_module)}
        return files | {"data.json": dumps(self.data), ".manifest": dumps(manifest)}

    def _roots(self) -> list[str]:
        packages = (package_of(module).split(".")[0] for module in self.modules)
        return sorted({*packages, *self.data})


def shipped() -> Path:
    """The directory of the policies that come with this package, installed or in a checkout."""
    path = Path(str(importlib.resources.files("pipeline").joinpath("_policies"))).resolve()
    if not path.is_dir():
        hint = "install the package again"
        raise PolicyError("the shipped policies are missing", hint=hint, code="policy.not-shipped")
    return path


def load(
    *directories: str | Path, entrypoint: str | None = None, modes: Mapping[str, Mode | str] | None = None
) -> PolicySet:
    """The policy set in `directories`: a later one adds to, and where paths meet replaces, what came before.

    Args:
        directories: trees of `.rego` files (tests excluded) and data files; at least one.
        entrypoint: `data.<package>.<rule>` of policies that are not made of rules: a boolean, an object with
            `allow`, or a set of denials. Given, it is the only thing asked.
        modes: rule id → mode, over what METADATA says.

    Raises:
        PolicyError: anything that would leave a part unjudged or a rule unasked; the code says what [POL-1] ff.
    """
    roots = [_root(directory) for directory in directories]
    sources = _modules(roots)
    data = _data(roots)
    _check_settings(sources, data)
    if entrypoint is not None:
        _check_entrypoint(entrypoint, sources)
        rules: list[Rule] = []
        generated = entrypoints.adapter_modules(entrypoint)
        names: tuple[str, ...] = (entrypoints.DECISION,)
    else:
        rules = _with_modes(_rules(sources), modes or {})
        generated = entrypoints.main_modules([rule for rule in rules if rule.mode is not Mode.OFF])
        names = (entrypoints.DECISION, *map(entrypoints.kind_entrypoint, ViewKind))
    modules = (*sources, *generated)
    frozen = FrozenDict(data)
    return PolicySet(
        modules=modules, data=frozen, rules=tuple(rules), entrypoints=names, revision=_revision(modules, frozen)
    )


# -- modules -----------------------------------------------------------------------------------------------------------


def _root(directory: str | Path) -> Path:
    root = Path(directory)
    if not root.is_dir():
        raise PolicyError("no such directory", path=str(directory), hint="name a directory", code="policy.no-directory")
    return root.resolve()


def _modules(roots: Iterable[Path]) -> list[Module]:
    texts: dict[str, str] = {}
    for root in roots:
        for path in _files(root, lambda name: name.endswith(".rego") and not name.endswith("_test.rego")):
            texts[path.relative_to(root).as_posix()] = _read(path, root)
    if not texts:
        raise PolicyError("there is no policy in it", hint="put a .rego file there", code="policy.empty")
    modules = [Module(path, text) for path, text in sorted(texts.items())]
    for module in modules:
        package = package_of(module)
        if f"{package}.".startswith((f"{entrypoints.MAIN}.", f"{entrypoints.EFFECT}.")):
            hint = "it is generated from the rules; name the package otherwise"
            raise PolicyError(f"{package} is reserved", path=module.path, hint=hint, code="policy.reserved-name")
    return modules


def _files(root: Path, wanted: Any) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
        if wanted(path.name) and not hidden and path.is_file():
            yield path


def _read(path: Path, root: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        where = path.relative_to(root).as_posix()
        raise PolicyError("cannot be read as UTF-8", path=where, hint="check it", code="policy.unreadable") from error


def _rules(modules: Iterable[Module]) -> list[Rule]:
    rules: dict[str, Rule] = {}
    for module in modules:
        if not (module.path.startswith("cmf/rules/") or f"{package_of(module)}.".startswith("cmf.rules.")):
            continue
        rule = rule_of(module)
        rules[rule.id] = rule
    if not rules:
        hint = "put rules under cmf/rules/<category>/<rule>/, or name your own entrypoint"
        raise PolicyError("there is no rule in it", hint=hint, code="policy.no-rules")
    return [rules[name] for name in sorted(rules)]


def _with_modes(rules: Iterable[Rule], modes: Mapping[str, Mode | str]) -> list[Rule]:
    known = {rule.id: rule for rule in rules}
    for name, mode in modes.items():
        if name not in known or mode not in set(Mode):
            what = f"mode {str(mode)!r}" if name in known else f"rule {name!r}"
            hint = f"modes: {', '.join(Mode)}; rules: {', '.join(known)}"
            raise PolicyError(f"{what} is not known", hint=hint, code="policy.unknown-mode")
        known[name] = replace(known[name], mode=Mode(mode))
    return list(known.values())


def _check_entrypoint(entrypoint: str, modules: Iterable[Module]) -> None:
    """A misspelt entrypoint would be undefined for ever, and that is found now rather than at the first request."""
    package, _, name = entrypoint.removeprefix("data.").rpartition(".")
    homes = [module for module in modules if package_of(module) == package]
    if not _ENTRYPOINT.fullmatch(entrypoint) or not any(re.search(rf"\b{name}\b", home.text) for home in homes):
        hint = "write data.<package>.<rule>, as the package is spelt"
        raise PolicyError(f"{entrypoint} is not in these policies", hint=hint, code="policy.no-entrypoint")


# -- data --------------------------------------------------------------------------------------------------------------


def _data(roots: Iterable[Path]) -> Data:
    merged: Data = {}
    for root in roots:
        own: Data = {}
        for path in _files(root, lambda name: name in DATA_FILES):
            where = path.relative_to(root)
            value: Any = _data_value(_read(path, root), where)
            for step in reversed(where.parent.parts):
                value = {step: value}
            _merge(own, value, where.as_posix(), replacing=False)
        _merge(merged, own, "", replacing=True)
    return merged


def _data_value(text: str, where: Path) -> Data:
    path = where.as_posix()
    try:
        value = loads(text) if where.suffix == ".json" else load_yaml(text)
    except (DecodeError, yaml.YAMLError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", -1) + 1
        hint = "one value, no key twice"
        raise PolicyError("not strict JSON or YAML", path=path, line=line, hint=hint, code="policy.bad-data") from error
    if not isinstance(value, dict):
        raise PolicyError("data is not an object", path=path, hint="write `key: value`", code="policy.bad-data")
    _check_json(value, path)
    return value


def _check_json(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _bad_data(path, f"a key is {type(key).__name__}, not text")
            _check_json(item, path)
    elif isinstance(value, list):
        for item in value:
            _check_json(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value) or abs(value) > MAX_SAFE_INTEGER:
            _bad_data(path, "a number is beyond ±2^53, where engines disagree")
    elif not (value is None or isinstance(value, str | bool)):
        _bad_data(path, f"a value is {type(value).__name__}, which JSON has not")


def _bad_data(path: str, message: str) -> NoReturn:
    raise PolicyError(message, path=path, hint="write it as text", code="policy.bad-data")


def _merge(target: Data, source: Data, path: str, *, replacing: bool) -> None:
    for key, item in source.items():
        if isinstance(item, dict) and isinstance(target.get(key), dict):
            _merge(target[key], item, path, replacing=replacing)
        elif key in target and not replacing:
            hint = "say each thing in one file"
            raise PolicyError(f"{key!r} is said in two files", path=path, hint=hint, code="policy.bad-data")
        else:
            target[key] = item


def _check_settings(modules: Iterable[Module], data: Data) -> None:
    """A setting that a rule reads and nobody wrote would make the rule undefined, which is silence [POL-6]."""
    for module in modules:
        for position, path in _settings_read(module.text):
            if not _is_set(data, ["cmf", "defaults", *path.strip(".").split(".")]):
                what = f"data.cmf.defaults{path} is not set"
                line = module.text.count("\n", 0, position) + 1
                hint = "write it into cmf/defaults/data.json"
                raise PolicyError(what, path=module.path, line=line, hint=hint, code="policy.no-setting")


def _is_set(data: Data, path: Iterable[str]) -> bool:
    value: Any = data
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value is not None


def _settings_read(text: str) -> Iterator[tuple[int, str]]:
    for match in _SETTINGS.finditer(text):
        yield match.start(), match[1]
    for alias in _ALIAS.finditer(text):
        for match in re.finditer(rf"(?<![\w.]){alias['name']}((?:\.[a-z_][a-z0-9_]*)+)", text):
            yield match.start(), alias["path"] + match[1]


# -- revision ----------------------------------------------------------------------------------------------------------


def _revision(modules: Iterable[Module], data: Mapping[str, Any]) -> str:
    """SHA-256 over each module's path and text in order of path, then the data with sorted keys. Spec: [POL-9]."""
    digest = hashlib.sha256()
    for module in sorted(modules, key=lambda module: module.path):
        for text in (module.path, module.text):
            encoded = text.encode()
            digest.update(len(encoded).to_bytes(8, "big") + encoded)
    digest.update(_canonical(data))
    return digest.hexdigest()


def _canonical(value: Any) -> bytes:
    if isinstance(value, dict):
        return b"{" + b",".join(dumps(key) + b":" + _canonical(value[key]) for key in sorted(value)) + b"}"
    if isinstance(value, list):
        return b"[" + b",".join(map(_canonical, value)) + b"]"
    return dumps(value)
