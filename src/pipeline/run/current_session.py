"""The subject and session of a block of code, given once around it. Spec: guard.md [GRD-6].

Kept in a context variable: tasks inherit it from where they were made, and never see each other's. A thread that is
started by hand begins without one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from typing import Final

from pipeline.decisions.context import Context, as_context

_KNOWN: Final[ContextVar[Mapping[object, Context]]] = ContextVar("pipeline.run.current_session")


def ambient(owner: object) -> Context | None:
    """The value of the innermost block of `owner`; None outside of any."""
    known = _KNOWN.get(None)
    return None if known is None else known.get(owner)


def within(context: Context | None, outer: Context | None) -> Context:
    """`context`, with subject and session of the enclosing block where it has none, and the labels of both."""
    if context is None:
        return outer or Context()
    if outer is None:
        return as_context(context)
    return as_context(context).model_copy(
        update={
            "subject": outer.subject if context.subject is None else context.subject,
            "session": outer.session if context.session is None else context.session,
            "labels": context.labels | outer.labels,
        }
    )


class Block:
    """A context manager, also asynchronous, to be entered once: its context applies to all runs inside the block."""

    def __init__(self, owner: object, context: Context) -> None:
        self._owner = owner
        self._context = context
        self._token: Token[Mapping[object, Context]] | None = None
        self._used = False

    def __enter__(self) -> Context:
        """The context that holds from here on."""
        if self._used:
            raise RuntimeError("this block was entered before: make another")
        self._used = True
        known = {**_KNOWN.get({}), self._owner: self._context}
        self._token = _KNOWN.set(known)
        return self._context

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            _KNOWN.reset(self._token)
            self._token = None

    async def __aenter__(self) -> Context:
        """The same."""
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()
