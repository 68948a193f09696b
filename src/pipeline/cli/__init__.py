"""The command `cmf`. One file a command; none is imported before it runs, so that `--help` is quick.

Spec: docs/spec/cli.md.
"""

from __future__ import annotations

import sys

_SOON = 0.05  # seconds


def main() -> None:
    """The console script: run the command, and let no traceback out."""
    before, sys.unraisablehook = sys.unraisablehook, _unraised
    try:
        from pipeline.cli.commands import app  # here, so that an interrupt meanwhile is one like any other

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away; there is nobody left to tell.
        sys.stderr.close()
        sys.exit(0)
    except Exception as error:
        if not _is_interrupt(error):
            raise
        sys.exit(130)
    finally:
        sys.unraisablehook = before


def _unraised(what: sys.UnraisableHookArgs) -> None:
    """An interrupt that came while nothing can be raised, in the callback of an import, say, comes again."""
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import signal
    import threading

    # Soon: at once it would come in here, where nothing can be raised either. A signal, as that wakes who sleeps.
    threading.Timer(_SOON, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()


def _is_interrupt(error: Exception) -> bool:
    """Whether this is what pydantic-core makes of an interrupt that comes while it builds a validator."""
    return type(error).__name__ == "SchemaError" and "KeyboardInterrupt" in str(error)


__all__ = ["main"]
