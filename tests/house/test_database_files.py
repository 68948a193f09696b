"""No code of ours opens, copies or closes a database file behind SQLite's back: the process would lose its locks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import SRC, module_name, parsed, source_files

# Calls that open a file by its name, by the last part of their name, or by the whole one where that is ambiguous.
METHODS = {"read_bytes", "read_text", "write_bytes", "write_text", "touch"}
WHOLE = {"open", "io.open", "os.open", "os.truncate", "mmap.mmap", "zipfile.ZipFile", "tarfile.open", "gzip.open"}
MODULES = {"shutil"}  # all that it copies or moves
NO_FILES = {"touch"}  # names of ours, called as functions
SHUTIL_OK = {"shutil.disk_usage", "shutil.which", "shutil.get_terminal_size"}
CONNECTS = {"sqlite3.connect", "sqlalchemy.create_engine", "create_engine"}

# Whoever handles a store's file may open nothing, but for these: each opens what can be no open database.
ALLOWED = {
    ("pipeline.store.engine", "_make_private", "os.open"): "creates a file that was not there",
    ("pipeline.store.engine", "is_database", "sqlite3.connect"): "SQLite itself",
    ("pipeline.store.engine", "_sqlite_engine", "sqlalchemy.create_engine"): "SQLite itself",
    ("pipeline.store.engine", "_postgres_engine", "sqlalchemy.create_engine"): "a server",
    ("pipeline.store.engine", "open_any_schema", "sqlalchemy.create_engine"): "SQLite itself",
    ("pipeline.cli.review", "_secret", "file.read_text"): "the proxy's secret",
    ("pipeline.cli.ledger", "read", "read_bytes"): "a conversation",
    ("pipeline.cli.ledger", "_table", "read_bytes"): "prices",
}
# What sees a name that may be a store's opens it only once SQLite said that it is none.
ASKS_FIRST = {"pipeline.cli.audit": "is_bundle", "pipeline.cli.stores": "find"}


def handles_stores(path: Path) -> bool:
    """Whether the module belongs to the store, or imports what opens one."""
    inside = module_name(path).startswith("pipeline.store.")
    imported = {node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom)}
    return inside or bool(imported & {"pipeline.store.engine", "pipeline.store.database"})


def calls(tree: ast.AST, inside: str = "") -> Iterator[tuple[str, str]]:
    """Each call: the function that it is in, and its dotted name."""
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else inside
        if isinstance(node, ast.Call):
            yield name, ast.unparse(node.func)
        yield from calls(node, name)


def opens(name: str) -> bool:
    """Whether a call of this name opens a file, or a database."""
    first, _, last = name.rpartition(".")
    if name in SHUTIL_OK | NO_FILES or "importlib.resources" in name:
        return False
    by_object = last == "open" and first.endswith(("file", "path", ")"))
    return name in WHOLE | CONNECTS or last in METHODS or first in MODULES or by_object


def found() -> set[tuple[str, str, str]]:
    places = [path for path in source_files() if handles_stores(path)]
    return {(module_name(path), inside, name) for path in places for inside, name in calls(parsed(path)) if opens(name)}


@pytest.mark.spec("REC-25")
def test_what_handles_stores_opens_no_file() -> None:
    assert found() == set(ALLOWED)


@pytest.mark.spec("REC-25")
def test_only_the_store_connects_to_databases() -> None:
    places = (path for path in source_files() if module_name(path) != "pipeline.store.engine")
    assert [path for path in places if {name for _, name in calls(parsed(path))} & CONNECTS] == []


@pytest.mark.spec("REC-25")
@pytest.mark.parametrize(("module", "opener"), ASKS_FIRST.items())
def test_a_name_that_may_be_a_store_is_opened_only_once_it_is_known_to_be_none(module: str, opener: str) -> None:
    tree = parsed(SRC.joinpath(*module.split(".")).with_suffix(".py"))
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [name for _, name in calls(function)]
        if opener in names:
            asked = {"is_database", "is_store"} & set(names)
            assert asked, f"{module}.{function.name}"
            assert min(map(names.index, asked)) < names.index(opener)


@pytest.mark.parametrize(
    "call", ["open(f)", "file.open('rb')", "Path(f).open()", "os.open(f, 0)", "f.read_bytes()", "shutil.copy(a, b)"]
)
def test_such_a_call_is_seen(call: str) -> None:
    assert [name for _, name in calls(ast.parse(call)) if opens(name)]
