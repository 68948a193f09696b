"""A request to a model and its answer in a framework's hands: judged around the call. Spec: [INT-20] ff."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

from cmf.headers import without_sensitive
from cmf.request import Request, Response
from cmf.value import replace
from pipeline.context import Context
from pipeline.errors import CallError, ConfigError
from pipeline.guard import Guard, raised
from pipeline.outcome import Outcome

_T = TypeVar("_T")
Ask = Callable[[Outcome], tuple[Response, _T]]
AsyncAsk = Callable[[Outcome], Awaitable[tuple[Response, _T]]]


def checked(guard: Guard) -> Guard:
    """The guard itself. ConfigError where it is none: nothing would be judged."""
    if not isinstance(guard, Guard):
        raise ConfigError("there is no guard to judge", code="integration.no-guard", hint="give a Guard")
    return guard


def missing(package: str, extra: str) -> ConfigError:
    """For a package that an integration plugs into, and that is not there."""
    hint = f"pip install 'cmf-pipeline[{extra}]'"
    return ConfigError(f"{package} is not installed", code="integration.not-installed", hint=hint)


def around(guard: Guard, request: Request, ask: Ask[_T]) -> tuple[Outcome, _T]:
    """The outcome of the answer, and what `ask` gave beside it.

    `ask` gets the outcome of the request, which lets something through, and gives the answer with whatever the caller
    needs to make its own of it.

    Raises:
        Denied, ApprovalRequired, PolicyUnavailable: of the request, and `ask` was not called; or of the answer.
        CallError: more of the request was changed than its messages and tools; `ask` was not called.
    """
    admitted = raised(guard.run(request))
    response, kept = ask(_same_settings(admitted, request))
    return raised(guard.run(response, context=_facts(admitted))), kept


async def aaround(guard: Guard, request: Request, ask: AsyncAsk[_T]) -> tuple[Outcome, _T]:
    """`around`, awaiting both."""
    admitted = raised(await guard.arun(request))
    response, kept = await ask(_same_settings(admitted, request))
    return raised(await guard.arun(response, context=_facts(admitted))), kept


def _same_settings(admitted: Outcome, request: Request) -> Outcome:
    """The outcome. CallError where it holds another request, or one of which more changed than words and tools.

    A framework asks with settings of its own: what policy or a stage left of them would not be what goes out.
    """
    left = admitted.request
    if left is None:
        raise CallError("what was judged is not this request", code="guard.other-request", hint="look at the stages")
    if replace(left, messages=(), tools=()) != replace(request, messages=(), tools=()):
        hint = "let the rule refuse, and let stages change messages and tools alone"
        raise CallError("the settings of the request were changed", code="integration.settings-changed", hint=hint)
    return admitted


def _facts(admitted: Outcome) -> Context:
    return Context(history=admitted.request, labels=admitted.labels)


def as_json(said: Any) -> Any:
    """What a package holds, as JSON; what has no JSON form by its `repr`, so that policy sees that it is there."""
    from pydantic_core import to_json

    return json.loads(to_json(said, fallback=repr))


def as_settings(settings: Mapping[str, Any]) -> Any:
    """Settings of a call, as JSON: all but the headers that carry credentials, which no policy sees [B12]."""
    shown = {
        name: without_sensitive(said) if name in _HEADERS and isinstance(said, Mapping) else said
        for name, said in settings.items()
    }
    return as_json(shown)


_HEADERS: Final = ("extra_headers", "headers", "default_headers")


def unsayable(what: str) -> CallError:
    """For what a framework holds and nothing here can judge."""
    hint = "leave it out, or judge it with guard.check and hand it on as text"
    return CallError(f"{what} cannot be judged here, and is not sent", code="integration.unsayable", hint=hint)


__all__ = ["Ask", "AsyncAsk", "aaround", "around", "as_json", "as_settings", "checked", "missing", "unsayable"]
