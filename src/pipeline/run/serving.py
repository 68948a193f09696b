"""The runner in service, and replacing it under load, when policy files change too. Spec: [POL-49], [POL-50]."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from pipeline.decisions.engine import Engine
from pipeline.decisions.errors import PipelineError, needs
from pipeline.policy.loading import below
from pipeline.policy.policy_set import PolicySet
from pipeline.run.runner import Runner


class Serving:
    """The runner in service. A run acquires it once and keeps it to its end, so no decision mixes two policy sets."""

    def __init__(self, runner: Runner) -> None:
        self._lock = threading.Lock()
        self._runner = runner
        self._users: dict[Runner, int] = {}
        self._retired: set[Runner] = set()

    @property
    def runner(self) -> Runner:
        """The runner in service, for a single call; a run uses `acquire`."""
        return self._runner

    def acquire(self) -> Runner:
        """The runner in service, which is kept open until `release`."""
        with self._lock:
            runner = self._runner
            self._users[runner] = self._users.get(runner, 0) + 1
        return runner

    def release(self, runner: Runner) -> None:
        """End what `acquire` began."""
        with self._lock:
            self._users[runner] -= 1
            is_idle = self._users[runner] == 0 and runner in self._retired
            if is_idle:
                del self._users[runner]
                self._retired.discard(runner)
        if is_idle:
            runner.close()

    def swap(self, policies: PolicySet, engine: Engine) -> str:
        """Put another set into service for every run that starts from now on; returns the revision it replaces.

        The replaced runner is closed when its last run ends.
        """
        with self._lock:
            before = self._runner
            self._runner = before.with_policies(policies, engine)
            is_idle = self._users.get(before, 0) == 0
            if is_idle:
                self._users.pop(before, None)
            else:
                self._retired.add(before)
        if is_idle:
            before.close()
        return before.policies.revision


SETTLE_MILLISECONDS: Final = 400  # a deployment changes many files: changes this close together are one change
LOOK_MILLISECONDS: Final = 2_000  # polling interval where there are no change notifications (network file systems)

_log: Final = logging.getLogger("pipeline.policy")


class Watcher:
    """A thread that calls `reload` when files below `places` change, until stopped; also a context manager.

    Args:
        places: directories and bundles.
        reload: loads the policies again. A `PolicyError` is logged, and what was in service stays there.
        is_current: whether the set in service is the one on file; asked once, for changes made before watching began.
    """

    def __init__(
        self, places: Sequence[str | Path], reload: Callable[[], object], is_current: Callable[[], bool]
    ) -> None:
        with needs("watch"):
            from watchfiles import watch

        self._changes = watch
        self._places = [Path(place) for place in places]
        self._reload = reload
        self._is_current = is_current
        self._stop = threading.Event()
        self._seen = self._snapshot()
        self._thread = threading.Thread(target=self._watch, name="cmf-policies", daemon=True)
        self._thread.start()

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the thread once the current reload, if any, is finished."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        # A bundle is replaced by renaming another over it, so its directory has to be watched.
        folders = {place if place.is_dir() else place.parent for place in self._places}
        wakes = self._changes(
            *folders,
            watch_filter=None,
            stop_event=self._stop,
            debounce=SETTLE_MILLISECONDS,
            rust_timeout=LOOK_MILLISECONDS,
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        try:
            is_current = self._is_current()
        except PipelineError:
            is_current = False  # reloading reports why they are refused
        if not is_current:
            self._reload_or_log()
        for _ in wakes:
            state = self._snapshot()
            if state != self._seen:
                self._seen = state
                self._reload_or_log()

    def _reload_or_log(self) -> None:
        try:
            self._reload()
        except PipelineError as error:
            _log.error("the changed policies are refused, the previous ones stay in service: %s", error)

    def _snapshot(self) -> frozenset[tuple[str, int, int, int, int]]:
        """The path, times, size and inode of every file: different after any change."""
        return frozenset(_stat(path) for place in self._places for path in (place, *_below(place)))


def _below(place: Path) -> Sequence[Path]:
    try:
        return list(below(place))
    except OSError:  # removed in between; what takes its place is a change
        return ()


def _stat(path: Path) -> tuple[str, int, int, int, int]:
    """A copy can keep the size and mtime of the file that it replaces, but not its inode and ctime."""
    try:
        facts = path.stat()
    except OSError:
        return str(path), 0, 0, 0, 0  # removed in between
    return str(path), facts.st_mtime_ns, facts.st_size, facts.st_ino, facts.st_ctime_ns
