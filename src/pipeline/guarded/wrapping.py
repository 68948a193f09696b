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
from typing import Any, NamedTuple, ParamSpec, Protocol, Self, TypeVar, cast

from pipeline.decisions.context import Context
from pipeline.decisions.stage import Traffic
from pipeline.run.outcome import Outcome

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


class Failure(Protocol):
    """An error that is judged before it is raised."""

    def said(self) -> Traffic:
        """What it says, as traffic. Raises whatever that raises."""
        ...

    def told(self, outcome: Outcome | Exception) -> BaseException:
        """The error after policy; `outcome` is an exception if what it says was refused, or not judged."""
        ...


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

    def failure(self, error: BaseException) -> Failure | None:
        """What is to be judged before the error is raised; None if it may be raised as it is."""
        ...


Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], Call]
Judge = Callable[[Traffic, Context], Outcome]
AsyncJudge = Callable[[Traffic, Context], Awaitable[Outcome]]


class _Run:
    """A block in which the function runs: its result, or its error, interrupts and cancellation included."""

    result: Any = None

    def __init__(self) -> None:
        self.errors: list[BaseException] = []  # taken out when raised: no frame of the traceback keeps a reference

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.errors += [] if error is None else [error]
        return True  # raised after the block: there, what is raised in its place does not have it as its context


def _told(call: Call, error: BaseException, judge: Judge) -> BaseException:
    """The error to raise, reported and judged."""
    call.failed(error)
    failure = call.failure(error)
    if failure is None:
        return error
    try:
        outcome: Outcome | Exception = judge(failure.said(), call.context)
    except Exception as refused:  # noqa: BLE001 - whatever it is, nothing was judged
        outcome = refused
    return failure.told(outcome)


async def _atold(call: Call, error: BaseException, judge: AsyncJudge) -> BaseException:
    """As `_told`."""
    call.failed(error)
    failure = call.failure(error)
    if failure is None:
        return error
    try:
        outcome: Outcome | Exception = await judge(failure.said(), call.context)
    except Exception as refused:  # noqa: BLE001 - as above
        outcome = refused
    return failure.told(outcome)


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
        with _Run() as ran:
            ran.result = function(*given.args, **given.kwargs)
        if ran.errors:
            raise _told(call, ran.errors.pop(), judge)
        return call.released(judge(call.answered(ran.result), call.context))

    return called


def _coroutine(function: Callable[..., Any], begin: Begin, judge: AsyncJudge) -> Callable[..., Any]:
    async def called(*args: Any, **kwargs: Any) -> Any:
        call = begin(args, kwargs)
        given = call.admitted(await judge(call.asked, call.context))
        with _Run() as ran:
            ran.result = await function(*given.args, **given.kwargs)
        if ran.errors:
            raise await _atold(call, ran.errors.pop(), judge)
        return call.released(await judge(call.answered(ran.result), call.context))

    return called


def _generator(function: Callable[..., Any], begin: Begin, judge: Judge) -> Callable[..., Any]:
    def called(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call = begin(args, kwargs)
        given = call.admitted(judge(call.asked, call.context))
        with _Run() as ran, closing(function(*given.args, **given.kwargs)) as running:
            ran.result = _drained(running)
        if ran.errors:
            raise _told(call, ran.errors.pop(), judge)
        released: Yielded = call.released(judge(call.answered(ran.result), call.context))
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
        with _Run() as ran:
            async with aclosing(function(*given.args, **given.kwargs)) as running:
                ran.result = Yielded([item async for item in running])
        if ran.errors:
            raise await _atold(call, ran.errors.pop(), judge)
        released: Yielded = call.released(await judge(call.answered(ran.result), call.context))
        for item in released.items:
            yield item

    return called
