"""One message of MCP before policy: read, judged, written anew. Spec: docs/spec/mcp-proxy.md [MCPX-10] ff."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ulid import ULID

from cmf import adapters
from cmf.codec import dumps, loads_object
from cmf.content import Part, PromptRequestPart, ToolCallPart
from cmf.digests import canonical_bytes
from cmf.errors import CmfError
from cmf.extensions import RequestExtension
from cmf.identity import TOOL_PREFIX
from cmf.message import Message
from cmf.request import Request, Response
from cmf.value import replace
from pipeline.context import Context
from pipeline.emission import emit
from pipeline.errors import DecisionError, EmissionError, PipelineError
from pipeline.guard import Guard, raised
from pipeline.mcp_proxy import refusals
from pipeline.mcp_proxy.frames import INVALID_PARAMS, FrameError, frame_of
from pipeline.mcp_proxy.refusals import Refused, of_decision, of_unreadable

FORMAT: Final = "mcp"
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
        self._adapter = adapters.get(FORMAT)

    async def call(self, body: Mapping[str, Any]) -> Sent:
        """A call or notification of either side, as policy leaves it.

        Raises:
            Refused: policy lets it not through; it is none of MCP's, or cannot be said any more.
        """
        body = _with_arguments(await self._with_answers(body))
        context = self._context_of(body)
        try:
            request = self._named(self._adapter.from_wire_request(body))
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
        body, repeated = _unrepeated(await self._with_questions(body))
        context = replace(asked.context, history=asked.request, call_id=None)
        try:
            response = self._offered(self._adapter.from_wire_response(body, asked.request))
            outcome = raised(await self._guard.arun(response, context=context))
            written: dict[str, Any] = emit(outcome, FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        if not _alike(written, body):
            raise Refused(refusals.REFUSED, "mcp.other-message", "What was judged is another message.")
        return written if repeated is None else _repeated(written, *repeated)

    def _context_of(self, body: Mapping[str, Any]) -> Context:
        own = RequestExtension(environment=self.context.environment, request_id=f"req_{ULID()}")
        minted = body.get("id")
        return replace(self.context, request=own, call_id=minted if isinstance(minted, str) else None)

    # -- names ---------------------------------------------------------------------------------------------------------

    def _named(self, request: Request) -> Request:
        """The request with the server's name at the tools and prompts that it names."""
        if self._server is None:
            return request
        return replace(
            request,
            messages=tuple(self._placed(message) for message in request.messages),
            tools=tuple(replace(tool, namespace=self._server) for tool in request.tools),
        )

    def _placed(self, message: Message) -> Message:
        parts = tuple(self._part(part) for part in message.content)
        return message if parts == message.content else replace(message, content=parts)

    def _part(self, part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            return replace(part, namespace=self._server)
        if isinstance(part, PromptRequestPart):
            return replace(part, server_id=self._server)
        return part

    def _offered(self, response: Response) -> Response:
        """The response with the server's name at the tools that it lists."""
        if self._server is None or not response.tools:
            return response
        return replace(response, tools=tuple(replace(tool, namespace=self._server) for tool in response.tools))

    # -- questions within a result, and answers within a call (revision 2026-07-28) ------------------------------------

    async def _with_questions(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """A result that asks something of the client, with each question as policy leaves it."""
        result = body.get("result")
        questions = result.get("inputRequests") if isinstance(result, Mapping) else None
        if not questions:
            return body
        asked = {}
        for name, question in _bounded(questions):
            whole = {**_object(question), "jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{ULID()}"}
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
            whole = {"jsonrpc": "2.0", "id": f"{TOOL_PREFIX}{ULID()}", "result": _object(answer)}
            left[name] = (await self._judged_alone(whole)).get("result", {})
        return {**body, "params": {**_object(params), "inputResponses": left}}

    async def _judged_alone(self, body: Mapping[str, Any]) -> dict[str, Any]:
        try:
            response = self._adapter.from_wire_response(body)
            written = emit(raised(await self._guard.arun(response, context=self._context_of(body))), FORMAT)
        except (CmfError, PipelineError) as error:
            raise _refusal_of(error) from None
        result: dict[str, Any] = written
        return result


# -- structured content that says a text once more ---------------------------------------------------------------------


def _unrepeated(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[int, bool] | None]:
    """An answer without structured content that only repeats a text of it; the text's place, and whether it is wrapped.

    Servers say most results twice. The text is judged, and what policy leaves of it is said again.
    """
    result = body.get("result")
    if not isinstance(result, dict) or "structuredContent" not in result or not isinstance(result.get("content"), list):
        return body, None
    structured, left = result["structuredContent"], {k: v for k, v in result.items() if k != "structuredContent"}
    for at, block in enumerate(result["content"]):
        text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
        if isinstance(text, str):
            for wrapped in (True, False):
                same = _same(_structured(text, wrapped=wrapped), structured)
                if same and (wrapped or _is_verbatim(text, structured)):
                    return {**body, "result": left}, (at, wrapped)
    return body, None


def _repeated(written: dict[str, Any], at: int, wrapped: bool) -> dict[str, Any]:
    """The answer with what policy left of the text as structured content; without, where it is no JSON any more."""
    result = written.get("result", {})
    blocks = result.get("content", [])
    block = blocks[at] if at < len(blocks) else {}
    structured = _structured(block["text"], wrapped=wrapped) if block.get("type") == "text" else None
    return written if structured is None else {**written, "result": {**result, "structuredContent": structured}}


def _structured(text: str, *, wrapped: bool) -> dict[str, Any] | None:
    return {"result": text} if wrapped else loads_object(text)


def _same(left: Any, right: Any) -> bool:
    return left is not None and canonical_bytes(left) == canonical_bytes(right)


def _is_verbatim(text: str, structured: Any) -> bool:
    """Whether the text has the values in their own characters: a rule that looks for some of these finds them there."""
    return "\\" not in text and "".join(text.split()) == "".join(dumps(structured).decode().split())


def _refusal_of(error: CmfError | PipelineError) -> Refused:
    if isinstance(error, DecisionError):
        return of_decision(error)
    if isinstance(error, EmissionError):
        return Refused(refusals.UNAVAILABLE, error.code, error.message, retryable=True)
    if isinstance(error, CmfError):
        return of_unreadable(error)
    return Refused(refusals.UNAVAILABLE, error.code, "This could not be judged.", retryable=True)


def _with_arguments(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A call of a tool without arguments as one with none: policy reads an object, and so does the tool."""
    params = body.get("params")
    if body.get("method") != "tools/call" or not isinstance(params, dict) or "arguments" in params:
        return body
    return {**body, "params": {**params, "arguments": {}}}


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
