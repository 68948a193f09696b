"""One MCP connection between a client and a server: policy decides on every message. Spec: mcp-proxy.md.

There is no I/O here: a transport passes each message that it received to `receive`, and sends the messages of the
`Step` that this returns. One link serves one client and one server, over any transport.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cmf.json.codec import dumps
from cmf.json.value import replace
from cmf.message.ids import TOOL_PREFIX
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ConfigError
from pipeline.decisions.timestamps import new_ulid
from pipeline.guard import Guard
from pipeline.mcp.frames import (
    CLOSED,
    INVALID_REQUEST,
    REFUSED,
    UNAVAILABLE,
    Batch,
    Frame,
    Id,
    Kind,
    Refused,
    error_body,
    refusal_body,
    timed_out,
)
from pipeline.mcp.judging import Judge, Sent
from pipeline.mcp.pins import CHANGED, STRIPPED, Pins
from pipeline.run.offload import apart

_log: Final = logging.getLogger("pipeline.mcp")
ALONE: Final = "2026-07-28"  # the only stateless revision: each request stands alone
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", ALONE)
BATCHING: Final = "2025-03-26"  # the only revision with batches
MAX_OPEN: Final = 1024  # unanswered calls of one side
MAX_TOKENS: Final = 4096
_LASTING: Final = frozenset({"subscriptions/listen"})  # answered when the subscription ends
MAX_TASKS: Final = 256  # of one caller, each with its call in memory
MAX_TASK_BYTES: Final = 16 * 1024 * 1024  # of these calls, as they were sent
TASK_GET: Final = "tasks/get"  # the answer says how the task stands; since revision 2026-07-28 with its result
TASK_RESULT: Final = "tasks/result"  # the answer is the result; revision 2025-11-25
TASK_NOTICE: Final = "notifications/tasks"  # as an answer to `tasks/get`, sent unasked


class Side(StrEnum):
    """The sender of a message."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        """The receiver."""
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


@dataclass(frozen=True, slots=True)
class Step:
    """What to send after a message: `onward` to the other side, `back` to its sender."""

    onward: tuple[dict[str, Any], ...] = ()
    back: tuple[dict[str, Any], ...] = ()


NOTHING: Final = Step()


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
        # In revision 2025-11-25 the task is within `task`, since then beside `resultType`.
        task = result if result.get("resultType") == "task" else result.get("task")
        task_id = task.get("taskId") if isinstance(task, Mapping) else None
        if not isinstance(task_id, str):
            return
        call = self._calls.setdefault(task_id, sent)
        if call is None or call.body is not sent.body:
            self._calls[task_id], self._sizes[task_id] = None, 0
        elif task_id not in self._sizes:
            self._sizes[task_id] = len(dumps(sent.body))
        while len(self._calls) > MAX_TASKS or (len(self._calls) > 1 and sum(self._sizes.values()) > MAX_TASK_BYTES):
            oldest, _ = self._calls.popitem(last=False)
            del self._sizes[oldest]

    def call_of(self, params: Mapping[str, Any]) -> Sent | None:
        """The call that began the task which `params` name; None if it is unknown, or is not one call."""
        task_id = params.get("taskId")
        return self._calls.get(task_id) if isinstance(task_id, str) else None


@dataclass(slots=True)
class _Open:
    """A forwarded call without an answer yet.

    Attributes:
        original: the id that its caller gave it.
        sent: the call that the answer is judged with: itself, or for `tasks/result` the one that began the task.
    """

    original: Id
    method: str
    sent: Sent
    until: float


@dataclass(slots=True)
class _Caller:
    """The calls of one side."""

    open: dict[str, _Open] = field(default_factory=dict)
    # original id -> forwarded id; None until policy has decided
    ids: dict[tuple[type, Id], str | None] = field(default_factory=dict)
    tokens: OrderedDict[tuple[type, Id], None] = field(default_factory=OrderedDict)
    tasks: Tasks = field(default_factory=Tasks)


@dataclass(frozen=True, slots=True)
class Memory:
    """What later messages of a client depend on."""

    stripped: set[str] = field(default_factory=set)
    tasks: Tasks = field(default_factory=Tasks)


class Link:
    """Evaluates the messages of both directions and matches answers to calls.

    Args:
        server: the name of the server, which is the namespace of its tools; None for no namespace.
        enforce: whether a changed tool is removed from the list; otherwise it is only logged.
        memory: what later messages depend on; pass one to share it between links.
    """

    def __init__(
        self,
        guard: Guard,
        context: Context,
        *,
        server: str | None,
        pins: Pins,
        clock: Callable[[], float],
        answer_seconds: float,
        enforce: bool = True,
        memory: Memory | None = None,
    ) -> None:
        self._judge = Judge(guard, context, server)
        self._server = server or "_"
        self._pins = pins
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._enforce = enforce
        memory = memory or Memory()
        self._callers = {Side.CLIENT: _Caller(tasks=memory.tasks), Side.SERVER: _Caller()}
        self._stripped = memory.stripped
        self.version: str | None = None
        """The protocol's revision, once both sides agreed on one."""

    def renew(self, context: Context) -> None:
        """Replace the context of later runs."""
        self._judge.context = context

    def is_open(self, minted: str) -> bool:
        """Whether the client's call with this forwarded id waits for an answer."""
        return minted in self._callers[Side.CLIENT].open

    @property
    def waiting(self) -> int:
        """The number of the client's calls that wait for an answer."""
        return len(self._callers[Side.CLIENT].open)

    async def receive(self, side: Side, received: Frame | Batch) -> Step:
        """Decide on a message of `side`. Cancelling this undoes it: the calls it would have answered stay open."""
        if isinstance(received, Batch) and self.version != BATCHING:
            of_this = f"Revision {self.version}" if self.version else "MCP before both sides agreed on a revision"
            message = f"{of_this} knows no batches: send one message at a time."
            return Step(back=(error_body(None, Refused(INVALID_REQUEST, "mcp.batch", message)),))
        frames = (received,) if isinstance(received, Frame) else received.frames
        decide = {Kind.CALL: self._call, Kind.ANSWER: self._answer, Kind.NOTIFICATION: self._notification}
        asked = self._callers[side.other].open
        answered = {str(frame.id): asked[str(frame.id)] for frame in frames if str(frame.id) in asked}
        steps: list[Step] = []
        try:
            for frame in frames:
                steps.append(await decide[frame.kind](side, frame))
        except BaseException:
            self._undo(side, steps, answered)
            raise
        return Step(
            onward=tuple(body for step in steps for body in step.onward),
            back=tuple(body for step in steps for body in step.back),
        )

    def _undo(self, side: Side, steps: Sequence[Step], answered: Mapping[str, _Open]) -> None:
        """Close the calls of steps that will not be sent, and reopen those whose answers will not be sent."""
        for body in (body for step in steps for body in step.onward):
            if "method" in body and str(body.get("id")) in self._callers[side].open:
                self._close(side, str(body["id"]), _server_ended())
        caller = self._callers[side.other]
        for minted, opened in answered.items():
            if caller.ids.setdefault((type(opened.original), opened.original), minted) == minted:
                caller.open[minted] = opened

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _call(self, side: Side, frame: Frame) -> Step:
        caller = self._callers[side]
        original: Id = frame.id  # type: ignore[assignment]  # a call always has an id
        key = (type(original), original)
        if key in caller.ids:
            # With this id, the caller would take the refusal for the answer to its first call.
            note("mcp.duplicate-id", side)
            return Step(back=(error_body(None, _refused("mcp.duplicate-id", "This id is that of a call in work.")),))
        if len(caller.ids) >= MAX_OPEN:
            busy = Refused(UNAVAILABLE, "mcp.busy", "Too many calls wait for an answer.", retryable=True)
            return Step(back=(error_body(original, busy),))
        caller.ids[key] = None
        minted = f"{TOOL_PREFIX}{new_ulid()}"
        try:
            if side is Side.CLIENT:
                self._check_tool(frame)
            sent = await self._judge.call({**frame.body, "id": minted})
            asked = self._of_task(caller, sent) if frame.method == TASK_RESULT else sent
        except Refused as refused:
            del caller.ids[key]
            note(refused.code, side, refused.decision_id)
            return Step(back=(refusal_body(original, frame.body, refused),))
        except BaseException:
            del caller.ids[key]
            raise
        token = _token(sent.body)
        if token is not None:
            caller.tokens[token] = None
            while len(caller.tokens) > MAX_TOKENS:
                caller.tokens.popitem(last=False)
        lasts = frame.method in _LASTING
        until = float("inf") if lasts else self._clock() + self._answer_seconds
        caller.ids[key] = minted
        caller.open[minted] = _Open(original, frame.method, asked, until)
        return Step(onward=(sent.body,))

    def _check_tool(self, frame: Frame) -> None:
        """Raise Refused for a call of a tool that was removed from the list."""
        if frame.method != "tools/call":
            return
        name = str(frame.params.get("name"))
        if self._enforce and self._pins.is_changed(self._server, name):
            raise _refused(CHANGED, "The definition of this tool changed.")
        if name in self._stripped:
            raise _refused(STRIPPED, "This tool is not offered here.")

    def _of_task(self, caller: _Caller, sent: Sent) -> Sent:
        """The call whose result `sent` asks for. Refused if it is unknown: so are the labels that its result brings."""
        call = caller.tasks.call_of(sent.body.get("params", {}))
        if call is None:
            self._refuse_unknown_task()
            return sent
        context = replace(call.context, labels=call.context.labels | sent.context.labels)
        return Sent(call.body, call.request, context)

    # -- answers -------------------------------------------------------------------------------------------------------

    async def _answer(self, side: Side, frame: Frame) -> Step:
        caller = self._callers[side.other]
        opened = caller.open.pop(frame.id, None) if isinstance(frame.id, str) else None
        if opened is None:
            note("mcp.unsolicited-answer", side)
            return NOTHING
        del caller.ids[type(opened.original), opened.original]
        try:
            body = await self._answered(side, frame, opened)
        except Refused as refused:
            note(refused.code, side, refused.decision_id)
            return Step(onward=(refusal_body(opened.original, opened.sent.body, refused),))
        return Step(onward=({**body, "id": opened.original},))

    async def _answered(self, side: Side, frame: Frame, opened: _Open) -> dict[str, Any]:
        caller, sent = self._callers[side.other], opened.sent
        lists_tools = opened.method == "tools/list" and side is Side.SERVER
        body = await apart(self._without_changed_tools, frame.body) if lists_tools else frame.body
        if opened.method == TASK_GET and "result" in body.get("result", {}):
            sent = self._of_task(caller, sent)
        if opened.method in (TASK_GET, TASK_RESULT):
            body = {**body, "id": sent.body["id"]}  # a result is matched to its call by the id
        judged = await self._judge.answer(body, sent)
        result = judged.get("result", {})
        if lists_tools:
            # Calls of tools that policy removed from the list are refused.
            before, left = _names_of_tools(body.get("result", {})), _names_of_tools(result)
            self._stripped -= left
            self._stripped |= before - left
        if opened.method != TASK_GET:
            caller.tasks.begun(result, sent)
        if opened.method == "initialize" and "result" in judged:
            if result.get("protocolVersion") not in VERSIONS:
                raise _refused("mcp.version", "The server speaks a revision of MCP that is not known here.")
            self.version = result["protocolVersion"]
        return judged

    def _without_changed_tools(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer without the tools that differ from their pins; `_meta` names those, also for policy."""
        result = body.get("result", {})
        tools = result.get("tools")
        if not isinstance(tools, list) or not all(map(_is_tool, tools)):
            return body  # not a valid list of tools: left to the adapter
        try:
            changed = self._pins.changed(self._server, tools)
        except ConfigError as error:
            raise Refused(UNAVAILABLE, error.code, error.message, retryable=True) from None
        for _ in changed:
            note(CHANGED, Side.SERVER)
        if not changed or not self._enforce:
            return body
        kept = [tool for tool in tools if tool["name"] not in changed]
        stripped = [{"name": name, "code": CHANGED} for name in sorted(changed)]
        meta = result.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), "cmf/stripped": stripped}
        return {**body, "result": {**result, "tools": kept, "_meta": meta}}

    # -- notifications -------------------------------------------------------------------------------------------------

    async def _notification(self, side: Side, frame: Frame) -> Step:
        body, cancelled = frame.body, None
        try:
            if frame.method == "notifications/cancelled":
                cancelled = self._call_to_cancel(side, frame)
                body = {**body, "params": {**frame.params, "requestId": cancelled}}
            elif frame.method == "notifications/progress":
                self._check_progress(side, frame)
            elif frame.method == TASK_NOTICE:
                return Step(onward=(await self._task_notice(side, frame),))
            sent = await self._judge.call(body)
        except Refused as refused:  # a notification has no answer
            note(refused.code, side, refused.decision_id)
            return NOTHING
        if cancelled in self._callers[side].open:  # it may have been answered while this was judged
            self._close(side, cancelled, _server_ended())
        return Step(onward=(sent.body,))

    async def _task_notice(self, side: Side, frame: Frame) -> dict[str, Any]:
        """The notification of how a task stands, after policy: what it says is what `tasks/get` would answer."""
        call = self._callers[side.other].tasks.call_of(frame.params)
        if call is None:
            self._refuse_unknown_task()
            return (await self._judge.call(frame.body)).body
        answer = {"jsonrpc": "2.0", "id": call.body["id"], "result": frame.params}
        judged = await self._judge.answer(answer, call)
        return {**frame.body, "params": judged["result"]}

    def _refuse_unknown_task(self) -> None:
        if self._enforce:
            message = "No call that is known here began this task, or more than one did."
            raise _refused("mcp.unknown-task", message)

    def _call_to_cancel(self, side: Side, frame: Frame) -> str:
        """The forwarded id of the call that the notification cancels."""
        original = frame.params.get("requestId")
        ids = self._callers[side].ids
        minted = ids.get((type(original), original)) if isinstance(original, str | int) else None
        if minted is None:
            raise _refused("mcp.nothing-to-cancel", "No call of this id is in work.")
        return minted

    def _check_progress(self, side: Side, frame: Frame) -> None:
        """Raise Refused for progress that was not requested; otherwise extend the timeout of its call."""
        caller, token = self._callers[side.other], frame.params.get("progressToken")
        key = (type(token), token)
        if not isinstance(token, str | int) or key not in caller.tokens:
            raise _refused("mcp.unknown-token", "Nobody asked for this progress.")
        for opened in caller.open.values():
            if _token(opened.sent.body) == key:
                opened.until = max(opened.until, self._clock() + self._answer_seconds)

    # -- ends ----------------------------------------------------------------------------------------------------------

    def expired(self, side: Side) -> Step:
        """For calls of `side` that were not answered in time: errors to go back to it, and notices to go onward.

        The notices tell the other side that these calls are cancelled.
        """
        now, caller = self._clock(), self._callers[side]
        late = [minted for minted, opened in caller.open.items() if opened.until <= now]
        refused = timed_out(side.other.value)
        answers, notices = [], []
        for minted in late:
            begins = caller.open[minted].method == "initialize"
            answers.append(self._close(side, minted, refused))
            if begins:
                continue  # no revision allows cancelling `initialize`
            params = {"requestId": minted, "reason": "timeout"}
            notices.append({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        return Step(onward=tuple(notices), back=tuple(answers))

    def cut(self, minted: str, why: Refused | None = None, *, side: Side = Side.CLIENT) -> Iterator[dict[str, Any]]:
        """The error for one call of `side` whose answer will not come; none if it came."""
        if minted in self._callers[side].open:
            yield self._close(side, minted, why or _server_ended())

    def ended(self) -> tuple[dict[str, Any], ...]:
        """The errors for all open calls of the client, after the server ended."""
        left = list(self._callers[Side.CLIENT].open)
        return tuple(self._close(Side.CLIENT, minted, _server_ended()) for minted in left)

    def _close(self, side: Side, minted: str, refused: Refused) -> dict[str, Any]:
        opened = self._callers[side].open.pop(minted)
        del self._callers[side].ids[type(opened.original), opened.original]
        return error_body(opened.original, refused)


def _token(body: dict[str, Any]) -> tuple[type, Id] | None:
    """The progress token of a call."""
    meta = body.get("params", {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return (type(token), token) if isinstance(token, str | int) else None


def _is_tool(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _names_of_tools(result: dict[str, Any]) -> set[str]:
    tools = result.get("tools")
    return {tool["name"] for tool in tools if _is_tool(tool)} if isinstance(tools, list) else set()


def _refused(code: str, message: str) -> Refused:
    return Refused(REFUSED, code, message, retryable=False)


def _server_ended() -> Refused:
    return Refused(CLOSED, "mcp.server-disconnected", "The server ended before it answered.", retryable=True)


def note(code: str, side: Side, decision: str | None = None) -> None:
    """Log an event about a message of `side`, without its content; `decision` is the id of the one that refused it."""
    line = {"mcp": code, "from": side.value}
    _log.info("%s", dumps(line if decision is None else {**line, "decision": decision}).decode())
