"""What is tested in an environment of its own: the package's own versions do not go with the rest's. `make test`."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from pathlib import Path

import pytest
from tests.house.tree import ROOT

NAMES = sorted(file.stem for file in (ROOT / "requirements" / "integrations").glob("*.in"))


@pytest.mark.slow
@pytest.mark.spec("INT-20", "INT-30")
@pytest.mark.parametrize("name", NAMES)
def test_in_its_own_environment(name: str, tmp_path: Path) -> None:
    python = ROOT / ".tools" / "integrations" / name / "bin" / "python"
    if not python.exists():
        assert "CI" not in os.environ
        pytest.skip(f"no environment: make .tools/integrations/{name}/.locked")
    about = Path(str(importlib.metadata.distribution("cmf-pipeline").locate_file(""))).glob("cmf_pipeline-*.dist-info")
    for found in about:  # the package's version is asked for; the code itself is that of this folder
        (tmp_path / found.name).symlink_to(found)
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), str(tmp_path)])
    tests = [f"tests/pipeline/integrations/test_{name}.py", "tests/pipeline/integrations/test_pages.py"]

    done = subprocess.run(
        [python, "-m", "pytest", "--noconftest", "-q", "-p", "no:cacheprovider", "-k", name, *tests],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
