"""LangChain: judges every model request of an agent, and every response before the agent acts on it.

agent = create_agent(model, tools, middleware=[..., middleware(guard)])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from cmf import adapters
from cmf.errors import CmfError
from cmf.message.request import Request, Response
from pipeline.decisions.decision import Action
from pipeline.decisions.errors import CallError, ConfigError, needs
from pipeline.guard import Guard
from pipeline.integrations.judged_calls import (
    ajudged_call,
    as_json,
    as_settings,
    cannot_be_judged,
    checked,
    judged_call,
    kept_tools,
    merged_fields,
)
from pipeline.run.emit import emit
from pipeline.run.outcome import Outcome

if TYPE_CHECKING:
    from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse

_FORMAT: Final = "openai_chat"
_NO_STREAM: Final = "nostream"  # LangGraph's tag that keeps a model's tokens and messages from being streamed


def middleware(guard: Guard) -> AgentMiddleware[Any, Any, Any]:
    """A middleware that judges all of an agent's model calls; for `create_agent(middleware=[…])`.

    Put it last, so that what other middleware adds to a request is judged, and none sees an unjudged response. Edits
    apply to what the model receives; the user's messages in the graph's state stay as they were.

    Raises:
        ConfigError: no guard, or the package is not installed.

    Raises (in the agent):
        Denied, ApprovalRequired, PolicyUnavailable: the request is refused, and the model was not called; or its
            response is.
        CallError: the request or the response contains something that cannot be judged.
    """
    with needs("langchain"):
        from langchain.agents.middleware.types import AgentMiddleware
    checked(guard)

    class CmfMiddleware(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Callable[[Any], ModelResponse[Any]]) -> ModelResponse[Any]:
            asked = _ModelCall(request)

            def ask(admitted: Outcome) -> tuple[Response, ModelResponse[Any]]:
                answer = handler(asked.after_policy(admitted))
                return asked.answered(answer, admitted), answer

            return _released(*judged_call(guard, asked.request, ask))

        async def awrap_model_call(
            self, request: Any, handler: Callable[[Any], Awaitable[ModelResponse[Any]]]
        ) -> ModelResponse[Any]:
            asked = _ModelCall(request)

            async def ask(admitted: Outcome) -> tuple[Response, ModelResponse[Any]]:
                answer = await handler(asked.after_policy(admitted))
                return asked.answered(answer, admitted), answer

            return _released(*(await ajudged_call(guard, asked.request, ask)))

    return CmfMiddleware()


class _ModelCall:
    """One model request in chat format."""

    def __init__(self, request: ModelRequest[Any]) -> None:
        from langchain_core.messages import convert_to_openai_messages
        from pydantic import TypeAdapter

        self._request = request
        self._adapter = adapters.get(_FORMAT)
        name = getattr(request.model, "model_name", None) or getattr(request.model, "model", None)
        self._model = f"{request.model._llm_type}:{name if isinstance(name, str) else type(request.model).__name__}"
        conversation = [*([request.system_message] if request.system_message is not None else []), *request.messages]
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [convert_to_openai_messages(message) for message in conversation],
            **merged_fields(request.model_settings),
        }
        tools = [_wire_tool(tool) for tool in request.tools]
        if tools:
            body["tools"] = tools
        settings: dict[str, Any] = {"model_settings": as_settings(request.model_settings)}
        choice = request.tool_choice
        if isinstance(choice, str) and choice not in ("auto", "none", "required"):
            choice = "required" if choice == "any" else {"type": "function", "function": {"name": choice}}
        if choice is not None:
            body["tool_choice"] = choice
        if request.response_format is not None:
            schema: Any = getattr(request.response_format, "schema", request.response_format)
            settings["response_format"] = schema if isinstance(schema, dict) else TypeAdapter(schema).json_schema()
        self.request: Request = self._adapter.from_wire_request(
            as_json({**body, "settings": settings}), model=self._model
        )

    def after_policy(self, admitted: Outcome) -> ModelRequest[Any]:
        """The request after policy, for a model with streaming turned off."""
        from langchain_core.messages import SystemMessage, convert_to_messages

        left = kept_tools(admitted, self.request.tools)
        body = emit(admitted, _FORMAT)
        messages = convert_to_messages(body["messages"])
        leads = bool(messages) and self._request.system_message is not None and isinstance(messages[0], SystemMessage)
        given: dict[str, Any] = {
            "model": _without_streaming(self._request.model),
            "system_message": messages[0] if leads else None,
            "messages": messages[1:] if leads else messages,
            "tools": [tool for tool, is_left in zip(self._request.tools, left, strict=True) if is_left],
        }
        return self._request.override(**given)

    def answered(self, answer: ModelResponse[Any], admitted: Outcome) -> Response:
        """The model's response in chat format."""
        from langchain_core.messages import AIMessage, convert_to_openai_messages

        answers = [message for message in answer.result if isinstance(message, AIMessage)]
        if len(answers) != 1:
            raise cannot_be_judged("a response that is not exactly one message")
        if answers[0].invalid_tool_calls:
            raise cannot_be_judged("a tool call that could not be parsed")
        reason = "tool_calls" if answers[0].tool_calls else "stop"
        choice = {"index": 0, "message": convert_to_openai_messages(answers[0]), "finish_reason": reason}
        body: dict[str, Any] = {"object": "chat.completion", "model": self._model, "choices": [choice]}
        beside: dict[str, Any] = {"id": answers[0].id, "usage_metadata": answers[0].usage_metadata}
        body |= {name: item for name, item in beside.items() if item is not None}
        return self._adapter.from_wire_response(as_json(body), admitted.request)


def _released(outcome: Outcome, answer: ModelResponse[Any]) -> ModelResponse[Any]:
    """The response after policy, without anything else from the model."""
    from langchain.agents.middleware.types import ModelResponse
    from langchain_core.messages import AIMessage, convert_to_messages

    body = emit(outcome, _FORMAT)
    changed = outcome.decision.action is Action.FORWARD_MODIFIED
    if changed and (answer.structured_response is not None or len(answer.result) > 1):
        hint = "have the rule refuse instead, or request text"
        raise CallError("policy changed a structured response", code="integration.structured", hint=hint)
    (judged,) = convert_to_messages([body["choices"][0]["message"]])
    own = next(message for message in answer.result if isinstance(message, AIMessage))
    released = AIMessage(
        content=judged.content,
        tool_calls=getattr(judged, "tool_calls", []),
        id=own.id,
        usage_metadata=own.usage_metadata,
    )
    others = [released if message is own else message for message in answer.result]
    return ModelResponse(result=others, structured_response=answer.structured_response)


def _without_streaming(model: Any) -> Any:
    """The model with streaming turned off, so nothing is released unjudged; ConfigError if that is not possible."""
    from langchain_core.language_models import BaseChatModel

    if not isinstance(model, BaseChatModel):
        hint = "give the agent the chat model itself, not a bound one"
        raise ConfigError("this model could stream unjudged", code="integration.model", hint=hint)
    tags = [*(model.tags or []), _NO_STREAM]
    return model.model_copy(update={"disable_streaming": True, "tags": tags})


def _wire_tool(tool: Any) -> Any:
    """A tool in chat format, with whatever a model may get of it beside that.

    A provider's own tool stays as it is: LangChain would make a function of it.
    """
    from langchain_core.utils.function_calling import convert_to_openai_tool

    if not isinstance(tool, dict):
        extras = getattr(tool, "extras", None)
        return {**convert_to_openai_tool(tool), **({"extras": extras} if extras else {})}
    is_named = "function" in tool or tool.get("type") not in (None, "object", "custom")
    if is_named and not _is_run_here(tool):
        return tool
    try:
        return {**convert_to_openai_tool(tool), "given": tool}
    except ValueError:
        return tool


def _is_run_here(tool: dict[str, Any]) -> bool:
    """Whether it is a tool of Anthropic's that the client runs, such as `bash_20250124`."""
    body = {"model": "", "max_tokens": 1, "messages": [], "tools": [as_json(tool)]}
    try:
        (read,) = adapters.get("anthropic_messages").from_wire_request(body).tools
    except CmfError:
        return False
    return read.executed_by == "client" and read.type is not None


__all__ = ["middleware"]
