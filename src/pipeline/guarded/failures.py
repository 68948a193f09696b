"""What an exception of a guarded tool says, and exceptions that say what policy left of it. Spec: guard.md [GRD-16]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from cmf.message.message import Message, ToolResultPart
from pipeline.decisions.errors import CallError, DecisionError
from pipeline.run.outcome import Outcome

_SEARCHED: Final = 1 << 20
"""Characters that are searched for what was said already; what is left is said again."""


class ToolFailure:
    """An exception of a tool, judged by what it says.

    Args:
        error: the exception.
        result: makes the tool's result of a text.
    """

    def __init__(self, error: Exception, result: Callable[[str], Message]) -> None:
        self._error = error
        self._result = result
        self._words = ""

    def said(self) -> Message:
        """All that it says, as the tool's result. Raises what it raises when asked for its text."""
        self._words = words_of(self._error)
        return self._result(self._words)

    def told(self, outcome: Outcome | Exception) -> BaseException:
        """The exception if policy changed nothing of what it says; else one of its type that says what is left."""
        kind = type(self._error)
        if isinstance(outcome, DecisionError):
            return retold(kind, f"The tool failed; what it said is withheld: {outcome}")
        parts = outcome.message.content if isinstance(outcome, Outcome) and outcome.message is not None else ()
        left = parts[0].content if len(parts) == 1 and isinstance(parts[0], ToolResultPart) else None
        if not isinstance(left, str):
            return retold(kind, "The tool failed; what it said could not be judged.")
        return self._error if left == self._words else retold(kind, left)


def words_of(error: BaseException) -> str:
    """All that an exception says, and those that it came from: texts, notes, arguments, attributes; each text once."""
    texts: dict[str, None] = {}
    room = _SEARCHED
    for one in _with_causes(error, set()):
        whole = str(one)
        texts[whole] = None
        for text in _further(one):
            room -= len(whole)
            if room < 0 or text not in whole:
                texts[text] = None
    return "\n".join(texts)


def _further(error: BaseException) -> Iterator[str]:
    """What an exception has besides its text."""
    yield from map(str, getattr(error, "__notes__", ()))
    attributes = {name: item for name, item in vars(error).items() if name != "__notes__"}
    told = (item for item in attributes.values() if isinstance(item, str | bytes | list | tuple | dict))
    yield from (item if isinstance(item, str) else repr(item) for item in (*error.args, *told))


def _with_causes(error: BaseException, known: set[int]) -> Iterator[BaseException]:
    """The exception, what it came from, and those that it groups; each once."""
    known.add(id(error))
    yield error
    context = None if error.__suppress_context__ else error.__context__
    group = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for one in (error.__cause__, context, *group):
        if one is not None and id(one) not in known:
            yield from _with_causes(one, known)


def retold(kind: type[BaseException], text: str) -> BaseException:
    """An exception of a class made from `kind`, so that handlers of that type catch it, that says `text` alone.

    A CallError that names the type, where no class can be made from it.
    """

    def says(_: BaseException) -> str:
        return text

    def shows(_: BaseException) -> str:
        return f"{kind.__name__}({text!r})"

    def reduced(_: BaseException) -> Any:  # a class made here has no place from which it could be imported
        return retold, (kind, text)

    own = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    methods = {"__str__": says, "__repr__": shows, "__reduce__": reduced}
    try:
        made: Any = type(kind.__name__, (kind,), own | methods)
        error: BaseException
        try:
            error = made(text)
        except Exception:  # noqa: BLE001 - it takes other arguments
            error = made.__new__(made, text)
            error.args = (text,)
    except Exception:  # noqa: BLE001 - a class that cannot be inherited from, or takes no text
        return CallError(f"{text.removesuffix('.')} ({kind.__name__})", code="guard.tool-failed", hint="see the log")
    return error


__all__ = ["ToolFailure", "retold", "words_of"]
