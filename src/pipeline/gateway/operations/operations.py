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


@dataclass(frozen=True)
class OwnOperations(Operations):
    """The operations of this process.

    Attributes:
        check: raises PipelineError unless requests can be judged and put on record.
    """

    guarded: Sequence[GuardedRoutes]
    counted: Metrics
    check: Callable[[], None]
    is_open: Callable[[], bool]
    audit: Callable[[], Mapping[str, int]] = dict[str, int]

    async def metrics(self) -> str:
        """See `Operations`."""
        return self.counted.text()

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """See `Operations`."""
        if not self.is_open():
            return False, {"status": "not open"}
        revisions = {route: one.guard.revision for one in self.guarded for route in one.routes}
        try:
            await asyncio.to_thread(self.check)
        except PipelineError as error:
            return False, {"status": error.code, "store": error.code, "reason": error.hint, "revisions": revisions}
        return True, {"status": "ok", "store": "ok", "revisions": revisions, "audit": dict(self.audit())}

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """See `Operations`. Requests are judged meanwhile by the policies in force."""
        return await asyncio.to_thread(lambda: [self._reload(one, by) for one in self.guarded])

    def _reload(self, one: GuardedRoutes, by: str | None) -> dict[str, Any]:
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
            for one in self.guarded:
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
                continue
            name, _, value = line.rpartition(" ")
            labels = f'{name[:-1]},worker="{worker}"}}' if name.endswith("}") else f'{name}{{worker="{worker}"}}'
            family.append(f"{labels} {value}")
    return "".join(f"{head}\n" + "".join(f"{line}\n" for line in lines) for head, lines in families.items())
