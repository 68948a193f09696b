"""Policy decisions on single MCP messages: parse, evaluate, serialise. Spec: docs/spec/mcp-proxy.md [MCPX-10] ff."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeGuard

from cmf import adapters
from cmf.errors import CmfError
from cmf.json.codec import dumps, loads_object
from cmf.json.value import replace
from cmf.message.digests import canonical_bytes
from cmf.message.ids import TOOL_PREFIX
from cmf.message.message import Part, PromptRequestPart, RequestExtension, ToolCallPart
from cmf.message.request import Request, Response
from pipeline.decisions.context import Context
from pipeline.decisions.errors import DecisionError, EmissionError, PipelineError
from pipeline.decisions.timestamps import made_at, new_ulid
from pipeline.guard import Guard
from pipeline.mcp.frames import (
    INVALID_PARAMS,
    REFUSED,
    UNAVAILABLE,
    Refused,
    frame_of,
    of_decision,
    of_unreadable,
)
from pipeline.run.emit import emit
from pipeline.run.offload import apart
from pipeline.run.outcome import Outcome, raised

FORMAT: Final = "mcp"
_WRAPPERS: Final = frozenset({"result", "content"})  # keys that servers put around a text; any other is not judged


def request_of(body: Mapping[str, Any], server: str | None) -> Request:
    """A call or notification as a request, with the server as namespace of the tools and prompts in it.

    A tool call without `arguments` gets `{}`: policy and the tool both read an object.

    Raises:
        CmfError: it is not a valid MCP message.
    """
    params = body.get("params")
    if body.get("method") == "tools/call" and isinstance(params, dict) and "arguments" not in params:
        body = {**body, "params": {**params, "arguments": {}}}
    request = adapters.get(FORMAT).from_wire_request(body)
    if server is None:
        return request

    def named(part: Part) -> Part:
        if isinstance(part, ToolCallPart):
            return replace(part, namespace=server)
        return replace(part, server_id=server) if isinstance(part, PromptRequestPart) else part

    messages = []
    for message in request.messages:
        parts = tuple(map(named, message.content))
        messages.append(message if parts == message.content else replace(message, content=parts))
    tools = tuple(replace(tool, namespace=server) for tool in request.tools)
    return replace(request, messages=tuple(messages), tools=tools)


def response_of(body: Mapping[str, Any], asked: Request | None, server: str | None) -> Response:
    """The answer to `asked` as a response, with the server as namespace of the tools it lists. Raises CmfError."""
    response = adapters.get(FORMAT).from_wire_response(body, asked)
    if server is None or not response.tools:
        return response
    return replace(response, tools=tuple(replace(tool, namespace=server) for tool in response.tools))


# -- structured content that repeats a text ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Repeated:
    """Which texts of a result its structured content repeats: the blocks they are in, and in which form."""

    blocks: tuple[int, ...]
    verbatim: tuple[bool, ...]  # each: the text as it is, else the value whose JSON it is
    key: str | None  # around them; None: one text is the JSON of the whole
    listed: bool


def unrepeated(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], Repeated | None]:
    """An answer without structured content that only repeats texts of it, and how to repeat them again.

    Servers send most results twice: as texts and as structured content. The texts are judged, and what policy leaves
    of them becomes both again (`repeat`).
    """
    result = body.get("result")
    if _is_finished_task(result):
        left, again = unrepeated(result)
        return {**body, "result": left}, again
    if not isinstance(result, dict) or "structuredContent" not in result or not isinstance(result.get("content"), list):
        return body, None
    again = _repeated(result["structuredContent"], [_text(block) for block in result["content"]])
    if again is None:
        return body, None
    return {**body, "result": {k: v for k, v in result.items() if k != "structuredContent"}}, again


def repeat(written: dict[str, Any], again: Repeated) -> dict[str, Any]:
    """The answer with what policy left of the texts as structured content; without, where one is no JSON any more."""
    result = written.get("result", {})
    if _is_finished_task(result):
        return {**written, "result": repeat(result, again)}
    texts = [_text(block) for block in result.get("content", [])]
    if again.listed and len(texts) != len(again.blocks):
        return written
    values: list[Any] = []
    for at, verbatim in zip(again.blocks, again.verbatim, strict=True):
        text = texts[at] if at < len(texts) else None
        value = text if verbatim or text is None else loads_object(text)
        if value is None:
            return written
        values.append(value)
    inner: Any = values if again.listed else values[0]
    structured = inner if again.key is None else {again.key: inner}
    return {**written, "result": {**result, "structuredContent": structured}}


def _repeated(structured: Any, texts: list[str | None]) -> Repeated | None:
    """How `structured` repeats texts, which stand for the blocks of a result; None where it says anything else."""
    key = next(iter(structured)) if isinstance(structured, dict) and len(structured) == 1 else None
    inner = structured[key] if key in _WRAPPERS else None
    if isinstance(inner, list) and inner and len(inner) == len(texts):
        forms = [_form(value, text) for value, text in zip(inner, texts, strict=True)]
        verbatim = tuple(form for form in forms if form is not None)
        return Repeated(tuple(range(len(texts))), verbatim, key, listed=True) if len(verbatim) == len(forms) else None
    for at, text in enumerate(texts):
        if isinstance(inner, str) and inner == text:
            return Repeated((at,), (True,), key, listed=False)
        if _form(structured, text) is False:
            return Repeated((at,), (False,), None, listed=False)
    return None


def _form(value: Any, text: str | None) -> bool | None:
    """Whether `text` is the value itself; False where it is its JSON, None where it says anything else.

    JSON in which the values stand in their own characters: a rule that looks for some of these finds them there.
    """
    if text is None:
        return None
    if isinstance(value, str):
        return True if value == text else None
    read = loads_object(text) if isinstance(value, dict) and "\\" not in text else None
    same = read is not None and canonical_bytes(read) == canonical_bytes(value)
    return False if same and "".join(text.split()) == "".join(dumps(value).decode().split()) else None


def _text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _is_finished_task(result: Any) -> TypeGuard[dict[str, Any]]:
    """Whether the result of its call is in it."""
    return isinstance(result, dict) and isinstance(result.get("result"), dict)


MAX_ASKED: Final = 32  # `inputRequests` in one result


@dataclass(frozen=True, slots=True)
class Sent:
    """A forwarded call, with the context for evaluating its answer."""

    body: dict[str, Any]
    request: Request
    context: Context


class Judge:
    """Evaluates single messages with a guard."""

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
            raise Refused(REFUSED, "mcp.other-message", "What was judged is another message.")
        return Sent(written, outcome.request, replace(context, labels=context.labels | outcome.labels))

    async def answer(self, body: Mapping[str, Any], asked: Sent) -> dict[str, Any]:
        """The answer of either side to a call, after policy. Raises Refused as `call` does."""
        body, repeated = await apart(unrepeated, await self._with_questions(body))
        context = replace(asked.context, history=asked.request, call_id=None)
        _, written = await self._judged(partial(response_of, body, asked.request, self._server), context)
        if not _is_same_message(written, body):
            raise Refused(REFUSED, "mcp.other-message", "What was judged is another message.")
        return written if repeated is None else await apart(repeat, written, repeated)

    async def _judged(self, read: Callable[[], Request | Response], context: Context) -> tuple[Outcome, dict[str, Any]]:
        """The outcome for what `read` returns, and the message that policy leaves of it. Raises Refused as `call`."""
        try:
            outcome = raised(await self._guard.arun(await apart(read), context=context))
            written: dict[str, Any] = await apart(emit, outcome, FORMAT)
        except DecisionError as error:
            raise of_decision(error) from None
        except EmissionError as error:
            raise Refused(UNAVAILABLE, error.code, error.message, retryable=True) from None
        except CmfError as error:
            raise of_unreadable(error) from None
        except PipelineError as error:
            raise Refused(UNAVAILABLE, error.code, "This could not be judged.", retryable=True) from None
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
            frame_of(whole)  # Refused as a message of its own would be
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
            frame_of(whole)  # Refused as a message of its own would be
            _, judged = await self._judged(partial(response_of, whole, None, None), self._context_of(whole))
            left[name] = judged.get("result", {})
        return {**body, "params": {**_object(params), "inputResponses": left}}


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
