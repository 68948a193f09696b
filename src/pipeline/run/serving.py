"""The runner in service, and replacing it under load. Spec: docs/spec/policies.md [POL-49]."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from pipeline.decisions.engine import Engine
from pipeline.policy.policy_set import PolicySet
from pipeline.run.runner import Runner


class Serving:
    """The runner in service. A run leases it once and keeps it to its end, so no decision mixes two policy sets."""

    def __init__(self, runner: Runner) -> None:
        self._lock = threading.Lock()
        self._runner = runner
        self._users: dict[Runner, int] = {}
        self._retired: set[Runner] = set()

    @property
    def runner(self) -> Runner:
        """The runner in service, for a single call; a run takes a `lease`."""
        return self._runner

    def lease(self) -> AbstractContextManager[Runner]:
        """The runner in service, kept open until the block ends."""
        return _Lease(self)

    def _acquire(self) -> Runner:
        with self._lock:
            runner = self._runner
            self._users[runner] = self._users.get(runner, 0) + 1
        return runner

    def _release(self, runner: Runner) -> None:
        with self._lock:
            self._users[runner] -= 1
            is_idle = self._users[runner] == 0 and runner in self._retired
            if is_idle:
                self._forget(runner)
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
        return before.revision

    def _forget(self, runner: Runner) -> None:
        del self._users[runner]
        self._retired.discard(runner)


class _Lease(AbstractContextManager[Runner]):
    """A lease on the runner. A class, because every run enters one and a generator takes three times as long."""

    __slots__ = ("_runner", "_serving")

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def __enter__(self) -> Runner:
        self._runner = self._serving._acquire()
        return self._runner

    def __exit__(self, *_: object) -> None:
        self._serving._release(self._runner)
