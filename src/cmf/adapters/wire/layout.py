"""How a value was written on its wire, apart from its content [A15]. Spec: docs/spec/adapters.md [ADP-6], [ADP-7].

A layout is the difference between a wire object and the plain encoding of the value that was decoded from it, as far
as that difference has no text: null or absent, empty or absent, how a number is written, the white space of embedded
JSON. It is applied only if the result decodes to exactly the same value. So it can neither undo a redaction nor add
anything that policy did not see.

A difference is one of: `{"set": v}` (v: null, bool, number, "" or an empty container), `{"cut": true}` (absent),
`{"json": text}` (another spelling of the same embedded JSON), `{"block": type}` (a text as a list of one text block of
that type, "" for a block without one), `{"flat": true}` (the reverse: a list of one text block as its bare text),
`{"at": {key or index: difference}}`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Final, TypeVar

from cmf.adapters.wire.fields import PARTIAL, extra_of, is_marked
from cmf.enums import MessageStatus, Role
from cmf.errors import ShapeError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, freeze, same_json, same_spelling, thaw
from cmf.json.value import replace, to_bytes
from cmf.message.message import NO_SHAPE, Layout, Message, Part, TextPart, ToolResultPart
from cmf.message.request import Request, Response
from cmf.message.transform import messages_of

MAX_SHARE: Final = 2
"""The largest size of a layout, as a multiple of the size of its value [A15]."""

ENVELOPE: Final = 128
"""The least size, in bytes, that a whole request or response counts as: the JSON form of an empty one has two."""

_LEAST: Final = len('{"role":"user","content":[]}')  # the smallest message
_ABSENT: Final = object()
_TEXT_BLOCKS: Final = ("", "text", "input_text", "output_text")
_T = TypeVar("_T", Message, Request, Response)
_W = TypeVar("_W")


def difference(plain: Any, raw: Any) -> dict[str, Any] | None:
    """The difference that turns `plain` into `raw` (see the module); {} if equal; None if text differs."""
    if plain is raw:
        return {}
    if isinstance(plain, dict) and isinstance(raw, dict):
        steps: dict[str, Any] = {}
        for key in plain.keys() | raw.keys():
            plain_item, raw_item = plain.get(key, _ABSENT), raw.get(key, _ABSENT)
            if same_spelling(plain_item, raw_item):  # most are equal, and this comparison is native
                continue
            step = difference(plain_item, raw_item)
            if step is None:
                return None
            if step:
                steps[key] = step
        return {"at": steps} if steps else {}
    if isinstance(plain, list) and isinstance(raw, list) and len(plain) == len(raw):
        listed = [difference(plain_item, raw_item) for plain_item, raw_item in zip(plain, raw, strict=True)]
        if any(step is None for step in listed):
            return None
        steps = {str(index): step for index, step in enumerate(listed) if step}
        return {"at": steps} if steps else {}
    return _leaf_difference(plain, raw)


def _leaf_difference(plain: Any, raw: Any) -> dict[str, Any] | None:
    if raw is _ABSENT:
        return {"cut": True}
    if plain is not _ABSENT and same_spelling(plain, raw):
        return {}
    if isinstance(raw, str) and raw and isinstance(plain, str):
        plain_item, raw_item = loads_object(plain), loads_object(raw)
        same = plain_item is not None and raw_item is not None and same_spelling(plain_item, raw_item)
        return {"json": raw} if same else None
    if isinstance(raw, str) and raw and _only_text(plain) == raw:
        return {"flat": True}
    for kind in _TEXT_BLOCKS if isinstance(plain, str) and isinstance(raw, list) else ():
        if raw == _text_block(kind, plain):
            return {"block": kind}
    # A value without text can be layout: decoding the result shows later whether it means the same.
    return {"set": raw} if not _has_text(raw) else None


def _text_block(kind: str, text: str) -> list[dict[str, str]]:
    return [{"type": kind, "text": text} if kind else {"text": text}]


def _only_text(blocks: Any) -> str | None:
    """The text of a list that holds one text block and nothing else."""
    block = blocks[0] if isinstance(blocks, list) and len(blocks) == 1 else None
    text = block.get("text") if isinstance(block, dict) else None
    return text if isinstance(text, str) else None


def _has_text(value: Any) -> bool:
    return bool(value) and isinstance(value, str | dict | list)


def apply(plain: Any, step: dict[str, Any]) -> Any:
    """A copy of `plain` with the difference applied. Unchanged parts are shared; steps that do not fit are skipped."""
    steps = step.get("at")
    if not steps:
        return plain
    if isinstance(plain, dict):
        changed = dict(plain)
        for key, inner in steps.items():
            item = _applied(plain.get(key, _ABSENT), inner)
            if item is _ABSENT:
                changed.pop(key, None)
            else:
                changed[key] = item
        return changed
    if isinstance(plain, list):
        listed = list(plain)
        for key, inner in steps.items():
            if key.isdecimal() and int(key) < len(listed):
                listed[int(key)] = _applied(listed[int(key)], inner)
        return listed
    return plain


def _applied(plain: Any, step: Any) -> Any:
    if not isinstance(step, dict):
        return plain
    if "cut" in step:
        return _ABSENT
    if "set" in step:
        return plain if _has_text(step["set"]) else thaw(step["set"])
    if "flat" in step:
        text = _only_text(plain)
        return plain if text is None else text
    if "json" in step:
        plain_item = loads_object(plain) if isinstance(plain, str) else None
        raw_item = loads_object(step["json"]) if isinstance(step["json"], str) else None
        same = plain_item is not None and raw_item is not None and same_json(plain_item, raw_item)
        return step["json"] if same else plain
    if "block" in step:
        fits = isinstance(plain, str) and step["block"] in _TEXT_BLOCKS
        return _text_block(step["block"], plain) if fits else plain
    return apply(plain, step)


def spelling(plain: Any, raw: Any, path: str) -> dict[str, Any]:
    """The difference that turns `plain`, the encoding of the value read from `raw`, into `raw`; {} if they are equal.

    Raises:
        ShapeError: they differ in text. Some of it was not read, and policy would judge less than the body.
    """
    step = {} if same_spelling(plain, raw) else difference(plain, raw)
    if step is None:
        raise ShapeError(
            "the body cannot be read whole", path=path, code="shape.not-read-whole", hint="see the provider's reference"
        )
    return step


# -- reading: values with their layouts --------------------------------------------------------------------------------


def spelled(
    group: Sequence[_T],
    plain: Any,
    raw: Any,
    *,
    format_name: str,
    path: str = "$",
    index: int = 0,
    keep: bool = False,
    notes: Mapping[str, Any] = NO_SHAPE,
) -> tuple[_T, ...]:
    """The values read from `raw`, with the layout that turns `plain`, their plain form, into `raw` again.

    They are the messages of one wire message, number `index` of its body, or one request or response. Only the first
    says how they were written, and none does if that is plainly, unless they are several or `keep` is true. `notes` is
    what the format has to know beside the difference.

    Raises:
        ShapeError: see `spelling`.
    """
    shape = {**notes, **spelling(plain, raw, path)}
    if not shape and len(group) == 1 and not keep:
        return tuple(group)
    laid_out = capped(grouped_as(group, format_name=format_name, index=index, shape=FrozenDict(shape)))
    if keep and laid_out[0].provider_raw is None:  # too large; where the first one came from is not
        first = Layout(format=format_name, group=index)
        return tuple([replace(member, provider_raw=None if at else first) for at, member in enumerate(group)])
    return laid_out


def spelled_one(
    value: _T,
    plain: Any,
    raw: Any,
    *,
    format_name: str,
    path: str = "$",
    index: int = 0,
    notes: Mapping[str, Any] = NO_SHAPE,
) -> _T:
    """The value alone: see `spelled`."""
    return spelled((value,), plain, raw, format_name=format_name, path=path, index=index, notes=notes)[0]


def grouped_as(group: Sequence[_T], *, format_name: str, index: int, shape: FrozenDict) -> tuple[_T, ...]:
    """The values with a layout that notes that they belong together, and on the first one how they were written."""
    first = Layout(format=format_name, group=index, size=len(group), shape=shape)
    others = dataclasses.replace(first, shape=NO_SHAPE) if shape else first
    return tuple([replace(member, provider_raw=others if at else first) for at, member in enumerate(group)])


# -- writing: as it was written ----------------------------------------------------------------------------------------


def shape_of(holder: Message | Request | Response, format_name: str) -> FrozenDict:
    """How it was written on the wire of this format; empty if it came from another, or was written plainly."""
    layout = holder.provider_raw
    return layout.shape if layout is not None and layout.format == format_name else NO_SHAPE


def respell(plain: _W, group: Sequence[_T], *, format_name: str, decode: Callable[[Any], Sequence[_T]]) -> _W:
    """`plain`, the wire form of a group, as it was written, if that still decodes to the same values; else `plain`."""
    shape = shape_of(group[0], format_name)
    if "at" not in shape:
        return plain
    spelt: _W = apply(plain, shape)
    return spelt if list(map(wire_content, decode(freeze(spelt)))) == list(map(wire_content, group)) else plain


def respell_one(plain: _W, value: _T, *, format_name: str, decode: Callable[[Any], _T]) -> _W:
    """The same for one request or response. What the fold of a stream marked is given back to `decode`."""
    marks = _marks_of(value, format_name)

    def decode_marked(spelt: Any) -> tuple[_T]:
        return (decode(FrozenDict({**spelt, **marks}) if marks else spelt),)

    return respell(plain, (value,), format_name=format_name, decode=decode_marked)


def _marks_of(value: Message | Request | Response, format_name: str) -> dict[str, Any]:
    if not isinstance(value, Response):
        return {}
    marks = {key: item for key, item in extra_of(value, format_name).items() if is_marked(key)}
    if any(choice.message.status is MessageStatus.PARTIAL for choice in value.choices):
        marks[PARTIAL] = True
    return marks


def wire_content(holder: Message | Request | Response) -> tuple[Any, ...]:
    """What a wire can hold of a message, request or response: no ids, times or context, which the host adds."""
    if isinstance(holder, Message):
        return (holder.role, holder.content, holder.channel, holder.extra)
    own = _own_content(type(holder))(holder)
    if isinstance(holder, Request):
        return (*own, *map(wire_content, holder.messages))
    choices = holder.choices
    return (
        *own,
        *((wire_content(each.message), each.stop_reason, each.raw_stop_reason, each.extra) for each in choices),
    )


@cache
def _own_content(cls: type[Request | Response]) -> Callable[[Request | Response], tuple[Any, ...]]:
    names = (field.name for field in dataclasses.fields(cls) if field.compare)
    return attrgetter(*(name for name in names if name not in ("messages", "choices", "session_id")))


def grouped(messages: Sequence[Message], format_name: str) -> list[tuple[Message, ...]]:
    """Messages grouped by the wire message they came from; any other, or one of an incomplete group, alone."""
    groups: list[tuple[Message, ...]] = []
    at = 0
    while at < len(messages):
        layout, size = messages[at].provider_raw, 1
        if layout is not None and layout.format == format_name and layout.size > 1:
            members = [message.provider_raw for message in messages[at : at + layout.size]]
            own = [each for each in members if each and each.format == format_name and each.group == layout.group]
            size = layout.size if len(own) == layout.size else 1
        groups.append(tuple(messages[at : at + size]))
        at += size
    return groups


def user_runs(parts: Sequence[Part]) -> list[tuple[Role, tuple[Part, ...]]]:
    """The parts of a user's wire message by role: each tool result alone, as TOOL; what is between them, as USER.

    Some formats put the results of tools beside the user's own words; a canonical message has one role. A message
    without parts is one run without parts, of the user.
    """
    runs: list[tuple[Role, list[Part]]] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            runs.append((Role.TOOL, [part]))
        elif runs and runs[-1][0] is Role.USER:
            runs[-1][1].append(part)
        else:
            runs.append((Role.USER, [part]))
    return [(role, tuple(run)) for role, run in runs] or [(Role.USER, ())]


def only_text(message: Message) -> str | None:
    """The text of a message that is one text and nothing else, as most are; None for any other."""
    part = message.content[0] if len(message.content) == 1 and not message.extra else None
    return part.text if type(part) is TextPart and not part.extra else None


# -- wire messages that hold more than one canonical message -----------------------------------------------------------


def joined(
    groups: Iterable[tuple[Message, ...]], mark: Callable[[tuple[Message, ...]], Hashable | None]
) -> list[tuple[Message, ...]]:
    """The groups, those made one that stand next to each other and have the same mark; None is no mark."""
    whole: list[tuple[Message, ...]] = []
    for marked, run in groupby(groups, mark):
        if marked is None:
            whole += run
        else:
            whole.append(tuple(chain.from_iterable(run)))
    return whole


def capped(holders: Sequence[_T]) -> tuple[_T, ...]:
    """The messages of a group, or the one request or response, without their layouts if these are too large [ADP-13].

    All layouts of the group are dropped together: half a layout would be one that was never on the wire.
    """
    shapes = [holder.provider_raw.shape for holder in holders if holder.provider_raw is not None]
    # Counting punctuation too is quicker, and usually shows already that it is small enough.
    if not shapes or _fit(len(dumps(shapes)), holders) or _fit(sum(map(_bytes_in, shapes)), holders):
        return tuple(holders)
    return tuple([replace(holder, provider_raw=None) for holder in holders])


def _fit(size: int, holders: Sequence[Message | Request | Response]) -> bool:
    return any(size <= MAX_SHARE * least for least in _least_bytes(holders))


def _least_bytes(holders: Sequence[Message | Request | Response]) -> Iterator[int]:
    """Growing lower bounds of their size in bytes; the last one is the size of their JSON forms."""
    size = 0
    for holder in holders:
        if isinstance(holder, Message):
            size += _LEAST
            yield size
            continue
        yield ENVELOPE
        for message in messages_of(holder):
            size += len(to_bytes(message))
            yield size
    yield sum(len(to_bytes(holder)) for holder in holders)


def _bytes_in(value: Any) -> int:
    """The bytes of all keys and values without punctuation, since a layout has many keys."""
    if isinstance(value, dict):
        return sum(len(key.encode()) + _bytes_in(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return sum(map(_bytes_in, value))
    return len(value.encode() if isinstance(value, str) else dumps(value))
