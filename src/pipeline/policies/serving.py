"""The runner that serves now, and replacing it while it is in use. Spec: docs/spec/policies.md [POL-49]."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from pipeline.engines.base import Engine
from pipeline.policy_set import PolicySet
from pipeline.runner import Runner


class Serving:
    """The runner that judges. A run takes it once and keeps it to its end, so that no decision mixes two sets."""

    def __init__(self, runner: Runner) -> None:
        self._lock = threading.Lock()
        self._runner = runner
        self._users: dict[Runner, int] = {}
        self._retired: set[Runner] = set()

    @property
    def runner(self) -> Runner:
        """The one that serves now; for what is over at once."""
        return self._runner

    def lease(self) -> AbstractContextManager[Runner]:
        """The one that serves now, which is not closed before the block ends."""
        return _Lease(self)

    def _taken(self) -> Runner:
        with self._lock:
            runner = self._runner
            self._users[runner] = self._users.get(runner, 0) + 1
        return runner

    def _given_back(self, runner: Runner) -> None:
        with self._lock:
            self._users[runner] -= 1
            is_over = self._users[runner] == 0 and runner in self._retired
            if is_over:
                self._forget(runner)
        if is_over:
            runner.close()

    def swap(self, policies: PolicySet, engine: Engine) -> str:
        """Let another set serve every run that begins from now on; gives the revision that served.

        What served is closed when its last run is over.
        """
        with self._lock:
            before = self._runner
            self._runner = before.with_policies(policies, engine)
            is_over = self._users.get(before, 0) == 0
            if is_over:
                self._users.pop(before, None)
            else:
                self._retired.add(before)
        if is_over:
            before.close()
        return before.revision

    def _forget(self, runner: Runner) -> None:
        del self._users[runner]
        self._retired.discard(runner)


class _Lease(AbstractContextManager[Runner]):
    """A block that has a runner: each run enters one, and a generator would take three times as long."""

    __slots__ = ("_runner", "_serving")

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def __enter__(self) -> Runner:
        self._runner = self._serving._taken()
        return self._runner

    def __exit__(self, *_: object) -> None:
        self._serving._given_back(self._runner)
