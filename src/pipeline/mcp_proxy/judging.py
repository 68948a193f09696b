"""One message of MCP before policy: read, judged, written anew. Spec: docs/spec/mcp-proxy.md [MCPX-10] ff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cmf.errors import CmfError
from cmf.extensions import RequestExtension
from cmf.identity import TOOL_PREFIX
from cmf.request import Request
from cmf.value import replace
from pipeline.context import Context
from pipeline.emission import emit
from pipeline.errors import DecisionError, EmissionError, PipelineError
from pipeline.guard import Guard, raised
from pipeline.mcp_proxy import refusals
from pipeline.mcp_proxy.frames import INVALID_PARAMS, FrameError, frame_of
from pipeline.mcp_proxy.reading import FORMAT, repeat, request_of, response_of, unrepeated
from pipeline.mcp_proxy.refusals import Refused, of_decision, of_unreadable
from pipeline.ulids import new_ulid

MAX_ASKED: Final = 32  # questions of a server within one result


@dataclass(frozen=True, slots=True)
class Sent:
    """A call as it goes on, with what is known for judging its answer."""

    body: dict[str, Any]
    request: Request
    context: Context


class Judge:
    """Asks the guard about single messages.

    Args:
        context: the facts of every run.
        server: the namespace of its tools and prompts.
    """

    def __init__(self, guard: Guard, context: Context, server: str | None) -> None:
        self._guard = guard
        self.context = context
        self._server = server

    async def call(self, body: Mapping[str, Any]) -> Sent:
        """A call or notification of either side, as policy leaves it.

        Raises:
            Refused: policy lets it not through; it is none of MCP's, or cannot be said any more.
        """
        body = await self._with_answers(body)
        context = self._context_of(body)
        try:
            request = request_of(body, self._server)
            outcome = raised(await self._guard.arun(request, context=context))
            sent = outcome.request
            written = emit(outcome, FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        if sent is None or not _alike(written, body):
            raise Refused(refusals.REFUSED, "mcp.other-message", "What was judged is another message.")
        return Sent(written, sent, replace(context, labels=context.labels | outcome.labels))

    async def answer(self, body: Mapping[str, Any], asked: Sent) -> dict[str, Any]:
        """The answer to a call, of either side, as policy leaves it. Raises Refused as `call` does."""
        body, repeated = unrepeated(await self._with_questions(body))
        context = replace(asked.context, history=asked.request, call_id=None)
        try:
            response = response_of(body, asked.request, self._server)
            outcome = raised(await self._guard.arun(response, context=context))
            written: dict[str, Any] = emit(outcome, FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        if not _alike(written, body):
            raise Refused(refusals.REFUSED, "mcp.other-message", "What was judged is another message.")
        return written if repeated is None else repeat(written, *repeated)

    def _context_of(self, body: Mapping[str, Any]) -> Context:
        own = RequestExtension(environment=self.context.environment, request_id=f"req_{new_ulid()}")
        minted = body.get("id")
        return replace(self.context, request=own, call_id=minted if isinstance(minted, str) else None)

    # -- questions within a result, and answers within a call (revision 2026-07-28) ------------------------------------

    async def _with_questions(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A result that asks something of the client, with each question as policy leaves it."""
        result = body.get("result")
        questions = result.get("inputRequests") if isinstance(result, Mapping) else None
        if not questions:
            return body
        asked = {}
        for name, question in _bounded(questions):
            whole = {**_object(question), "jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{new_ulid()}"}
            _check_question(whole)
            left = (await self.call(whole)).body
            asked[name] = {key: item for key, item in left.items() if key in ("method", "params")}
        return {**body, "result": {**_object(result), "inputRequests": asked}}

    async def _with_answers(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A call that brings answers to what the server asked, with each answer as policy leaves it."""
        params = body.get("params")
        answers = params.get("inputResponses") if isinstance(params, Mapping) else None
        if not answers:
            return body
        left = {}
        for name, answer in _bounded(answers):
            whole = {"jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{new_ulid()}", "result": _object(answer)}
            left[name] = (await self._judged_alone(whole)).get("result", {})
        return {**body, "params": {**_object(params), "inputResponses": left}}

    async def _judged_alone(self, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = response_of(body, None, None)
            written = emit(raised(await self._guard.arun(response, context=self._context_of(body))), FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        result: dict[str, Any] = written
        return result


def _refusal_of(error: CmfError | PipelineError) -> Refused:
    if isinstance(error, DecisionError):
        return of_decision(error)
    if isinstance(error, EmissionError):
        return Refused(refusals.UNAVAILABLE, error.code, error.message, retryable=True)
    if isinstance(error, CmfError):
        return of_unreadable(error)
    return Refused(refusals.UNAVAILABLE, error.code, "This could not be judged.", retryable=True)


def _alike(written: Any, body: Mapping[str, Any]) -> bool:
    """Whether what goes out is the message that came: of this method and id."""
    return isinstance(written, dict) and all(written.get(key) == body.get(key) for key in ("jsonrpc", "id", "method"))


def _bounded(items: Any) -> list[tuple[str, Any]]:
    if not isinstance(items, Mapping) or len(items) > MAX_ASKED:
        raise Refused(INVALID_PARAMS, "mcp.invalid", f"Questions are an object of up to {MAX_ASKED}.")
    return list(items.items())


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise Refused(INVALID_PARAMS, "mcp.invalid", "This is no object.")
    return dict(value)


def _check_question(body: dict[str, Any]) -> None:
    """Refused for what is no call."""
    try:
        frame_of(body)
    except FrameError as error:
        raise Refused(error.number, error.code, error.message) from None


__all__ = ["Judge", "Sent"]
