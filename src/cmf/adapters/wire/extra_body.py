"""Requests whose `extra_body` says otherwise than the rest: LiteLLM's proxy puts its fields in place of the body's own.

Spec: docs/spec/adapters.md [ADP-18].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from cmf.errors import ShapeError
from cmf.json.value import replace
from cmf.message.request import Request

KEY: Final = "extra_body"
_A = TypeVar("_A")
_P = ParamSpec("_P")
_Reader = Callable[Concatenate[_A, Any, _P], Request]


def reading_one_body(read: _Reader[_A, _P]) -> _Reader[_A, _P]:
    """Wrap an adapter's reader of requests: it refuses a body that a reader which merges `extra_body` reads otherwise.

    Fields that adapters only keep and show may stand there; rules find them there. The reader raises ShapeError
    (`shape.overridden`).
    """

    @wraps(read)
    def wrapped(adapter: _A, body: Any, /, *given: _P.args, **named: _P.kwargs) -> Request:
        value = read(adapter, body, *given, **named)
        inner = body.get(KEY) if isinstance(body, Mapping) else None
        if isinstance(inner, Mapping):
            without = {key: item for key, item in body.items() if key != KEY}
            merged = wrapped(adapter, {**without, **inner}, *given, **named)
            if replace(merged, extra=None) != replace(value, extra=None):
                raise ShapeError(
                    "what is in it would take the place of fields beside it, for some readers",
                    path=f"$.{KEY}",
                    code="shape.overridden",
                    hint=f"write these fields beside `{KEY}`",
                )
        return value

    return wrapped
