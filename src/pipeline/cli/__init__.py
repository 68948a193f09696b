"""The command `cmf`. One file a command; none is imported before it runs, so that `--help` is quick.

Spec: docs/spec/cli.md.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The console script: run the command, and let no traceback out."""
    try:
        from pipeline.cli.commands import app  # here, so that an interrupt meanwhile is one like any other

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away; there is nobody left to tell.
        sys.stderr.close()
        sys.exit(0)


__all__ = ["main"]
