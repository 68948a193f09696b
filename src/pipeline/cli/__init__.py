"""The command `cmf`. One file per command, imported when the command runs, so that `--help` is fast.

Spec: docs/spec/cli.md.
"""

from __future__ import annotations

import sys

_RESEND_SECONDS = 0.05  # seconds


def main() -> None:
    """The console script: run the command without ever showing a traceback."""
    before, sys.unraisablehook = sys.unraisablehook, _unraised
    try:
        from pipeline.cli.app import app  # imported here, so that an interrupt during the import is handled too

        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the output has closed the pipe: there is nothing more to report.
        sys.stderr.close()
        sys.exit(0)
    except ImportError as error:
        from pipeline.decisions.errors import MissingExtraError

        if not isinstance(error, MissingExtraError):
            raise
        sys.stderr.write(f"cmf: {error}\n")
        sys.exit(2)  # as for other settings: `Exit.USAGE`, which is not imported without the extra
    except Exception as error:
        # How pydantic-core reports an interrupt while it builds a validator.
        if type(error).__name__ != "SchemaError" or "KeyboardInterrupt" not in str(error):
            raise
        sys.exit(130)
    finally:
        sys.unraisablehook = before


def _unraised(what: sys.UnraisableHookArgs) -> None:
    """Raise an interrupt again that arrived where nothing can be raised, such as in an import callback."""
    if not issubclass(what.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(what)
        return
    import signal
    import threading

    # After a moment: right now it would arrive in here again. As a signal, because that ends sleeps.
    threading.Timer(_RESEND_SECONDS, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
