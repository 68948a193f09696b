"""A reply that is not in its format at all (a proxy's error page, a bare list): an error, kept whole and never read.

Spec: docs/spec/adapters.md [ADP-15].
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.wire.fields import extra_of
from cmf.json.frozen import freeze, frozen_mapping, thaw
from cmf.json.value import trusted
from cmf.message.request import ErrorInfo, Response

_BODY: Final = "cmf_body"
_TEXT: Final = "text"  # the kind of a reply that is only text; the text itself is the error's message
_NOTHING: Final = object()


def unrecognized(raw: Any, format_name: str) -> Response:
    """The response for such a reply: an error, whose message is the text if the reply is only text."""
    kept = {"kind": _TEXT} if isinstance(raw, str) else {"value": raw}
    extra = frozen_mapping({format_name: frozen_mapping({_BODY: freeze(kept)})})
    return trusted(Response, error=trusted(ErrorInfo, message=raw if isinstance(raw, str) else None), extra=extra)


def is_unrecognized(response: Response, format_name: str) -> bool:
    """Whether the response was made of such a reply, and has no choices."""
    return response.error is not None and not response.choices and _BODY in extra_of(response, format_name)


def write_unrecognized(response: Response, format_name: str) -> Any:
    """The reply as it came; if it was only text, the error's message as it is now."""
    kept = extra_of(response, format_name)[_BODY]
    value = kept.get("value", _NOTHING) if isinstance(kept, dict) else _NOTHING
    if value is not _NOTHING:
        return thaw(value)
    return (response.error.message if response.error is not None else None) or ""


def error_text(response: Response) -> str:
    """The text of the reply, for the error event of a stream."""
    text = response.error.message if response.error is not None else None
    return text or "the reply is not readable"
