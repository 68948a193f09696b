"""`make quick` finds tests for whatever changed, within its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.quick import nearest_tests

from tests.house.tree import ROOT, source_files


def test_every_module_has_tests_that_are_nearest_to_it() -> None:
    modules = [str(path.relative_to(ROOT)) for path in source_files()]

    assert [module for module in modules if not nearest_tests(module)] == []


def test_a_module_is_proved_by_the_test_at_its_mirrored_path() -> None:
    assert nearest_tests("src/pipeline/guard.py") == ["tests/pipeline/test_guard.py"]
    assert nearest_tests("tests/pipeline/test_guard.py") == ["tests/pipeline/test_guard.py"]


def test_a_file_that_no_test_mirrors_has_none() -> None:
    assert nearest_tests("README.md") == []


def test_tests_that_come_too_late_are_named_and_not_passed(tmp_path: Path) -> None:
    tests = tmp_path / "test_slow.py"
    tests.write_text("import time\n\ndef test_first():\n    time.sleep(0.2)\n\ndef test_second():\n    assert False\n")
    script = (
        f"import pytest; from scripts.quick import Budget; pytest.main(['-q', {str(tests)!r}], plugins=[Budget(0.1)])"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert "1 passed, 1 skipped" in done.stdout
    assert "NOT RUN for want of time: 1 tests" in done.stdout
