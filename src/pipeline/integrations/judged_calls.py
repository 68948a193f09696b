"""Judging a model request and its response around a framework's call. Spec: [INT-20] ff."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from cmf.json.value import replace
from cmf.message.request import Request, Response
from cmf.message.security import without_sensitive
from cmf.message.tools import ToolDefinition
from pipeline.decisions.context import Context
from pipeline.decisions.errors import CallError, ConfigError
from pipeline.guard import Guard
from pipeline.run.offload import completed
from pipeline.run.outcome import Outcome, raised

_T = TypeVar("_T")
Ask = Callable[[Outcome], tuple[Response, _T]]
AsyncAsk = Callable[[Outcome], Awaitable[tuple[Response, _T]]]


def checked(guard: Guard) -> Guard:
    """The guard itself; ConfigError if it is not one, because nothing would be judged."""
    if not isinstance(guard, Guard):
        raise ConfigError("a guard is required", code="integration.no-guard", hint="give a Guard")
    return guard


def judged_call(guard: Guard, request: Request, ask: Ask[_T]) -> tuple[Outcome, _T]:
    """`ajudged_call`, for whoever blocks."""

    async def run(value: Request | Response, context: Context | None = None) -> Outcome:
        return guard.run(value, context=context)

    async def asked(admitted: Outcome) -> tuple[Response, _T]:
        return ask(admitted)

    return completed(_judged(run, request, asked))


async def ajudged_call(guard: Guard, request: Request, ask: AsyncAsk[_T]) -> tuple[Outcome, _T]:
    """The outcome of the response, and the second result of `ask`.

    `ask` gets the outcome of the request, if that is allowed, and returns the response together with any value that the
    caller needs.

    Raises:
        Denied, ApprovalRequired, PolicyUnavailable: the request is refused, and `ask` was not called; or the response.
        CallError: policy changed more of the request than messages, or a tool that it did not remove; `ask` was not
            called.
    """
    return await _judged(guard.arun, request, ask)


async def _judged(run: Callable[..., Awaitable[Outcome]], request: Request, ask: AsyncAsk[_T]) -> tuple[Outcome, _T]:
    admitted = raised(await run(request))
    response, kept = await ask(_unchanged_settings(admitted, request))
    facts = Context(history=admitted.request, labels=admitted.labels)
    return raised(await run(response, context=facts)), kept


def _unchanged_settings(admitted: Outcome, request: Request) -> Outcome:
    """The outcome; CallError if it is not this request, or if more changed than messages and which tools there are.

    The framework sends its own settings and definitions of tools, so changes to them would not take effect.
    """
    left = admitted.request
    if left is None:
        raise CallError("a stage replaced the request", code="guard.other-request", hint="check the stages")
    if replace(left, messages=(), tools=()) != replace(request, messages=(), tools=()):
        hint = "have the rule refuse instead, and let stages change only messages and tools"
        raise CallError("the settings of the request were changed", code="integration.settings-changed", hint=hint)
    if sum(kept_tools(admitted, request.tools)) != len(left.tools):
        hint = "have the rule remove the tool (strip_tool) or refuse instead"
        raise CallError("the definition of a tool was changed", code="integration.settings-changed", hint=hint)
    return admitted


def kept_tools(admitted: Outcome, tools: Sequence[ToolDefinition]) -> list[bool]:
    """For each of the tools that were judged, in order, whether policy left it, and left it as it was."""
    left = iter(() if admitted.request is None else admitted.request.tools)
    expected = next(left, None)
    kept: list[bool] = []
    for tool in tools:
        kept.append(tool == expected)
        if kept[-1]:
            expected = next(left, None)
    return kept


def as_json(value: Any) -> Any:
    """A package's value as JSON; parts without a JSON form appear as their `repr`, so that policy sees them."""
    from pydantic_core import to_json

    return json.loads(to_json(value, fallback=repr))


def as_settings(settings: Mapping[str, Any]) -> Any:
    """The settings of a call as JSON, without headers that carry credentials, which no policy sees [B12]."""
    shown = {
        name: without_sensitive(setting) if name in _HEADERS and isinstance(setting, Mapping) else setting
        for name, setting in settings.items()
    }
    return as_json(shown)


def merged_fields(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that settings add to the body of the call, as `extra_body`: rules and readers look for them there."""
    sources = [settings.get(name) for name in ("extra_args", "extra_body")]
    fields = {name: item for source in sources if isinstance(source, Mapping) for name, item in source.items()}
    return {"extra_body": as_json(fields)} if fields else {}


_HEADERS: Final = ("extra_headers", "headers", "default_headers")


def cannot_be_judged(what: str) -> CallError:
    """The error for a framework's value that cannot be judged."""
    hint = "leave it out, or judge it with guard.check and pass it on as text"
    return CallError(f"{what} cannot be judged and is not sent", code="integration.unsupported", hint=hint)
