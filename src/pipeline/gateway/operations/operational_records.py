"""What a gateway puts on record besides decisions: settings, policies, the number of requests. Spec: [GW-210].

With `audit.content` it also erases expired content, once an hour.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cmf.json.codec import dumps
from cmf.message.ids import Clock
from pipeline.audit.record import Record, act_of
from pipeline.decisions.context import Context
from pipeline.decisions.errors import StoreError
from pipeline.decisions.events import Event, PoliciesChanged, PoliciesRefused
from pipeline.decisions.timestamps import micros
from pipeline.gateway.config.config_file import Loaded
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.operations.metrics import Tally
from pipeline.guard import Guard
from pipeline.policy.bundle_signature import packed
from pipeline.sessions.base import SessionStore, wall_clock
from pipeline.store.database import Store
from pipeline.store.engine import touch
from pipeline.store.policies import keep_policies
from pipeline.store.retention_sweep import Sweep
from pipeline.store.writer import waited

AGAIN_SECONDS: Final = 1.0  # within this time the result of the last check is given again
TRY_SECONDS: Final = 1.0  # less than whoever asks several processes waits for each of them


class Readiness:
    """The readiness of a store, by the result of its last operation. Safe to use from any thread.

    Args:
        store: where records go; None where nothing has to be kept before something goes out.
    """

    def __init__(
        self, sessions: SessionStore, store: Store | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._clock = clock
        self._gate = threading.Lock()
        self._again = 0.0

    def check(self) -> None:
        """Nothing, if they could.

        While the last write failed another one is tried, which changes nothing and is no record: without requests
        nobody else would find that writing works again.

        Raises:
            StoreError: sessions cannot be read, or nothing can be kept. PipelineError: see `SessionStore.read`.
        """
        self._sessions.read(Context(session="readyz"))
        failure = None if self._store is None else self._store.writer.failure
        if self._store is None or failure is None:
            return
        with self._gate:
            now = self._clock()
            is_due = now >= self._again
            if is_due:
                self._again = now + AGAIN_SECONDS
        if not is_due:
            raise StoreError(failure.message, hint=failure.hint, code=failure.code)
        waited(self._store.writer.call(touch), TRY_SECONDS)


SWEEP_SECONDS: Final = 3_600.0
_log: Final = logging.getLogger("pipeline.gateway")
# Recorded by their digest only: names, hashes and addresses of clients are not for auditors to browse.
_BY_DIGEST: Final = ("keys", "issuers", "proxy", "admin")


class Chronicle:
    """Writes these records. A thread counts and sweeps until `close`."""

    def __init__(self, store: Store, settings: Settings, tally: Tally, clock: Clock = wall_clock) -> None:
        self._store = store
        self._settings = settings
        self._tally = tally
        self._clock = clock
        self._since = clock()
        self._over = threading.Event()
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="cmf-gateway-chronicle", daemon=True)

    def begin(self, guarded: Sequence[tuple[Sequence[str], Guard]]) -> None:
        """Record the settings and policies that the gateway starts with.

        Raises:
            StoreError: that failed, so the gateway must not start.
        """
        routes = {route: guard.revision for names, guard in guarded for route in names}
        self._keep("config", "begin", {**recorded_settings(self._settings), "revisions": routes})
        for names, guard in guarded:
            self._policies("load", guard, {"routes": list(names), "revision": guard.revision})
        self._thread.start()

    def on_event(self, routes: Sequence[str], guard: Guard, event: Event) -> None:
        """For `Events.subscribe`: policies were replaced, or new ones refused."""
        try:
            if isinstance(event, PoliciesChanged):
                details = {"routes": list(routes), "before": event.before, "revision": event.after}
                self._policies("change", guard, details, event.by)
            elif isinstance(event, PoliciesRefused):
                details = {"routes": list(routes), "code": event.code, "revision": guard.revision}
                self._keep("policy", "refuse", details)
        except StoreError as error:
            self._failed("a change of policies", error)

    def close(self) -> None:
        """Record the last count, and stop."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self.count()

    def count(self) -> None:
        """Record the number of requests since the last time."""
        routes = self._tally.take()
        now = self._clock()
        if not routes:
            return
        try:
            self._keep("tally", "count", {"from": self._since.isoformat(), "until": now.isoformat(), "routes": routes})
            self._since = now
        except StoreError as error:
            self._tally.give_back(routes)
            self._failed("the number of requests", error)

    def _run(self) -> None:
        every = self._settings.audit.tally_seconds
        waited = 0.0
        while not self._over.wait(every):
            self.count()
            waited += every
            if waited >= SWEEP_SECONDS and self._settings.audit.content != "none":
                waited = 0.0
                self.sweep()

    def sweep(self) -> None:
        """Erase expired content."""
        try:
            Sweep(self._store).run(micros(self._clock()))
        except StoreError as error:
            self._failed("the sweep of expired content", error)

    def _failed(self, what: str, error: StoreError) -> None:
        self.failures += 1
        _log.error("%s could not be put on record: %s", what, error.code)

    def _policies(self, action: str, guard: Guard, details: Mapping[str, Any], by: str | None = None) -> None:
        # Only then is somebody the subject of the record, on which [REV-43] relies.
        subject = by if details.get("before") != details["revision"] else None
        named = details if by is None else {**details, "by": {"id": by}}
        policies, row = guard.policies, self._row("policy", action, named, subject)
        keep_policies(self._store, policies.revision, packed(policies.bundle()), row)

    def _keep(self, kind: str, action: str, details: Mapping[str, Any]) -> None:
        self._store.put_on_record(self._row(kind, action, details))

    def _row(self, kind: str, action: str, details: Mapping[str, Any], by: str | None = None) -> Record:
        revision = str(details.get("revision", ""))
        return act_of(kind, _PREFIX[kind], action, details, self._clock(), subject=by, revision=revision)


_PREFIX: Final = {"config": "cfg", "policy": "pol", "tally": "tly"}


def recorded_settings(settings: Settings) -> dict[str, Any]:
    """What goes on record of settings: a digest of all, and each one that names no client."""
    values = {path: value for path, value, _ in Loaded(settings=settings, sources={}).effective()}
    named = {path: value for path, value in values.items() if not path.startswith(_BY_DIGEST)}
    return {"digest": hashlib.sha256(dumps(values)).hexdigest(), "mode": settings.mode.value, "settings": named}
