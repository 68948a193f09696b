"""The floors of the house are complete, and the doors in its walls are the ones that are listed."""

from __future__ import annotations

import ast
from itertools import chain
from pathlib import Path

from cmf.adapters import FORMATS
from tests.house.tree import (
    PACKAGES,
    SRC,
    imported_names,
    module_name,
    parsed,
    project_settings,
    source_files,
)

# The only modules that may turn a message into wire bytes, and why each may [C6].
MAY_CALL_TO_WIRE = {
    "pipeline.run.emit": "the one door outward: checks the coverage certificate first",
    "pipeline.store.conversation_formats": "an operator's export of a conversation: a file, no traffic",
    "pipeline.cli.convert": "an offline tool: rewrites a file, no traffic",
}
# Wire formats that are read with another one's adapter, and why that is no accident.
BUILT_ON = {"openrouter": "openai_chat"}
# Only these doors offer what lies behind them; the `__init__` of any other package says what it is, and imports
# nothing.
DOORS = frozenset({*PACKAGES, "pipeline.cli", "cmf.adapters", *(f"cmf.adapters.{name}" for name in FORMATS)})

# Nothing in this package works without its extra: the door says so, once for every module behind it.
CHECKED_AT_THE_DOOR = {"pipeline.store": {"pipeline.decisions.errors", "sqlalchemy"}}


def test_every_module_on_disk_stands_on_a_floor() -> None:
    floors = _floors()

    homeless = [name for name in _modules() if name not in PACKAGES and not _within(name, floors)]

    assert homeless == [], "give these a place in [tool.importlinter] of pyproject.toml"


def test_every_floor_names_a_module_on_disk() -> None:
    """A layer that names nothing checks nothing: import-linter skips optional layers in silence."""
    present = set(_modules())

    assert sorted(floor for floor in _floors() if floor not in present) == []


def test_the_door_of_a_package_imports_nothing() -> None:
    inits = [path for path in source_files() if path.name == "__init__.py" and module_name(path) not in DOORS]

    imports = {module_name(path): {name for name, _ in imported_names(parsed(path))} - {"__future__"} for path in inits}

    assert {name: found for name, found in imports.items() if found} == CHECKED_AT_THE_DOOR


def test_adapters_do_not_know_each_other() -> None:
    """A wire format may be a package; what two formats share is in a module named after neither."""
    offenders = [
        f"{module_name(path)} imports {imported}"
        for path in sorted((SRC / "cmf" / "adapters").rglob("*.py"))
        for imported in _adapter_imports(path)
        if (theirs := imported.split(".")[0]) in FORMATS and theirs not in {own := _adapter(path), BUILT_ON.get(own)}
    ]

    assert offenders == []


def test_no_module_imports_through_its_own_package_door() -> None:
    """`from cmf import Message` inside cmf is a cycle that only works in one import order."""
    offenders = [
        f"{module_name(path)} imports {name} from {module}"
        for path in source_files()
        if module_name(path) not in PACKAGES
        for module, name in imported_names(parsed(path))
        if module in PACKAGES and module == module_name(path).split(".")[0] and not _is_module(f"{module}.{name}")
    ]

    assert offenders == []


def test_only_the_listed_doors_call_to_wire() -> None:
    callers = {name for name in _users_of("to_wire") if not name.startswith("cmf.adapters")}

    assert callers == set(MAY_CALL_TO_WIRE)


def test_only_the_runner_mints_a_certificate() -> None:
    """Not even the public door hands the mint on [C6]; whoever imports the whole module could."""
    mint = {
        ("pipeline.decisions.certificate", "mint"),
        ("pipeline", "certificate"),
        ("pipeline.decisions.certificate", None),
    }

    importers = {module_name(path) for path in source_files() if mint & set(imported_names(parsed(path)))}

    assert importers == {"pipeline.run.runner"}


def test_the_detector_sees_each_spelling() -> None:
    for spelling in ("adapter.to_wire(x)", "to_wire_response(x)", "f = a.to_wire", "from a import to_wire as f"):
        assert _uses(ast.parse(spelling), "to_wire"), spelling


def _users_of(prefix: str) -> set[str]:
    """The modules that name anything that starts with `prefix`; defining it is not using it."""
    return {module_name(path) for path in source_files() if _uses(parsed(path), prefix)}


def _uses(tree: ast.Module, prefix: str) -> bool:
    attributes = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    imports = (name or "" for _, name in imported_names(tree))
    return any(name.startswith(prefix) for name in chain(attributes, names, imports))


def _adapter(path: Path) -> str:
    """The module or package right under `cmf.adapters` that a file is or belongs to."""
    return module_name(path).removeprefix("cmf.adapters.").split(".")[0]


def _adapter_imports(path: Path) -> set[str]:
    pairs = imported_names(parsed(path))
    full = {module if module != "cmf.adapters" else f"{module}.{name}" for module, name in pairs}
    return {name.removeprefix("cmf.adapters.") for name in full if name.startswith("cmf.adapters.")}


def _modules() -> list[str]:
    return [module_name(path) for path in source_files()]


def _within(name: str, floors: frozenset[str]) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in floors for length in range(1, len(parts) + 1))


def _is_module(name: str) -> bool:
    """Whether `name` is a module here, the native one (known by its stub) included."""
    path = SRC / name.replace(".", "/")
    return any(candidate.exists() for candidate in (path, path.with_suffix(".py"), path.with_suffix(".pyi")))


def _contract(contract_id: str) -> dict[str, list[str]]:
    contracts = project_settings()["tool"]["importlinter"]["contracts"]  # type: ignore[index]
    return next(contract for contract in contracts if contract["id"] == contract_id)


def _floors() -> frozenset[str]:
    rooms = _contract("gateway")
    lines = [*_contract("floors")["layers"], *(f"{rooms['containers'][0]}.{name}" for name in _names(rooms["layers"]))]
    return frozenset(_names(lines))


def _names(layers: list[str]) -> list[str]:
    return [name.strip() for layer in layers for name in layer.split("|")]
