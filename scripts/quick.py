"""The tests nearest to what changed: `make quick` runs them, and the floors of the house, in a minute.

A changed module is proved by the test at its mirrored path (`src/pipeline/guard.py`: `tests/pipeline/test_guard.py`).
One without such a test is proved by the tests of the mirrored folder that import it, or else by the tests of the
modules that import it, or by all of the folder. Tests that do not fit into the time are named at the end; `make test`
runs everything.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
BASES = ("origin/main", "main")  # what a change is compared with: the first of them that there is
BUDGET_SECONDS = 50.0  # then no further test is begun
ALWAYS = ("tests/house/test_floors.py", "tests/house/test_names.py")
FOLDERS = {"rust/": "tests/pipeline/engines", "policies/": "tests/policies", "docs/spec/": "tests/house/test_spec.py"}
LONG = "not (slow or proof or opa or chromium)"


def changed_paths() -> list[str]:
    """The files that differ from where this branch left the main one, and those git does not know yet."""
    fork = [commit for base in BASES for commit in _git("merge-base", "HEAD", base)] or _git("rev-parse", "HEAD")
    return sorted({*_git("diff", "--name-only", fork[0]), *_git("ls-files", "--others", "--exclude-standard")})


def nearest_tests(path: str) -> list[str]:
    """The test files that prove the file at `path`, nearest first; none for a file that no test mirrors."""
    if path.startswith("tests/") and Path(path).name.startswith("test_") and (ROOT / path).exists():
        return [path]
    if path.startswith("src/") and path.endswith(".py"):
        return _tests_of_module(Path(path).relative_to("src"))
    return [tests for prefix, tests in FOLDERS.items() if path.startswith(prefix)]


def _tests_of_module(module: Path) -> list[str]:
    """The tests of a module, or else of the modules that import it, one step further at a time, or else the folder."""
    seen: set[Path] = set()
    modules = {module}
    while modules:
        if tests := sorted({str(test.relative_to(ROOT)) for each in modules for test in _own_tests(each)}):
            return tests
        seen |= modules
        modules = {importer for each in modules for importer in _importers(_dotted(each))} - seen
    return [next(str(folder) for folder in (Path("tests") / module).parents if (ROOT / folder).exists())]


def _own_tests(module: Path) -> list[Path]:
    mirrored = ROOT / "tests" / module.parent / f"test_{module.name}"
    if mirrored.exists():
        return [mirrored]
    return [test for test in mirrored.parent.glob("test_*.py") if _dotted(module) in _imports(test)]


def _importers(name: str) -> list[Path]:
    return [path.relative_to(SRC) for path in SRC.rglob("*.py") if name in _imports(path)]


def _dotted(module: Path) -> str:
    return ".".join(module.with_suffix("").parts).removesuffix(".__init__")


@cache
def _imports(file: Path) -> frozenset[str]:
    return frozenset(_imported(ast.walk(ast.parse(file.read_text(encoding="utf-8")))))


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split()


class Budget:
    """Begins no further test when the time is up, and says how many were left."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: list[str] = []
        self._spent = 0.0

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip what comes too late."""
        if self._spent > self._seconds:
            self._left.append(item.nodeid)
            pytest.skip("no time left")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the time of each step of a test."""
        self._spent += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was not reached."""
        if self._left:
            files = sorted({nodeid.partition("::")[0] for nodeid in self._left})
            terminalreporter.write_line(f"NOT RUN for want of time: {len(self._left)} tests, of {', '.join(files)}")


def main() -> int:
    """Run the tests nearest to what changed."""
    tests = dict.fromkeys(test for path in changed_paths() for test in nearest_tests(path))
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", LONG]
    return int(pytest.main([*options, *ALWAYS, *tests], plugins=[Budget(BUDGET_SECONDS)]))


if __name__ == "__main__":
    sys.exit(main())
