"""Print what became of every cell of the conformance matrix: `make conformance`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.pipeline.gateway import matrix, matrix_mcp

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        sys.stdout.write(matrix.table(matrix.outcomes(Path(made))) + "\n\n")
        sys.stdout.write(matrix_mcp.table(matrix_mcp.outcomes(Path(made))) + "\n")
