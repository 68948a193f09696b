"""The command `cmf`. One file a command; none is imported before it runs, so that `--help` is quick.

Spec: docs/spec/cli.md.
"""

from __future__ import annotations

import sys

from pipeline.cli import authors, reviewing
from pipeline.cli.app import app

authors.add_to(app)
reviewing.add_to(app)


def main() -> None:
    """The console script: run the command, and let no traceback out."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away; there is nobody left to tell.
        sys.stderr.close()
        sys.exit(0)


__all__ = ["app", "main"]
