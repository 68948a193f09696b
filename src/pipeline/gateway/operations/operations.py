"""What an operator can ask of a gateway: readiness, metrics, a reload of its policies. Spec: [GW-150] ff."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from cmf.json.codec import dumps
from pipeline.decisions.errors import PipelineError

if TYPE_CHECKING:  # not loaded by `Crew`, which has operations but judges nothing
    from pipeline.gateway.operations.metrics import Metrics
    from pipeline.guard import Guard

_log: Final = logging.getLogger("pipeline.gateway")


class Operations(Protocol):
    """Of one process, or of several together."""

    async def metrics(self) -> str:
        """All metrics, in Prometheus' text format."""
        ...

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests can be judged now, and the details."""
        ...

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """Read all policies again, on behalf of `by`; one entry for each policy set.

        An entry has its `routes`, the `revision` in force there now and, if the files were refused, `refused`: why,
        where and what to do. A refusal is logged; the set stays as it was.
        """
        ...


@dataclass(frozen=True, slots=True)
class GuardedRoutes:
    """A guard and the routes that it judges; `is_watched` if its policies come from files."""

    routes: tuple[str, ...]
    guard: Guard
    is_watched: bool


class OwnOperations(Operations):
    """The operations of this process.

    Args:
        guarded: all guards.
        counted: the metrics.
        check: raises PipelineError unless requests can be judged and put on record.
        is_open: whether requests are answered.
        audit: figures of the audit log, by name.
    """

    def __init__(
        self,
        guarded: Sequence[GuardedRoutes],
        counted: Metrics,
        check: Callable[[], None],
        is_open: Callable[[], bool],
        audit: Callable[[], Mapping[str, int]] = dict[str, int],
    ) -> None:
        self._audit = audit
        self._guarded = tuple(guarded)
        self._counted = counted
        self._check = check
        self._is_open = is_open

    async def metrics(self) -> str:
        """See `Operations`."""
        return self._counted.text()

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """See `Operations`."""
        if not self._is_open():
            return False, {"status": "not open"}
        revisions = {route: one.guard.revision for one in self._guarded for route in one.routes}
        try:
            await asyncio.to_thread(self._check)
        except PipelineError as error:
            return False, {"status": error.code, "store": error.code, "reason": error.hint, "revisions": revisions}
        return True, {"status": "ok", "store": "ok", "revisions": revisions, "audit": dict(self._audit())}

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """See `Operations`. Requests are judged meanwhile by the policies in force."""
        return await asyncio.to_thread(self._reload, by)

    def _reload(self, by: str | None) -> list[dict[str, Any]]:
        return [self._reload_one(one, by) for one in self._guarded]

    def _reload_one(self, one: GuardedRoutes, by: str | None) -> dict[str, Any]:
        try:
            revision, refused = one.guard.reload(by=by), None
        except PipelineError as error:
            revision, refused = one.guard.revision, str(error)
        entry = {"routes": list(one.routes), "revision": revision}
        line = {"event": "policies.reload", **entry, "refused": refused}
        _log.log(logging.INFO if refused is None else logging.ERROR, "%s", dumps(line).decode())
        return entry if refused is None else {**entry, "refused": refused}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which policies are read again when their files change."""
        with ExitStack() as watchers:
            for one in self._guarded:
                if one.is_watched:
                    watchers.enter_context(one.guard.watch())
            yield


def merged(texts: Mapping[str, str]) -> str:
    """The metrics of several processes, with a label `worker`; families stay together, as the format requires."""
    families: dict[str, list[str]] = {}
    for worker, text in sorted(texts.items()):
        family: list[str] = []
        for line in text.splitlines():
            if line.startswith("#"):
                family = families.setdefault(line, [])
            else:
                family.append(_labelled(line, worker))
    return "".join(f"{head}\n" + "".join(f"{line}\n" for line in lines) for head, lines in families.items())


def _labelled(line: str, worker: str) -> str:
    name, _, value = line.rpartition(" ")
    if name.endswith("}"):
        return f'{name[:-1]},worker="{worker}"}} {value}'
    return f'{name}{{worker="{worker}"}} {value}'
