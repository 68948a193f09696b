"""What whoever runs a gateway can ask of it: is it ready, what did it count, read policies again. Spec: [GW-150] ff."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from cmf.codec import dumps
from pipeline.errors import PipelineError

if TYPE_CHECKING:  # with all that judges: a crew, which has operations too, judges nothing
    from pipeline.gateway.metrics import Metrics
    from pipeline.guard import Guard

_log: Final = logging.getLogger("pipeline.gateway")


class Operations(Protocol):
    """What can be asked, of one process or of several."""

    async def metrics(self) -> str:
        """All counters, in the text format."""
        ...

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests could be judged now, and what there is to say of that."""
        ...

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """Read all policies again, as `by` wants it; what came of it, for each set of policies.

        An entry says its `routes`, the `revision` that judges there now and, where the files were refused, why: a code
        and a place. A refusal is logged, and leaves the set as it is.
        """
        ...


@dataclass(frozen=True, slots=True)
class Law:
    """A guard and the routes on which it judges; `is_watched` where its policies come from files."""

    routes: tuple[str, ...]
    guard: Guard
    is_watched: bool


class OwnOperations(Operations):
    """Those of this process.

    Args:
        laws: what judges.
        counted: where it counts.
        check: nothing if requests can be judged and put on record; else PipelineError is raised.
        is_open: whether requests are answered.
        audit: how the log of records does: figures by name.
    """

    def __init__(
        self,
        laws: Sequence[Law],
        counted: Metrics,
        check: Callable[[], None],
        is_open: Callable[[], bool],
        audit: Callable[[], Mapping[str, int]] = dict[str, int],
    ) -> None:
        self._audit = audit
        self._laws = tuple(laws)
        self._counted = counted
        self._check = check
        self._is_open = is_open
        self._reloading = threading.Lock()

    async def metrics(self) -> str:
        """See `Operations`."""
        return self._counted.text()

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """See `Operations`."""
        if not self._is_open():
            return False, {"status": "not open"}
        revisions = {route: law.guard.revision for law in self._laws for route in law.routes}
        try:
            await asyncio.to_thread(self._check)
        except PipelineError as error:
            return False, {"status": error.code, "store": error.code, "reason": error.hint, "revisions": revisions}
        return True, {"status": "ok", "store": "ok", "revisions": revisions, "audit": dict(self._audit())}

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """See `Operations`. Requests go on meanwhile, under the policies that there are."""
        return await asyncio.to_thread(self._reload, by)

    def _reload(self, by: str | None) -> list[dict[str, Any]]:
        with self._reloading:
            return [self._again(law, by) for law in self._laws]

    def _again(self, law: Law, by: str | None) -> dict[str, Any]:
        try:
            revision, refused = law.guard.reload(by=by), None
        except PipelineError as error:
            path = getattr(error, "path", "")
            revision, refused = law.guard.revision, f"{error.code} {path}".strip()
        entry = {"routes": list(law.routes), "revision": revision}
        line = {"event": "policies.reload", **entry, "refused": refused}
        _log.log(logging.INFO if refused is None else logging.ERROR, "%s", dumps(line).decode())
        return entry if refused is None else {**entry, "refused": refused}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """A block in which policies are read again whenever their files change."""
        with ExitStack() as watchers:
            for law in self._laws:
                if law.is_watched:
                    watchers.enter_context(law.guard.watch())
            yield


def merged(texts: Mapping[str, str]) -> str:
    """The counters of several processes, each with a label `worker`; families stay together, as the format asks."""
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


__all__ = ["Law", "Operations", "OwnOperations", "merged"]
