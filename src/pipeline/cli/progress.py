"""A progress bar on standard error, shown after a second and only on a terminal. Spec: docs/spec/cli.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pipeline.cli.rendering import console

AFTER_SECONDS: Final = 1.0


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of finished items; the bar disappears at the end of the block."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda _: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = Progress(*columns, console=out, transient=True)
    task = bar.add_task(what, total=total)
    started, shown = time.monotonic(), False

    def done(count: int) -> None:
        nonlocal shown
        bar.advance(task, count)
        if not shown and time.monotonic() - started > AFTER_SECONDS:
            shown = True
            bar.start()

    try:
        yield done
    finally:
        if shown:
            bar.stop()


__all__ = ["progress"]
