"""OpenAI Agents: judges every model request of an agent, and every response before the agent acts on it.

await Runner.run(agent, "hello", run_config=run_config(guard))
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cmf import adapters
from cmf.message.request import Request, Response
from pipeline.decisions.errors import ConfigError, needs
from pipeline.guard import Guard
from pipeline.integrations.judged_calls import (
    ajudged_call,
    as_json,
    as_settings,
    cannot_be_judged,
    checked,
    kept_tools,
    merged_fields,
)
from pipeline.run.emit import emit, emit_events
from pipeline.run.outcome import Outcome

if TYPE_CHECKING:
    from agents import Model, ModelProvider, ModelResponse, RunConfig

_FORMAT: Final = "openai_responses"
_ADAPTER: Final = adapters.get(_FORMAT)
_NAMES: Final = ("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing")


def run_config(guard: Guard, **options: Any) -> RunConfig:
    """A run configuration that judges the model calls of all agents.

    Args:
        guard: the guard; subject and session come from the block around the run (`guard.session(…)`).
        options: further options of `agents.RunConfig`. A `model` or `model_provider` among them is guarded. Traces
            contain neither text nor tool results unless `trace_include_sensitive_data=True`: they are not judged.

    Raises:
        ConfigError: no guard, or the package is not installed. An agent whose `model` is an unguarded object is refused
            when it runs: give it `guarded_model(…)`.
    """
    agents = _package()
    checked(guard)
    own = options.pop("call_model_input_filter", None)
    if isinstance(options.get("model"), agents.Model):
        options["model"] = guarded_model(guard, options["model"])
    inner = options.pop("model_provider", None)
    options.setdefault("trace_include_sensitive_data", False)

    async def only_guarded(data: Any) -> Any:
        its = data.agent.model if options.get("model") is None else None
        if isinstance(its, agents.Model) and not getattr(its, "is_guarded", False):
            hint = "give the agent guarded_model(guard, model)"
            raise ConfigError("this agent's model is not guarded", code="integration.unguarded", hint=hint)
        if own is None:
            return data.model_data
        filtered = own(data)
        return await filtered if hasattr(filtered, "__await__") else filtered

    return agents.RunConfig(
        **options, model_provider=guarded_provider(guard, inner), call_model_input_filter=only_guarded
    )


def guarded_provider(guard: Guard, inner: ModelProvider | None = None) -> ModelProvider:
    """A provider of guarded models; `inner` is by default the package's own. ConfigError as `run_config`."""
    agents = _package()
    models = inner if inner is not None else agents.MultiProvider()
    checked(guard)

    class GuardedProvider(agents.ModelProvider):  # type: ignore[misc, name-defined]  # not installed where types are checked
        def get_model(self, model_name: str | None) -> Model:
            return guarded_model(guard, models.get_model(model_name), name=model_name)

        async def aclose(self) -> None:
            await models.aclose()

    return GuardedProvider()


def guarded_model(guard: Guard, inner: Model, *, name: str | None = None) -> Model:
    """The model with its calls judged. `name` is its name in policy, with `openai:` added if it names no provider.

    Raises (when called):
        Denied, ApprovalRequired, PolicyUnavailable: the request is refused, and the model was not called; or its
            response is.
        CallError: the request or the response contains something that cannot be judged.
    """
    agents = _package()
    checked(guard)
    judged = _Conversion(name or str(getattr(inner, "model", "unnamed")))

    class GuardedModel(agents.Model):  # type: ignore[misc, name-defined]  # as above
        is_guarded = True

        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            given = dict(zip(_NAMES, args, strict=False)) | kwargs

            async def ask(admitted: Outcome) -> tuple[Response, Any]:
                answer = await inner.get_response(**judged.given(given, admitted))
                return judged.answer(answer, admitted), answer

            outcome, answer = await ajudged_call(guard, judged.request(given, stream=False), ask)
            items = [_made(item, "ResponseOutputItem") for item in emit(outcome, _FORMAT)["output"]]
            return replace(answer, output=items)

        async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            given = dict(zip(_NAMES, args, strict=False)) | kwargs

            async def ask(admitted: Outcome) -> tuple[Response, None]:
                events = [_json_of(event) async for event in inner.stream_response(**judged.given(given, admitted))]
                wire: list[Any] = [{"event": event["type"], "data": event} for event in events]
                return _ADAPTER.from_wire_response(_ADAPTER.fold_events(wire), admitted.request), None

            outcome, _ = await ajudged_call(guard, judged.request(given, stream=True), ask)
            for event in emit_events(outcome, _FORMAT):
                yield _made(event["data"], "ResponseStreamEvent")

        async def close(self) -> None:
            await inner.close()

        def get_retry_advice(self, request: Any) -> Any:
            return inner.get_retry_advice(request)

    return GuardedModel()


class _Conversion:
    """Converts between the package's values and the Responses format."""

    def __init__(self, name: str) -> None:
        self._model = name if ":" in name else f"openai:{name.removeprefix('openai/')}"

    def request(self, given: dict[str, Any], *, stream: bool) -> Request:
        """The complete model request."""
        settings = given["model_settings"].to_json_dict()
        body: dict[str, Any] = {"model": self._model, "input": given["input"], "stream": stream}
        if given["system_instructions"] is not None:
            body["instructions"] = given["system_instructions"]
        for name in ("previous_response_id", "conversation_id", "prompt"):
            if given.get(name) is not None:
                body["conversation" if name == "conversation_id" else name] = given[name]
        tools = [tool for one in self._offered(given) for tool in self._tool_parameters(*one)]
        if tools:
            body["tools"] = tools
        choice = settings.pop("tool_choice", None)
        if choice is not None:
            known = choice in ("auto", "required", "none") or not isinstance(choice, str)
            body["tool_choice"] = choice if known else {"type": "function", "name": choice}
        schema = given["output_schema"]
        if schema is not None and not schema.is_plain_text():
            form = {"type": "json_schema", "name": "final_output", "schema": schema.json_schema()}
            body["text"] = {"format": form}
        body |= merged_fields(settings)
        body["settings"] = as_settings({name: value for name, value in settings.items() if value is not None})
        return _ADAPTER.from_wire_request(body, model=self._model)

    def given(self, given: dict[str, Any], admitted: Outcome) -> dict[str, Any]:
        """The model's arguments after policy."""
        from agents.models.interface import ModelTracing

        body = emit(admitted, _FORMAT)
        offered = []
        for one in self._offered(given):
            wire = {"model": self._model, "input": [], "tools": self._tool_parameters(*one)}
            offered.append((one, _ADAPTER.from_wire_request(wire).tools))
        left = iter(kept_tools(admitted, [tool for _, definitions in offered for tool in definitions]))
        kept = [one for one, definitions in offered if all(list(islice(left, len(definitions))))]
        tracing = given["tracing"]  # with data, the model's own span would export its response unjudged
        return {
            **given,
            "system_instructions": body.get("instructions"),
            "input": body["input"],
            "tools": [tool for tool, _ in kept if tool is not None],
            "handoffs": [handoff for _, handoff in kept if handoff is not None],
            "tracing": ModelTracing.ENABLED_WITHOUT_DATA if tracing.include_data() else tracing,
        }

    def _offered(self, given: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(tool, None) for tool in given["tools"]] + [(None, handoff) for handoff in given["handoffs"]]

    def _tool_parameters(self, tool: Any, handoff: Any) -> list[Any]:
        from agents.models.openai_responses import Converter

        found = Converter.convert_tools(
            [] if tool is None else [tool], [] if handoff is None else [handoff], allow_opaque_tool_search_surface=True
        )
        return [dict(one) for one in found.tools]

    def answer(self, answer: Any, admitted: Outcome) -> Response:
        """The model's response, including the surrounding fields that the caller receives."""
        body = {
            "id": "resp_0", "object": "response", "status": "completed", "model": self._model,
            "output": [_json_of(item) for item in answer.output],
            "beside": as_json({one.name: getattr(answer, one.name) for one in fields(answer) if one.name != "output"}),
        }  # fmt: skip
        return _ADAPTER.from_wire_response(body, admitted.request)


def _json_of(item: Any) -> Any:
    if isinstance(item, dict):
        return item
    if not hasattr(item, "model_dump"):
        raise cannot_be_judged(type(item).__name__)
    return item.model_dump(mode="json", exclude_unset=True)


def _made(body: Any, kind: str) -> Any:
    """The SDK's value, built as the SDK builds it from a server's response: absent fields stay unset."""
    from openai._models import construct_type
    from openai.types import responses

    return construct_type(value=body, type_=getattr(responses, kind))


def _package() -> Any:
    with needs("openai-agents"):
        import agents
    return agents


__all__ = ["guarded_model", "guarded_provider", "run_config"]
