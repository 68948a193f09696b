"""Optional third-party programs: OPA and Regal. Spec: docs/spec/cli.md [CLI-31]."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.cli.reading import Exit, fail

TOOLS: Final = Path(".tools") / "bin"
"""Where a checkout keeps its own copies."""

TIMEOUT_SECONDS: Final = 300.0


def found(name: str, beside: Path) -> str | None:
    """The path of a program, on PATH or in `.tools/bin` of `beside` or a directory above it; None if not found."""
    on_path = shutil.which(name)
    if on_path is not None:
        return on_path
    home = beside.resolve()
    return next((where for folder in (home, *home.parents) if (where := shutil.which(name, path=folder / TOOLS))), None)


def run_program(program: str, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """The program's output and exit code; the command fails with one line if it cannot be run or hangs."""
    try:
        return subprocess.run(  # noqa: S603 - a program found by name, never built from input
            [program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        fail(f"{Path(program).name}: cannot be run, or does not finish; check the binary", Exit.EVALUATION)


__all__ = ["found", "run_program"]
