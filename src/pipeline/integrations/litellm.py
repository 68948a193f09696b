"""LiteLLM's proxy: judges each chat request before the call and each response after it, streamed or not.

CmfGuardrail = guardrail_class(Guard("policy"))  # in the module that config.yaml names under `guardrail:`
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final

from cmf import adapters
from cmf.errors import CmfError
from cmf.message.request import Request
from cmf.message.security import without_sensitive
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ApprovalRequired, ConfigError, DecisionError, PolicyUnavailable, needs
from pipeline.decisions.stage import Traffic
from pipeline.guard import Guard, Subject
from pipeline.integrations.judged_calls import as_json, checked
from pipeline.run.emit import emit, emit_events
from pipeline.run.outcome import Outcome, raised

_FORMAT: Final = "openai_chat"
_CHAT: Final = frozenset({"completion", "acompletion"})
_HOOKS: Final = frozenset({"pre_call", "post_call"})
_HEADERS: Final = ("extra_headers", "headers")
_SCOPED_HEADERS: Final = "provider_specific_header"  # those for some providers; one entry or a list of them
_METADATA: Final = ("metadata", "litellm_metadata")  # for callbacks; some of it goes to a provider
_PARTLY_SHOWN: Final = frozenset({*_HEADERS, _SCOPED_HEADERS, *_METADATA})
_RUNS: Final = _HOOKS | {"pre_mcp_call"}  # MCP tool calls reach the same hook, which refuses them
_DROPS_CHANGES: Final = ("run_in_parallel", "scan_raw_request")
# LiteLLM's own parameters that do not reach a model: bookkeeping, timeouts, routing and retries. Others add text after
# the hook (a continuation message, a system prompt, a template, a stored prompt) or call other models.
_LOCAL_PARAMETERS: Final = frozenset(
    {
        "_router_weights", "allowed_model_region", "api_base", "api_key", "api_version", "cache", "caching",
        "client_side_timeout", "enable_prompt_caching", "guardrails", "headers", "keepalive_seconds", "litellm_call_id",
        "litellm_disabled_callbacks", "litellm_logging_obj", "litellm_metadata", "litellm_session_id",
        "litellm_trace_id", "max_retries", "metadata", "no-log", "num_retries", "provider_specific_header",
        "proxy_server_request", "request_timeout", "secret_fields", "stream_timeout", "tags", "ttl",
    }
)  # fmt: skip
_ADAPTER: Final = adapters.get(_FORMAT)

Who = Callable[[Any], Subject | None]


def guardrail_class(guard: Guard, *, subject: Who | None = None) -> type[Any]:
    """A guardrail class for LiteLLM that judges every request before the call and every response after it.

    Args:
        guard: the guard.
        subject: maps LiteLLM's `UserAPIKeyAuth` to the subject; by default its user, else its key's alias or hash, with
            the team. A request's `litellm_session_id` names the session.

    Raises:
        ConfigError: no guard, or LiteLLM is not installed; on instantiation: settings under which some requests or
            responses would go unjudged (a `mode` without both hooks, `default_on: false`, running in parallel).
    """
    with needs("litellm"):
        import litellm
        from litellm.exceptions import GuardrailRaisedException
        from litellm.integrations.custom_guardrail import CustomGuardrail
        from litellm.types.utils import ModelResponse, ModelResponseStream, all_litellm_params
    checked(guard)
    who = subject or _subject_of

    class CmfGuardrail(CustomGuardrail):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self, guardrail_name: str = "cmf", **options: Any) -> None:
            hooks = options.pop("event_hook", None) or sorted(_HOOKS)
            named = {str(getattr(one, "value", one)) for one in ([hooks] if isinstance(hooks, str) else hooks)}
            dropped = any(options.get(one) for one in _DROPS_CHANGES)
            if not named >= _HOOKS or options.pop("default_on", True) is False or dropped:
                wanted = (
                    "mode: [pre_call, post_call] and default_on: true, without run_in_parallel and scan_raw_request"
                )
                what, hint = "with these settings some traffic would go unjudged", f"set {wanted}"
                raise ConfigError(what, code="integration.settings", hint=hint)
            super().__init__(guardrail_name=guardrail_name, event_hook=sorted(named), default_on=True, **options)

        def __init_subclass__(cls, **_: Any) -> None:
            hint = "use the class itself, and make exceptions in policy"
            raise ConfigError("a subclass could let streams go unjudged", code="integration.settings", hint=hint)

        def should_run_guardrail(self, data: Any, event_type: Any) -> bool:  # noqa: ARG002 - LiteLLM gives them
            """Always, whatever LiteLLM's own switches say (`stream_scope`, opted-out keys)."""
            return str(getattr(event_type, "value", event_type)) in _RUNS

        def stream_scope_allows(self, data: object, event_type: Any) -> bool:  # noqa: ARG002 - as above
            return True

        async def async_pre_call_hook(
            self,
            user_api_key_dict: Any,
            cache: Any,  # noqa: ARG002 - as above
            data: dict[str, Any],
            call_type: str,
        ) -> dict[str, Any]:
            if call_type not in _CHAT:
                raise self._refused(f"Calls of type {call_type} cannot be judged and are not made.", "call.unjudged")
            if any(value and _is_own(name) and name not in _LOCAL_PARAMETERS for name, value in data.items()):
                raise self._refused("This parameter would add unjudged content.", "request.unjudged")
            try:
                request = _request(data)
            except CmfError as error:
                raise self._refused(error.message, error.code, status=400) from None
            outcome = await self._judged(request, user_api_key_dict, data)
            if outcome.request is None:
                raise self._refused("A stage replaced the request with something else.", "pipeline.no-request")
            body = emit(outcome, _FORMAT)
            shown = _shown(data)
            for name in shown.keys() & _PARTLY_SHOWN:
                empty: Any = {} if isinstance(shown[name], Mapping) else None
                body[name] = _restored(data[name], shown[name], body.get(name, empty))
            return {**{name: value for name, value in data.items() if _is_own(name)}, **body}

        async def async_post_call_success_hook(
            self, data: dict[str, Any], user_api_key_dict: Any, response: Any
        ) -> Any:
            if not isinstance(response, ModelResponse):
                raise self._refused("A response of this kind cannot be judged.", "answer.unjudged")
            outcome = await self._answered(response, user_api_key_dict, data)
            left = ModelResponse(**emit(outcome, _FORMAT))
            left._hidden_params = response._hidden_params
            return left

        async def async_post_call_streaming_iterator_hook(
            self, user_api_key_dict: Any, response: Any, request_data: dict[str, Any]
        ) -> AsyncGenerator[Any, None]:
            chunks = [chunk async for chunk in response]
            whole = litellm.stream_chunk_builder(chunks, messages=request_data.get("messages"))
            if not isinstance(whole, ModelResponse):
                raise self._refused("The stream ended early.", "upstream.cut")
            outcome = await self._answered(whole, user_api_key_dict, request_data)
            for event in emit_events(outcome, _FORMAT):
                if isinstance(event["data"], dict):
                    yield ModelResponseStream(**event["data"])

        async def _answered(self, response: Any, key: Any, data: dict[str, Any]) -> Outcome:
            request = _request(data)
            body = json.loads(response.model_dump_json(exclude_none=True))
            try:
                judged_response = _ADAPTER.from_wire_response(body, request)
            except CmfError as error:
                raise self._refused("The response cannot be read.", error.code) from None
            return await self._judged(judged_response, key, data, Context(history=request))

        async def _judged(
            self, value: Traffic, key: Any, data: Mapping[str, Any], context: Context | None = None
        ) -> Outcome:
            session = data.get("litellm_session_id")
            named = session if isinstance(session, str) else None
            outcome = await guard.arun(value, subject=who(key), session=named, context=context)
            try:
                return raised(outcome)
            except PolicyUnavailable as error:
                raise self._refused(error.user_message, error.code, status=503) from None
            except ApprovalRequired as error:
                waits = f"{error.user_message} Waiting for approval {', '.join(error.approval_ids)}."
                raise self._refused(waits, error.code, error.decision_id) from None
            except DecisionError as error:
                raise self._refused(error.user_message, error.code, error.decision_id) from None

        def _refused(self, message: str, code: str, decision: str | None = None, *, status: int = 403) -> Exception:
            """The refusal; with a decision, LiteLLM knows that content was blocked."""
            refused: Exception = GuardrailRaisedException(
                guardrail_name=self.guardrail_name,
                message=f"{message} [{code}]" + (f" (decision {decision})" if decision else ""),
                should_wrap_with_default_message=False,
                status_code=status,
                blocked_content=decision is not None,
            )
            return refused

    def _is_own(name: str) -> bool:
        """Whether it is LiteLLM's own parameter, not part of the provider's request."""
        return name in all_litellm_params or name.startswith("litellm_") or name.endswith("_fallbacks")

    def _request(data: Mapping[str, Any]) -> Request:
        return _ADAPTER.from_wire_request(as_json(_shown(data)))

    def _shown(data: Mapping[str, Any]) -> dict[str, Any]:
        """What of `data` goes to a provider, without credentials, which no policy sees [B12]."""
        shown = {}
        for name, value in data.items():
            if name in _METADATA:
                sent = ("user_id", "requester_metadata") if litellm.enable_preview_features else ("user_id",)
                value = (
                    {field: value[field] for field in sent if field in value} if isinstance(value, Mapping) else value
                )
            elif name in _HEADERS or name == _SCOPED_HEADERS:
                value = _without_credentials(value)
            elif _is_own(name):
                continue
            if value or not _is_own(name):
                shown[name] = value
        return shown

    return CmfGuardrail


def _without_credentials(headers: Any) -> Any:
    """Headers, or entries with headers for some providers."""
    if isinstance(headers, list | tuple):
        return [_without_credentials(entry) for entry in headers]
    if not isinstance(headers, Mapping):
        return headers
    if isinstance(headers.get("extra_headers"), Mapping):
        return {**headers, "extra_headers": without_sensitive(headers["extra_headers"])}
    return without_sensitive(headers)


def _restored(given: Any, shown: Any, left: Any) -> Any:
    """What policy left of what it was shown, with what it was not shown of what was given."""
    if isinstance(given, Mapping) and isinstance(left, Mapping):
        hidden = {name: value for name, value in given.items() if name not in shown}
        return hidden | {name: _restored(given.get(name), shown.get(name), value) for name, value in left.items()}
    if isinstance(given, list | tuple) and isinstance(left, list) and len(given) == len(left):
        return [_restored(*one) for one in zip(given, shown, left, strict=True)]
    return left


def _subject_of(key: Any) -> Subject | None:
    names = [getattr(key, name, None) for name in ("user_id", "key_alias", "token")]
    name, team = next((candidate for candidate in names if candidate), None), getattr(key, "team_id", None)
    return None if name is None else {"id": str(name), "teams": [team] if team else []}


__all__ = ["Who", "guardrail_class"]
