"""A reply that is none of its format's (a proxy's page, a bare list): an error, kept whole and never read.

Spec: docs/spec/adapters.md [ADP-15].
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.fields import extra_of
from cmf.frozen import freeze, frozen_mapping, thaw
from cmf.request import ErrorInfo, Response
from cmf.value import trusted

_BODY: Final = "cmf_body"
_TEXT: Final = "text"  # of a reply that is nothing but text, only that it was: the error's message says what
_NOTHING: Final = object()


def stranger(raw: Any, format_name: str) -> Response:
    """The error that such a reply is: its message is the text, if it is nothing else."""
    kept = {"kind": _TEXT} if isinstance(raw, str) else {"value": raw}
    extra = frozen_mapping({format_name: frozen_mapping({_BODY: freeze(kept)})})
    return trusted(Response, error=trusted(ErrorInfo, message=raw if isinstance(raw, str) else None), extra=extra)


def is_stranger(response: Response, format_name: str) -> bool:
    """Whether the response is such a reply to this format, still without an answer."""
    return response.error is not None and not response.choices and _BODY in extra_of(response, format_name)


def written_stranger(response: Response, format_name: str) -> Any:
    """The reply as it came; its text as the error says it now."""
    kept = extra_of(response, format_name)[_BODY]
    value = kept.get("value", _NOTHING) if isinstance(kept, dict) else _NOTHING
    if value is not _NOTHING:
        return thaw(value)
    return (response.error.message if response.error is not None else None) or ""


def told(response: Response) -> str:
    """What the reply says, for the error event of a stream."""
    said = response.error.message if response.error is not None else None
    return said or "the reply is not readable"
