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
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Self, TypeAlias, TypeVar, cast

from pipeline.decisions.context import Context
from pipeline.decisions.stage import Traffic
from pipeline.run.offload import completed
from pipeline.run.outcome import Outcome

if TYPE_CHECKING:
    from pipeline.guarded.model import ModelCall
    from pipeline.guarded.tool import ToolCall

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


Call: TypeAlias = "ToolCall | ModelCall"
"""One call of a guarded function: `asked` is judged, `admitted` gives the arguments after policy; what the function
gives is `answered`, judged, and `released`; an error is `failed`, and judged where it is a `failure` [GRD-16]."""
Begin = Callable[[tuple[Any, ...], Mapping[str, Any]], Call]
Judge = Callable[[Traffic, Context], Awaitable[Outcome]]


class _Run:
    """A block in which the function runs: its result, or its error, interrupts and cancellation included."""

    result: Any = None

    def __init__(self) -> None:
        self._errors: list[BaseException] = []  # taken out when raised: no frame of the traceback keeps a reference

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._errors += [] if error is None else [error]
        return True  # raised after the block: there, what is raised in its place does not have it as its context

    async def judged(self, call: Call, judge: Judge) -> Self:
        """This, with the result after policy; or with the error to raise, reported and judged."""
        if not self._errors:
            self.result = call.released(await judge(call.answered(self.result), call.context))
            return self
        call.failed(self._errors[0])
        failure = call.failure(self._errors[0])
        if failure is not None:
            try:
                outcome: Outcome | Exception = await judge(failure.said(), call.context)
            except Exception as refused:  # noqa: BLE001 - whatever it is, nothing was judged
                outcome = refused
            self._errors = [failure.told(outcome)]
        return self

    def released(self) -> Any:
        """The result, or the error is raised: by whoever is no coroutine, in which StopIteration would be another."""
        if self._errors:
            raise self._errors.pop()
        return self.result


def wrapped(function: Callable[P, R], begin: Begin, judge: Judge, ajudge: Judge) -> Callable[P, R]:
    """`function` with judgement before and after, with the same kind, name and signature; `judge` never suspends."""
    made: Callable[..., Any]
    work: Callable[..., Any] = function

    async def ran(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, blocks: bool = False) -> _Run:
        call, judges = begin(args, kwargs), judge if blocks else ajudge
        given = call.admitted(await judges(call.asked, call.context))
        with _Run() as run:
            if inspect.isasyncgenfunction(function):
                async with aclosing(work(*given.args, **given.kwargs)) as arriving:
                    run.result = Yielded([item async for item in arriving])
            elif inspect.isgeneratorfunction(function):
                with closing(work(*given.args, **given.kwargs)) as running:
                    run.result = _drained(running)
            else:
                run.result = work(*given.args, **given.kwargs)
                if not blocks:
                    run.result = await run.result
        return await run.judged(call, judges)

    if inspect.isasyncgenfunction(function):

        async def items(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            for item in (await ran(args, kwargs)).released().items:
                yield item

        made = items
    elif inspect.iscoroutinefunction(function):

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return (await ran(args, kwargs)).released()

        made = awaited
    elif inspect.isgeneratorfunction(function):

        def yielded(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            released: Yielded = completed(ran(args, kwargs, blocks=True)).released()
            yield from released.items
            return released.returned

        made = yielded
    else:

        def called(*args: Any, **kwargs: Any) -> Any:
            return completed(ran(args, kwargs, blocks=True)).released()

        made = called
    return cast("Callable[P, R]", functools.wraps(function)(made))


def _drained(running: Iterator[Any]) -> Yielded:
    items: list[Any] = []
    while True:
        try:
            items.append(next(running))
        except StopIteration as end:
            return Yielded(items, end.value)
