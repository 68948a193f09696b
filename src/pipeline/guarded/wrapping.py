"""A function with judgement around it, of whatever kind the function is. Spec: guard.md [GRD-7], [GRD-8].

One order for all kinds: judge what goes in, call, judge what came out. What a generator yields is held until it ended
and was judged; text could otherwise be split so that no piece shows what the whole says.
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
    """What a function is called with."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Yielded:
    """What a generator gave: its items, in order, and what it returned at its end."""

    items: list[Any]
    returned: Any = None


class Call(Protocol):
    """One call of a guarded function."""

    @property
    def asked(self) -> Traffic:
        """What the call is, to be judged before it is made."""
        ...

    @property
    def context(self) -> Context:
        """Who asks; after `admitted`, with the labels that the call brought."""
        ...

    def admitted(self, outcome: Outcome) -> Given:
        """What the function is called with: as policy left it."""
        ...

    def answered(self, result: Any) -> Traffic:
        """What came back (`Yielded` from a generator), to be judged before it is given on."""
        ...

    def released(self, outcome: Outcome) -> Any:
        """What the caller gets, `Yielded` for a generator: as policy left it."""
        ...

    def failed(self, error: BaseException) -> None:
        """The function raised: put it on record. Raises nothing."""
        ...


Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], Call]
Judge = Callable[[Traffic, Context], Outcome]
AsyncJudge = Callable[[Traffic, Context], Awaitable[Outcome]]


class _Watched:
    """Puts on record what the function raises, and lets it pass as it is, interrupts and cancellation included."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._call.failed(error)


def wrapped(function: Callable[P, R], begin: Begin, judge: Judge, ajudge: AsyncJudge) -> Callable[P, R]:
    """`function` with judgement before and after, of the same kind, name and signature."""
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
