"""`python -m bench.batch_rows FILE JOBS`: judge the messages of a file, in a process whose CPU can be asked for."""

from __future__ import annotations

import sys
from pathlib import Path

from pipeline.replay.batch import judge


def main() -> None:
    """Judge, and keep nothing."""
    for _ in judge([Path(sys.argv[1])], holds="message", jobs=int(sys.argv[2])):
        pass


if __name__ == "__main__":
    main()
