"""Programs of others that a command uses where they are there: OPA and Regal. Spec: docs/spec/cli.md [CLI-31]."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.cli.reading import Exit, fail

TOOLS: Final = Path(".tools") / "bin"
"""Where a checkout keeps its own, below it."""

TIMEOUT_SECONDS: Final = 300.0


def found(name: str, beside: Path) -> str | None:
    """The path of a program: on PATH, or in `.tools/bin` of `beside` or of a directory above it; None without."""
    on_path = shutil.which(name)
    if on_path is not None:
        return on_path
    home = beside.resolve()
    return next((where for folder in (home, *home.parents) if (where := shutil.which(name, path=folder / TOOLS))), None)


def called(program: str, arguments: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """What the program said and left with; the command ends in one line where it cannot be run or does not end."""
    try:
        return subprocess.run(  # noqa: S603 - found by name, never made of input
            [program, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        fail(f"{Path(program).name}: cannot be run, or does not end; check the binary", Exit.EVALUATION)


__all__ = ["called", "found"]
