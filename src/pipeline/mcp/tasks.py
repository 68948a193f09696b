"""The calls that began tasks: what a task gives is judged as what its call gave. Spec: mcp-proxy.md [MCPX-26]."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.mcp.judging import Sent

MAX_TASKS: Final = 256  # of one caller, each with its call in memory
MAX_BYTES: Final = 16 * 1024 * 1024  # of these calls, as they were sent
GET: Final = "tasks/get"  # the answer says how the task stands; since revision 2026-07-28 with its result
RESULT: Final = "tasks/result"  # the answer is the result; revision 2025-11-25
NOTICE: Final = "notifications/tasks"  # as an answer to `tasks/get`, sent unasked


class Tasks:
    """The calls of one caller that began a task, by the task's id. The oldest are forgotten first."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, Sent | None] = OrderedDict()
        self._sizes: dict[str, int] = {}

    def begun(self, result: Mapping[str, Any], sent: Sent) -> None:
        """Remember the call that this result answers, if the result begins a task.

        An id that two calls were given names neither: with the other call's name, the result would be judged as the
        result of another tool.
        """
        task_id = _begun_id(result)
        if task_id is None:
            return
        known = self._calls.setdefault(task_id, sent)
        if known is None or known.body is not sent.body:
            self._calls[task_id], self._sizes[task_id] = None, 0
        elif task_id not in self._sizes:
            self._sizes[task_id] = len(dumps(sent.body))
        while len(self._calls) > MAX_TASKS or (len(self._calls) > 1 and sum(self._sizes.values()) > MAX_BYTES):
            oldest, _ = self._calls.popitem(last=False)
            del self._sizes[oldest]

    def call_of(self, params: Mapping[str, Any]) -> Sent | None:
        """The call that began the task which `params` name; None if it is unknown, or is not one call."""
        task_id = params.get("taskId")
        return self._calls.get(task_id) if isinstance(task_id, str) else None


def _begun_id(result: Mapping[str, Any]) -> str | None:
    """The id of the task that a result begins: in revision 2025-11-25 within `task`, since then beside `resultType`."""
    task = result if result.get("resultType") == "task" else result.get("task")
    task_id = task.get("taskId") if isinstance(task, Mapping) else None
    return task_id if isinstance(task_id, str) else None
