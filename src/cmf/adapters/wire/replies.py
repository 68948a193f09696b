"""What all formats do with replies: those in no format are kept whole, texts are joined, echoes are dropped.

Spec: docs/spec/adapters.md [ADP-15], [ADP-19]; docs/spec/effects.md [EFF-10].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import FIELD_NAMES, extra_of
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping, thaw
from cmf.json.value import replace, trusted
from cmf.message.message import Message, Part, TextPart, ThinkingPart
from cmf.message.request import ErrorInfo, Response
from cmf.message.transform import with_messages

# -- a reply that is not in its format at all (a proxy's error page, a bare list) [ADP-15] -----------------------------

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


# -- an answer in the shape of a format that has one text, and one place for thinking [ADP-19] -------------------------
# Its writers join what others have in several. A rule that saw the pieces did not see the whole: so join, then judge.


def in_one_text(
    response: Response,
    format_name: str,
    *,
    is_own: Callable[[Part], bool],
    neighbours: bool = False,
) -> Response:
    """The response with the texts of each message as one, and its thinking as one; itself where they are that.

    With `neighbours`, only those that follow each other. What is the format's own (`is_own`) has a place of its own and
    stays as it is.
    """
    messages = [_joined(choice.message, format_name, is_own, neighbours) for choice in response.choices]
    return with_messages(response, tuple(messages))


def _joined(message: Message, format_name: str, is_own: Callable[[Part], bool], neighbours: bool) -> Message:
    parts: list[Part] = []
    texts: dict[int, list[str]] = {}  # by the place of a part, those that it is to hold
    places: dict[type[Part], int] = {}  # where a part is that the next one of its kind joins
    for part in message.content:
        joins = isinstance(part, TextPart | ThinkingPart) and not is_own(part)
        at = places.get(type(part)) if joins else None
        if at is None:
            at = len(parts)
            parts.append(part)
            places = {} if neighbours else places
        if isinstance(part, TextPart | ThinkingPart) and joins:
            places[type(part)] = at
            texts.setdefault(at, []).append(part.text)
    if len(parts) == len(message.content):
        return message
    for at, several in texts.items():
        if len(several) > 1:
            text = loss.joined(format_name, parts[at].content_type.value, several, message=message)
            parts[at] = TextPart(text=text) if isinstance(parts[at], TextPart) else ThinkingPart(text=text)
    return replace(message, content=tuple(parts))


# -- fields beside an answer that have nothing of its words [EFF-10] ---------------------------------------------------
# All others may say them again: token by token as probabilities or ids, as what was found or quoted, parsed, or in a
# filter's notes.

_SILENT: Final = frozenset(FIELD_NAMES["silent"])
_OF_FORMAT: Final = {name: frozenset(keys) for name, keys in FIELD_NAMES["silent_of_format"].items()}
"""What was asked for, which a format repeats, or the form in which it came."""


def silent(extra: Mapping[str, Any] | None) -> FrozenDict | None:
    """What stays of `extra`: by format what is no echo, and the word for a form."""
    kept: dict[str, Any] = {}
    for name, own in (extra or {}).items():
        left = own
        if isinstance(own, Mapping):
            silent_keys = _SILENT.union(_OF_FORMAT.get(name, ()))
            left = {key: item for key, item in own.items() if key in silent_keys}
        if left:
            kept[name] = left
    return FrozenDict(kept) if kept else None
