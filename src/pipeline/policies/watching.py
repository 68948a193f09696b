"""Policies that are loaded again when their files change. Spec: docs/spec/policies.md [POL-50]."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import watchfiles

from pipeline.errors import PipelineError
from pipeline.policies.policy_files import below

SETTLE_MILLISECONDS: Final = 400  # a deployment changes many files: what follows so soon belongs to the same change
LOOK_MILLISECONDS: Final = 2_000  # where changes are not told (a network's file system) they are looked for this often

_log: Final = logging.getLogger("pipeline.policies")


class Watcher:
    """A thread that calls `reload` after changes below `places`, until it is stopped; also a context manager.

    Args:
        places: directories and bundles.
        reload: loads the policies again; a refusal (`PolicyError`) leaves everything as it was, and is logged.
        is_current: whether what serves is what the files say; asked once, for what changed before it was watched.
    """

    def __init__(
        self, places: Sequence[str | Path], reload: Callable[[], object], is_current: Callable[[], bool]
    ) -> None:
        self._places = [Path(place) for place in places]
        self._reload = reload
        self._is_current = is_current
        self._stop = threading.Event()
        self._seen = self._state()
        self._thread = threading.Thread(target=self._watch, name="cmf-policies", daemon=True)
        self._thread.start()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread; a reload that is under way is finished first."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        # A bundle is replaced by renaming another over it, so its directory is what to look at.
        folders = {place if place.is_dir() else place.parent for place in self._places}
        wakes = watchfiles.watch(
            *folders,
            watch_filter=None,
            stop_event=self._stop,
            debounce=SETTLE_MILLISECONDS,
            rust_timeout=LOOK_MILLISECONDS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        if not self._stands():
            self._again()
        for _ in wakes:
            state = self._state()
            if state != self._seen:
                self._seen = state
                self._again()

    def _stands(self) -> bool:
        try:
            return self._is_current()
        except PipelineError:
            return False  # loading them again says why they are refused

    def _again(self) -> None:
        try:
            self._reload()
        except PipelineError as error:
            _log.error("the policies that changed are refused: %s", error)

    def _state(self) -> frozenset[tuple[str, int, int, int, int]]:
        """What changes whenever a file does: each one's path, times, size and number."""
        return frozenset(_facts(path) for place in self._places for path in (place, *_below(place)))


def _below(place: Path) -> Sequence[Path]:
    try:
        return list(below(place))
    except OSError:  # it went away in between; whatever takes its place is a change
        return ()


def _facts(path: Path) -> tuple[str, int, int, int, int]:
    """A copy may keep the time and the size of what it takes the place of; it has a number and a time of its own."""
    try:
        facts = path.stat()
    except OSError:
        return str(path), 0, 0, 0, 0  # it went away in between
    return str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_ctime_ns
