"""A connection between a client and a server of MCP: every message is judged before it goes on. Spec: mcp-proxy.md.

No bytes are read or written here: a transport gives what it heard to `hear`, and sends what comes of it. One link
serves one client and one server, whatever carries them.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from cmf.identity import TOOL_PREFIX
from pipeline.context import Context
from pipeline.errors import ConfigError
from pipeline.guard import Guard
from pipeline.mcp_proxy import refusals
from pipeline.mcp_proxy.frames import INVALID_REQUEST, Batch, Frame, Id, Kind
from pipeline.mcp_proxy.judging import Judge, Sent
from pipeline.mcp_proxy.pins import CHANGED, STRIPPED, Pins
from pipeline.mcp_proxy.refusals import Refused, error_body, refusal_body
from pipeline.ulids import new_ulid

_log: Final = logging.getLogger("pipeline.mcp")
ALONE: Final = "2026-07-28"  # the one revision in which each request stands alone
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", ALONE)
BATCHING: Final = "2025-03-26"  # the one revision that knows batches
MAX_OPEN: Final = 1024  # calls of one side that wait for an answer
MAX_TOKENS: Final = 4096
_LASTING: Final = frozenset({"subscriptions/listen"})  # answered when the subscription ends


class Side(StrEnum):
    """Who said something."""

    CLIENT = "client"
    SERVER = "server"

    @property
    def other(self) -> Side:
        """Who hears it."""
        return Side.SERVER if self is Side.CLIENT else Side.CLIENT


@dataclass(frozen=True, slots=True)
class Step:
    """What comes of a message: what goes on to the other side, and what goes back to whoever sent it."""

    onward: tuple[dict[str, Any], ...] = ()
    back: tuple[dict[str, Any], ...] = ()


NOTHING: Final = Step()


@dataclass(slots=True)
class _Open:
    """A call that went on and was not answered yet, under the id that it had."""

    original: Id
    method: str
    sent: Sent
    until: float


@dataclass(slots=True)
class _Caller:
    """What is known of one side as one that calls."""

    open: dict[str, _Open] = field(default_factory=dict)
    ids: dict[tuple[type, Id], str | None] = field(default_factory=dict)  # of calls in work; None while it is judged
    tokens: OrderedDict[tuple[type, Id], None] = field(default_factory=OrderedDict)


class Link:
    """Judges both directions.

    Args:
        guard: by what policies.
        context: who the client is, and in which session: of every run.
        server: what the server is called: the namespace of its tools, None for none.
        pins: what its tools were.
        clock: seconds, for what is not answered.
        answer_seconds: how long a call may stay without an answer or a sign of progress.
        enforce: whether a tool that changed is taken off the list, and not only noted.
        stripped: where it keeps which tools policy took off the list; by default in itself.
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
        stripped: set[str] | None = None,
    ) -> None:
        self._judge = Judge(guard, context, server)
        self._server = server or "_"
        self._pins = pins
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._enforce = enforce
        self._callers = {side: _Caller() for side in Side}
        self._stripped = set() if stripped is None else stripped
        self.version: str | None = None
        """The protocol's revision, once both sides agreed on one."""

    def renew(self, context: Context) -> None:
        """What is known of the client from now on."""
        self._judge.context = context

    def is_open(self, minted: str) -> bool:
        """Whether this call of the client waits for an answer."""
        return minted in self._callers[Side.CLIENT].open

    @property
    def waiting(self) -> int:
        """How many calls of the client wait for an answer."""
        return len(self._callers[Side.CLIENT].open)

    async def hear(self, side: Side, heard: Frame | Batch) -> Step:
        """What comes of what `side` said. If this is cancelled, nothing does: what was asked before stays open."""
        if isinstance(heard, Batch) and self.version != BATCHING:
            return Step(back=(error_body(None, _batch(self.version)),))
        frames = (heard,) if isinstance(heard, Frame) else heard.frames
        asked = self._callers[side.other].open
        answered = {str(frame.id): asked[str(frame.id)] for frame in frames if str(frame.id) in asked}
        steps: list[Step] = []
        try:
            for frame in frames:
                steps.append(await self._hear(side, frame))
        except BaseException:
            self._undo(side, steps, answered)
            raise
        return Step(
            onward=tuple(body for step in steps for body in step.onward),
            back=tuple(body for step in steps for body in step.back),
        )

    async def _hear(self, side: Side, frame: Frame) -> Step:
        if frame.kind is Kind.CALL:
            return await self._call(side, frame)
        if frame.kind is Kind.ANSWER:
            return await self._answer(side, frame)
        return await self._notification(side, frame)

    def _undo(self, side: Side, steps: Sequence[Step], answered: Mapping[str, _Open]) -> None:
        """Close the calls of steps that nobody hears of, and reopen those that were answered: their callers wait."""
        for body in (body for step in steps for body in step.onward):
            if "method" in body and str(body.get("id")) in self._callers[side].open:
                self._closed(side, str(body["id"]), _gone())
        caller = self._callers[side.other]
        for minted, opened in answered.items():
            if caller.ids.setdefault((type(opened.original), opened.original), minted) == minted:
                caller.open[minted] = opened

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _call(self, side: Side, frame: Frame) -> Step:
        caller = self._callers[side]
        original: Id = frame.id  # type: ignore[assignment]  # a call has one
        key = (type(original), original)
        if key in caller.ids:
            # Under its own id the caller would take the refusal for the answer to the first.
            note("mcp.duplicate-id", side)
            return Step(back=(error_body(None, _refused("mcp.duplicate-id", "This id is that of a call in work.")),))
        if len(caller.ids) >= MAX_OPEN:
            busy = Refused(refusals.UNAVAILABLE, "mcp.busy", "Too many calls wait for an answer.", retryable=True)
            return Step(back=(error_body(original, busy),))
        caller.ids[key] = None
        minted = f"{TOOL_PREFIX}{new_ulid()}"
        try:
            if side is Side.CLIENT:
                self._check_tool(frame)
            sent = await self._judge.call({**frame.body, "id": minted})
        except Refused as refused:
            del caller.ids[key]
            note(refused.code, side)
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
        caller.open[minted] = _Open(original, frame.method, sent, until)
        return Step(onward=(sent.body,))

    def _check_tool(self, frame: Frame) -> None:
        """Refused where the call is of a tool that was taken off the list."""
        if frame.method != "tools/call":
            return
        name = str(frame.params.get("name"))
        if self._enforce and self._pins.is_changed(self._server, name):
            raise _refused(CHANGED, "The definition of this tool changed.")
        if name in self._stripped:
            raise _refused(STRIPPED, "This tool is not offered here.")

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
            note(refused.code, side)
            return Step(onward=(refusal_body(opened.original, opened.sent.body, refused),))
        return Step(onward=({**body, "id": opened.original},))

    async def _answered(self, side: Side, frame: Frame, opened: _Open) -> dict[str, Any]:
        lists_tools = opened.method == "tools/list" and side is Side.SERVER
        body = self._unchanged(frame.body) if lists_tools else frame.body
        judged = await self._judge.answer(body, opened.sent)
        result = judged.get("result", {})
        if lists_tools:
            self._remember(body, result)
        if opened.method == "initialize" and "result" in judged:
            if result.get("protocolVersion") not in VERSIONS:
                raise _refused("mcp.version", "The server speaks a revision of MCP that is not known here.")
            self.version = result["protocolVersion"]
        return judged

    def _unchanged(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer without the tools whose definition is not the one that is pinned; it names them, to policy too."""
        result = body.get("result", {})
        tools = result.get("tools")
        if not isinstance(tools, list) or not all(map(_is_tool, tools)):
            return body  # no list of tools: the adapter says so, or nothing of it is known
        try:
            changed = self._pins.changed(self._server, tools)
        except ConfigError as error:
            raise Refused(refusals.UNAVAILABLE, error.code, error.message, retryable=True) from None
        for _ in changed:
            note(CHANGED, Side.SERVER)
        if not changed or not self._enforce:
            return body
        kept = [tool for tool in tools if tool["name"] not in changed]
        told = [{"name": name, "code": CHANGED} for name in sorted(changed)]
        meta = result.get("_meta")
        meta = {**(meta if isinstance(meta, dict) else {}), "cmf/stripped": told}
        return {**body, "result": {**result, "tools": kept, "_meta": meta}}

    def _remember(self, offered: dict[str, Any], result: dict[str, Any]) -> None:
        """Which tools policy took off the list, so that they are not called either."""
        before = {tool["name"] for tool in _tools(offered.get("result", {}))}
        left = {tool["name"] for tool in _tools(result)}
        self._stripped -= left
        self._stripped |= before - left

    # -- notifications -------------------------------------------------------------------------------------------------

    async def _notification(self, side: Side, frame: Frame) -> Step:
        body = frame.body
        try:
            if frame.method == "notifications/cancelled":
                body = self._cancelled(side, frame)
            elif frame.method == "notifications/progress":
                self._check_progress(side, frame)
            sent = await self._judge.call(body)
        except Refused as refused:  # nobody waits for an answer to it
            note(refused.code, side)
            return NOTHING
        return Step(onward=(sent.body,))

    def _cancelled(self, side: Side, frame: Frame) -> dict[str, Any]:
        """The notification under the id that the other side knows; the call is no longer open."""
        caller, original = self._callers[side], frame.params.get("requestId")
        key = (type(original), original) if isinstance(original, str | int) else None
        minted = caller.ids.get(key) if key is not None else None
        if key is None or minted is None:
            raise _refused("mcp.nothing-to-cancel", "No call of this id is in work.")
        del caller.open[minted]
        del caller.ids[key]
        return {**frame.body, "params": {**frame.params, "requestId": minted}}

    def _check_progress(self, side: Side, frame: Frame) -> None:
        """Refused for progress that nobody asked for; else what it is about gets more time."""
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
        refused = refusals.too_late(side.other.value)
        answers, notices = [], []
        for minted in late:
            begins = caller.open[minted].method == "initialize"
            answers.append(self._closed(side, minted, refused))
            if begins:
                continue  # which no revision lets anybody cancel
            params = {"requestId": minted, "reason": "timeout"}
            notices.append({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        return Step(onward=tuple(notices), back=tuple(answers))

    def cut(self, minted: str, why: Refused | None = None, *, side: Side = Side.CLIENT) -> Iterator[dict[str, Any]]:
        """The error for one call of `side` whose answer will not come; nothing where it came."""
        if minted in self._callers[side].open:
            yield self._closed(side, minted, why or _gone())

    def ended(self) -> tuple[dict[str, Any], ...]:
        """The errors for all calls of the client that are open, where the server is gone."""
        return tuple(self._closed(Side.CLIENT, minted, _gone()) for minted in list(self._callers[Side.CLIENT].open))

    def _closed(self, side: Side, minted: str, refused: Refused) -> dict[str, Any]:
        opened = self._callers[side].open.pop(minted)
        del self._callers[side].ids[type(opened.original), opened.original]
        return error_body(opened.original, refused)


def _token(body: dict[str, Any]) -> tuple[type, Id] | None:
    """The token under which the call asks for progress."""
    meta = body.get("params", {}).get("_meta")
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return (type(token), token) if isinstance(token, str | int) else None


def _tools(result: dict[str, Any]) -> list[dict[str, Any]]:
    tools = result.get("tools")
    return [one for one in tools if _is_tool(one)] if isinstance(tools, list) else []


def _is_tool(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str)


def _refused(code: str, message: str) -> Refused:
    return Refused(refusals.REFUSED, code, message, retryable=False)


def _batch(version: str | None) -> Refused:
    which = f"Revision {version}" if version is not None else "MCP before both sides agreed on a revision"
    return Refused(INVALID_REQUEST, "mcp.batch", f"{which} knows no batches: send one message at a time.")


def _gone() -> Refused:
    return Refused(refusals.CLOSED, "mcp.server-gone", "The server ended before it answered.", retryable=True)


def note(code: str, side: Side) -> None:
    """Have the log say what became of something that `side` said; no word of it is quoted."""
    _log.info('{"mcp":"%s","from":"%s"}', code, side.value)


__all__ = ["ALONE", "VERSIONS", "Link", "Side", "Step", "note"]
