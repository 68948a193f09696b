"""The replies that nearly all traffic is made of: one choice, of a text and of calls, read and written key by key.

As with messages (`quick`): what is read and written here is as the general decoder and encoder have it (a test compares
them), and everything else is left to these by giving None.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from cmf.adapters.chat_completions.decode import MESSAGE_NULLS
from cmf.adapters.chat_completions.dialect import THOUGHTS, stop_reason, usage_of, wire_usage
from cmf.adapters.chat_completions.encode import NO_ID
from cmf.adapters.chat_completions.envelope import CHOICE_NULLS, RESPONSE_NULLS
from cmf.adapters.chat_completions.quick import calling, is_text, quick_wire
from cmf.adapters.wire.fields import is_marked
from cmf.enums import Role, StopReason
from cmf.json.frozen import MAX_DEPTH, FrozenDict, freeze, frozen_mapping
from cmf.json.making import Shape, shape_maker
from cmf.json.value import maker, replace
from cmf.message.message import NO_SHAPE, Layout, Message, Part, TextPart
from cmf.message.request import Choice, Response

_ASSISTANT: Final = Role.ASSISTANT
_OF_BODY: Final = frozenset({"object", "model", "choices"})
_OF_CHOICE: Final = frozenset({"index", "message", "finish_reason"})
_OF_MESSAGE: Final = frozenset({"role", "content"})
_BODY_NULLS: Final = frozenset(RESPONSE_NULLS) - _OF_BODY
_CHOICE_NULLS: Final = frozenset(CHOICE_NULLS) - _OF_CHOICE
_NO_NULLS: Final[frozenset[str]] = frozenset()
_LIST: Final[dict[str, Any]] = {}  # nothing is put there: the choices, of which there is one
_MESSAGE_NULLS: Final = frozenset(MESSAGE_NULLS)
_READ: Final = frozenset({"refusal", "audio", "function_call", "reasoning_details", *THOUGHTS})
"""Keys of a message that the general decoder makes parts of."""
_MOST_NULLS: Final = 8  # the layout of so many is never too large [ADP-13]

_text_part = maker(TextPart, "text")
_MESSAGE: Final = Shape(Message, {"role": "role", "content": "content", "extra": "message_extra"})
_CHOICE: Final = Shape(
    Choice, {"message": _MESSAGE, "stop_reason": "reason", "raw_stop_reason": "raw_reason", "extra": "choice_extra"}
)
_REPLY: Final = {"usage": "usage", "model": "model", "extra": "extra", "provider_raw": "layout"}
_replied = shape_maker(
    Shape(Response, {"choices": (_CHOICE,), **_REPLY}),
    *("role", "content", "message_extra", "reason", "raw_reason", "choice_extra", "usage", "model", "extra", "layout"),
)

Kept = dict[str, Any]  # kept fields, by their keys
Nulls = tuple[str, ...]  # the keys of an object under which a null means the same as nothing


# -- reading -----------------------------------------------------------------------------------------------------------


def quick_reply(body: Any, format_name: str) -> Response | None:
    """The response with its layout, where each key of `body` has its plainest shape; else None."""
    try:
        (choice,) = body["choices"]
        model, wire, raw_reason, index = body["model"], choice["message"], choice["finish_reason"], choice["index"]
        if body["object"] != "chat.completion" or wire["role"] != "assistant" or type(index) is not int or index:
            return None
        read = _content(wire, wire["content"], format_name)
    except (KeyError, TypeError, ValueError):  # it has no such shape
        return None
    if read is None or type(model) is not str or not (raw_reason is None or type(raw_reason) is str):
        return None
    kept, nulls = _kept(body, _OF_BODY, _BODY_NULLS)
    chosen, choice_nulls = _kept(choice, _OF_CHOICE, _CHOICE_NULLS)
    content, held, message_nulls = read
    if "id" not in kept or "created" not in kept or "error" in kept or "error" in chosen or any(map(is_marked, kept)):
        return None
    if not is_text(model) or not is_text(raw_reason or ""):
        return None
    layout = None
    if nulls or choice_nulls or message_nulls:
        if len(nulls) + len(choice_nulls) + len(message_nulls) > _MOST_NULLS:
            return None
        layout = _layout(format_name, nulls, choice_nulls, message_nulls)
    calls = type(content[-1]) is not TextPart
    reason = None if raw_reason is None else stop_reason(raw_reason, refused=False, calls=calls)
    if reason is StopReason.OTHER:
        return None
    message_extra = _extra(format_name, held, MAX_DEPTH - 3)
    choice_extra = _extra(format_name, chosen, MAX_DEPTH - 2)
    beside = _extra(format_name, kept, MAX_DEPTH)
    counted = usage_of(kept.get("usage"))
    return _replied(
        _ASSISTANT, content, message_extra, reason, raw_reason, choice_extra, counted, model, beside, layout
    )


def _content(wire: dict[str, Any], text: Any, format_name: str) -> tuple[tuple[Part, ...], Kept, Nulls] | None:
    """The parts of a message, what rides along with it, and its nulls; None if it is not plain."""
    kept, nulls = _kept(wire, _OF_MESSAGE, _MESSAGE_NULLS)
    parts: list[Part] = []
    if type(text) is str and text and is_text(text):
        parts.append(_text_part(text))
    elif text is not None:
        return None
    if kept.pop("tool_calls", None) is not None:
        made = calling(wire, parts, NO_SHAPE, 0, format_name, {})
        if made is None or made.provider_raw is not None:
            return None  # how their arguments are spelled is for the layout of the response
    return (tuple(parts), kept, nulls) if parts and _READ.isdisjoint(kept) else None


def _kept(raw: dict[str, Any], read: frozenset[str], nulls: frozenset[str]) -> tuple[Kept, Nulls]:
    """What of an object rides along, beside what is read; and the keys of its nulls that say nothing."""
    if raw.keys() <= read:
        return {}, ()
    kept = {key: item for key, item in raw.items() if key not in read}
    if None not in kept.values():
        return kept, ()
    empty = tuple([key for key, item in kept.items() if item is None and key in nulls])
    return {key: item for key, item in kept.items() if key not in empty}, empty


def _extra(format_name: str, kept: Kept, levels: int) -> FrozenDict | None:
    return frozen_mapping({format_name: freeze(kept, levels)}) if kept else None


@lru_cache(maxsize=256)
def _layout(format_name: str, body: Nulls, choice: Nulls, message: Nulls) -> Layout:
    """The layout of a reply with these nulls: a service has the same in each."""
    chosen = {**_steps(choice), **({"message": {"at": _steps(message)}} if message else {})}
    steps = {**_steps(body), **({"choices": {"at": {"0": {"at": chosen}}}} if chosen else {})}
    return Layout(format=format_name, shape=FrozenDict({"at": steps}))


def _steps(nulls: Nulls) -> dict[str, Any]:
    return {key: {"set": None} for key in nulls}


# -- and back ----------------------------------------------------------------------------------------------------------


def quick_wire_reply(response: Response, format_name: str) -> dict[str, Any] | None:
    """The wire form of one of the plainest replies, as its layout spells it; else None, for the general encoder."""
    if len(response.choices) != 1 or response.error is not None:
        return None
    choice = response.choices[0]
    kept, wire = _own(response, format_name), _wire_message(choice.message, format_name)
    if kept is None or wire is None:
        return None
    raw = choice.raw_stop_reason
    if raw is None and not kept:
        return None  # another format's, perhaps without a word for its end [OAC-13]
    reason = None if raw is None else stop_reason(raw, refused=False, calls="tool_calls" in wire)
    chosen = _with_extra({"index": 0, "message": wire, "finish_reason": raw}, _own(choice, format_name))
    if chosen is None or reason is not choice.stop_reason or reason is StopReason.OTHER:
        return None
    body = {"id": kept.get("id", NO_ID), "object": kept.get("object", "chat.completion")}
    body |= {"created": kept.get("created", 0), "choices": [chosen]}
    if response.model is not None:
        body["model"] = response.model
    counted = kept.get("usage")
    is_as_counted = usage_of(counted) == response.usage
    if not is_as_counted and response.usage is not None:
        counted = wire_usage(response.usage)
    if counted is not None:
        body["usage"] = counted
    if any(map(is_marked, kept)):
        return None
    body |= {key: item for key, item in kept.items() if key not in body}
    layout = response.provider_raw
    if layout is None or layout.format != format_name or not layout.shape:
        return body
    is_same = is_as_counted and "id" in kept and "created" in kept and not response.tools
    is_same = is_same and all(getattr(part, "namespace", None) is None for part in choice.message.content)
    return body if is_same and _put_nulls(layout.shape, body, chosen, wire) else None


def _wire_message(message: Message, format_name: str) -> dict[str, Any] | None:
    if message.role is not _ASSISTANT or message.provider_raw is not None or message.channel is not None:
        return None
    if message.extra is None:
        return quick_wire(message, format_name)
    return _with_extra(quick_wire(replace(message, extra=None), format_name), _own(message, format_name))


def _own(holder: Any, format_name: str) -> Mapping[str, Any] | None:
    """Its `extra`; None if that is of another format, or records which form it had."""
    extra = holder.extra
    if not extra:
        return NO_SHAPE
    own = extra.get(format_name) if len(extra) == 1 else None
    return own if isinstance(own, dict) else None


def _with_extra(plain: dict[str, Any] | None, kept: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The wire object with what rode along; None if there is no telling, or both have a key."""
    if plain is None or kept is None or not plain.keys().isdisjoint(kept):
        return None
    plain |= kept
    return plain


def _put_nulls(step: Any, body: dict[str, Any], choice: dict[str, Any], wire: dict[str, Any]) -> bool:
    """Whether the layout tells of nothing but nulls that say nothing; where it does, they are in their places now."""
    for plain, nulls, inner in (
        (body, _BODY_NULLS, "choices"),
        (_LIST, _NO_NULLS, "0"),
        (choice, _CHOICE_NULLS, "message"),
        (wire, _MESSAGE_NULLS, ""),
    ):
        steps = step.get("at") if len(step) == 1 else None
        step = None
        for key, each in steps.items() if steps else ():
            if key == inner:
                step = each
            elif key in nulls and key not in plain and len(each) == 1 and each.get("set", each) is None:
                plain[key] = None
            else:
                return False
        if step is None:
            return bool(steps)
    return False
