"""Policy decisions on single MCP messages: parse, evaluate, serialise. Spec: docs/spec/mcp-proxy.md [MCPX-10] ff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cmf.errors import CmfError
from cmf.json.value import replace
from cmf.message.ids import TOOL_PREFIX
from cmf.message.message import RequestExtension
from cmf.message.request import Request, Response
from pipeline.decisions.context import Context
from pipeline.decisions.errors import DecisionError, EmissionError, PipelineError
from pipeline.decisions.ids import made_at, new_ulid
from pipeline.guard import Guard
from pipeline.mcp import refusals
from pipeline.mcp.frames import INVALID_PARAMS, FrameError, frame_of
from pipeline.mcp.reading import FORMAT, repeat, request_of, response_of, unrepeated
from pipeline.mcp.refusals import Refused, of_decision, of_unreadable
from pipeline.run.emit import emit
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised

MAX_ASKED: Final = 32  # `inputRequests` in one result


@dataclass(frozen=True, slots=True)
class Sent:
    """A forwarded call, with the context for evaluating its answer."""

    body: dict[str, Any]
    request: Request
    context: Context


class Judge:
    """Evaluates single messages with a guard.

    Args:
        context: the context of every run.
        server: the namespace of the tools and prompts.
    """

    def __init__(self, guard: Guard, context: Context, server: str | None) -> None:
        self._guard = guard
        self.context = context
        self._server = server

    async def call(self, body: Mapping[str, Any]) -> Sent:
        """A call or notification of either side, after policy.

        Raises:
            Refused: policy refused it, it is not a valid MCP message, or it cannot be serialised after a change.
        """
        body = await self._with_answers(body)
        context = self._context_of(body)
        outcome, written = await self._judged(partial(request_of, body, self._server), context)
        if outcome.request is None or not _is_same_message(written, body):
            raise Refused(refusals.REFUSED, "mcp.other-message", "What was judged is another message.")
        return Sent(written, outcome.request, replace(context, labels=context.labels | outcome.labels))

    async def answer(self, body: Mapping[str, Any], asked: Sent) -> dict[str, Any]:
        """The answer of either side to a call, after policy. Raises Refused as `call` does."""
        body, repeated = await apart(unrepeated, await self._with_questions(body))
        context = replace(asked.context, history=asked.request, call_id=None)
        _, written = await self._judged(partial(response_of, body, asked.request, self._server), context)
        if not _is_same_message(written, body):
            raise Refused(refusals.REFUSED, "mcp.other-message", "What was judged is another message.")
        return written if repeated is None else await apart(repeat, written, repeated)

    async def _judged(self, read: Callable[[], Request | Response], context: Context) -> tuple[Outcome, dict[str, Any]]:
        """The outcome for what `read` returns, and the message that policy leaves of it. Raises Refused as `call`."""
        try:
            outcome = raised(await self._guard.arun(await apart(read), context=context))
            written: dict[str, Any] = await apart(emit, outcome, FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        return outcome, written

    def _context_of(self, body: Mapping[str, Any]) -> Context:
        ulid = new_ulid()
        own = RequestExtension(environment=self.context.environment, request_id=f"req_{ulid}", timestamp=made_at(ulid))
        minted = body.get("id")
        return replace(self.context, request=own, call_id=minted if isinstance(minted, str) else None)

    # -- questions within a result, and answers within a call (revision 2026-07-28) ------------------------------------

    async def _with_questions(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A result with each of its `inputRequests`, which are calls to the client, after policy."""
        result = body.get("result")
        questions = result.get("inputRequests") if isinstance(result, Mapping) else None
        if not questions:
            return body
        asked = {}
        for name, question in _bounded(questions):
            whole = {**_object(question), "jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{new_ulid()}"}
            _check_message(whole)
            left = (await self.call(whole)).body
            asked[name] = {key: item for key, item in left.items() if key in ("method", "params")}
        return {**body, "result": {**_object(result), "inputRequests": asked}}

    async def _with_answers(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A call with each of its `inputResponses`, which answer `inputRequests` of the server, after policy."""
        params = body.get("params")
        answers = params.get("inputResponses") if isinstance(params, Mapping) else None
        if not answers:
            return body
        left = {}
        for name, answer in _bounded(answers):
            whole = {"jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{new_ulid()}", "result": _object(answer)}
            _check_message(whole)
            _, judged = await self._judged(partial(response_of, whole, None, None), self._context_of(whole))
            left[name] = judged.get("result", {})
        return {**body, "params": {**_object(params), "inputResponses": left}}


def _refusal_of(error: CmfError | PipelineError) -> Refused:
    if isinstance(error, DecisionError):
        return of_decision(error)
    if isinstance(error, EmissionError):
        return Refused(refusals.UNAVAILABLE, error.code, error.message, retryable=True)
    if isinstance(error, CmfError):
        return of_unreadable(error)
    return Refused(refusals.UNAVAILABLE, error.code, "This could not be judged.", retryable=True)


def _is_same_message(written: Any, body: Mapping[str, Any]) -> bool:
    """Whether policy left the method and the id as they were."""
    return isinstance(written, dict) and all(written.get(key) == body.get(key) for key in ("jsonrpc", "id", "method"))


def _bounded(items: Any) -> list[tuple[str, Any]]:
    if not isinstance(items, Mapping) or len(items) > MAX_ASKED:
        raise Refused(INVALID_PARAMS, "mcp.invalid", f"Questions are an object of up to {MAX_ASKED}.")
    return list(items.items())


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(INVALID_PARAMS, "mcp.invalid", "This is no object.")
    return dict(value)


def _check_message(body: dict[str, Any]) -> None:
    """Raise Refused if this would be refused as a message of its own."""
    try:
        frame_of(body)
    except FrameError as error:
        raise Refused(error.number, error.code, error.message) from None
