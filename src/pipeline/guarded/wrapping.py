"""Wrapping functions, coroutines and generators with judgement. Spec: guard.md [GRD-7], [GRD-8].

The order is always the same: judge the input, call, judge the output. A generator's items are held back until it has
ended and is judged; otherwise text could be split so that no piece reveals what the whole says.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import aclosing, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

from pipeline.context import Context
from pipeline.outcome import Outcome
from pipeline.stage import Traffic

P = ParamSpec("P")
R = TypeVar("R")


class Given(NamedTuple):
    """The arguments of a call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Yielded:
    """A generator's items, in order, and its return value."""

    items: list[Any]
    returned: Any = None


class Call(Protocol):
    """One call of a guarded function."""

    @property
    def asked(self) -> Traffic:
        """The call as traffic, to be judged before it is made."""
        ...

    @property
    def context(self) -> Context:
        """The context; after `admitted`, with the labels from the call."""
        ...

    def admitted(self, outcome: Outcome) -> Given:
        """The arguments after policy."""
        ...

    def answered(self, result: Any) -> Traffic:
        """The result as traffic (`Yielded` for a generator), to be judged before it is returned."""
        ...

    def released(self, outcome: Outcome) -> Any:
        """The result after policy, `Yielded` for a generator."""
        ...

    def failed(self, error: BaseException) -> None:
        """Report that the function raised. Never raises."""
        ...


Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], Call]
Judge = Callable[[Traffic, Context], Outcome]
AsyncJudge = Callable[[Traffic, Context], Awaitable[Outcome]]


class _Watched:
    """Reports what the function raises and lets it propagate, including interrupts and cancellation."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._call.failed(error)


def wrapped(function: Callable[P, R], begin: Begin, judge: Judge, ajudge: AsyncJudge) -> Callable[P, R]:
    """`function` with judgement before and after, with the same kind, name and signature."""
    made: Callable[..., Any]
    if inspect.isasyncgenfunction(function):
        made = _async_generator(function, begin, ajudge)
    elif inspect.iscoroutinefunction(function):
        made = _coroutine(function, begin, ajudge)
    elif inspect.isgeneratorfunction(function):
        made = _generator(function, begin, judge)
    else:
        made = _plain(function, begin, judge)
    return cast("Callable[P, R]", functools.wraps(function)(made))


def _plain(function: Callable[..., Any], begin: Begin, judge: Judge) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        given = call.admitted(judge(call.asked, call.context))
        with _Watched(call):
            result = function(*given.args, **given.kwargs)
        return call.released(judge(call.answered(result), call.context))

    return called


def _coroutine(function: Callable[..., Any], begin: Begin, judge: AsyncJudge) -> Callable[..., Any]:
    async def called(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        given = call.admitted(await judge(call.asked, call.context))
        with _Watched(call):
            result = await function(*given.args, **given.kwargs)
        return call.released(await judge(call.answered(result), call.context))

    return called


def _generator(function: Callable[..., Any], begin: Begin, judge: Judge) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(args, kwargs)
        given = call.admitted(judge(call.asked, call.context))
        with _Watched(call), closing(function(*given.args, **given.kwargs)) as running:
            yielded = _drained(running)
        released: Yielded = call.released(judge(call.answered(yielded), call.context))
        yield from released.items
        return released.returned

    return called


def _drained(running: Iterator[Any]) -> Yielded:
    items: list[Any] = []
    while True:
        try:
            items.append(next(running))
        except StopIteration as end:
            return Yielded(items, end.value)


def _async_generator(function: Callable[..., Any], begin: Begin, judge: AsyncJudge) -> Callable[..., Any]:
    async def called(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        call = begin(args, kwargs)
        given = call.admitted(await judge(call.asked, call.context))
        with _Watched(call):
            async with aclosing(function(*given.args, **given.kwargs)) as running:
                yielded = Yielded([item async for item in running])
        released: Yielded = call.released(await judge(call.answered(yielded), call.context))
        for item in released.items:
            yield item

    return called
