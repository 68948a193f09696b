"""What the project asks for by name is explained by name, and every lock pins what it lists by hash."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.tree import ROOT, imported_names, parsed, project_settings, source_files

DOCUMENT = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*")
NEEDS = re.compile(r"needs\(\"([a-z-]+)\"\)")
LOCKS = sorted((ROOT / "requirements").rglob("*.txt"))
# Extras that the package plugs into: each module of `pipeline.integrations` imports its own, when it is first used.
PLUGGED = {"httpx", "langchain", "litellm", "openai-agents", "pydantic-ai"}
DEVELOPING = {"dev"}
OWN = "cmf-pipeline"  # an extra that includes another one names the package itself

# What SQLAlchemy imports when a URL names it (`postgresql+psycopg`), and no code of ours does.
DRIVERS = {"psycopg"}


def test_every_python_dependency_has_a_line_in_the_document() -> None:
    assert _asked_for() - _explained() == set()


def test_every_crate_has_a_line_in_the_document() -> None:
    manifest = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text(encoding="utf-8"))

    assert set(manifest["dependencies"]) - _explained() == set()


def test_the_document_explains_nothing_that_is_not_asked_for() -> None:
    manifest = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text(encoding="utf-8"))
    tools = {"opa", "regal"}

    assert _explained() - _asked_for() - set(manifest["dependencies"]) - tools == set()


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_every_pin_of_a_lock_carries_a_hash(lock: Path) -> None:
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock.read_text(encoding="utf-8"))
    pins = [entry for entry in entries if NAME.match(entry)]

    assert pins
    assert [pin.split()[0] for pin in pins if "--hash=sha256:" not in pin or "==" not in pin] == []


def test_the_runtime_lock_pins_every_runtime_dependency() -> None:
    lock = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    pinned = {match[0] for line in lock.splitlines() if (match := NAME.match(line))}

    assert _runtime() - _runtime(PLUGGED | DEVELOPING) - pinned == set()


def test_the_lock_for_development_pins_what_tests_and_checks_need() -> None:
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pinned = {_canonical(match[0]) for line in lock.splitlines() if (match := NAME.match(line))}

    assert {_canonical(name) for name in _runtime(DEVELOPING)} - pinned == set()


def test_the_extra_all_is_every_extra_of_our_own() -> None:
    extras: dict[str, list[str]] = project_settings()["project"]["optional-dependencies"]  # type: ignore[index,assignment]
    (listed,) = extras["all"]

    assert set(listed.partition("[")[2].rstrip("]").split(",")) == set(extras) - PLUGGED - DEVELOPING - {"all", "ray"}


def test_what_each_missing_extra_advises_is_an_extra() -> None:
    extras = set(project_settings()["project"]["optional-dependencies"])  # type: ignore[index,call-overload]
    advised = {name for path in source_files() for name in NEEDS.findall(path.read_text(encoding="utf-8"))}

    assert advised == extras - {"all", "dev"}


def test_what_integrations_plug_into_is_pinned_for_the_tests() -> None:
    locks = [lock for lock in LOCKS if "integrations" in str(lock) or lock.name == "sdk.txt"]
    lines = [line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines()]

    assert _runtime(PLUGGED) - {match[0] for line in lines if (match := NAME.match(line))} == set()


def test_the_code_imports_what_is_declared_and_declares_what_it_imports() -> None:
    """A name that is only imported works until the package that happened to bring it stops doing so."""
    providers = importlib.metadata.packages_distributions()
    files = [path for path in source_files() if "integrations" not in path.parts]
    imported = {name.split(".")[0] for path in files for name, _ in imported_names(parsed(path))}
    third_party = imported - sys.stdlib_module_names - {"cmf", "pipeline", "pydantic_core"}

    declared = {_canonical(name) for name in _runtime() - _runtime(PLUGGED | DEVELOPING)}

    # Several packages can share a name to import; then those count that are declared.
    own = [{_canonical(name) for name in providers[module]} for module in third_party]
    used = {name for names in own for name in (names & declared or names)}

    assert used | DRIVERS == declared


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _asked_for() -> set[str]:
    files = sorted((ROOT / "requirements").glob("*.in"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return _runtime() | {match[0] for line in lines if (match := NAME.match(line))}


def _runtime(only: set[str] | None = None) -> set[str]:
    """What the package asks for, extras included; of these `only` some, where it says so."""
    project: dict[str, object] = project_settings()["project"]  # type: ignore[assignment]
    extras: dict[str, list[str]] = project.get("optional-dependencies", {})  # type: ignore[assignment]
    listed = [line for extra, lines in extras.items() if only is None or extra in only for line in lines]
    declared: list[str] = [*(project["dependencies"] if only is None else []), *listed]  # type: ignore[misc]
    return {match[0] for line in declared if (match := NAME.match(line))} - {OWN}


def _explained() -> set[str]:
    rows = [line.split("|")[1] for line in DOCUMENT.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
