"""Checks what a stage returned against the tiers, and merges it with what the stage never saw.

Spec: docs/spec/stages.md [STG-3] to [STG-9]. The rules come from the one table in `cmf.views.tiers`. A violation names
stage, slot, tier and path, and nothing of the stage's work is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from cmf.enums import Role, Tier
from cmf.json.frozen import freeze, thaw
from cmf.json.value import replace, to_json, trusted
from cmf.message.message import (
    DelegationExtension,
    Extensions,
    HttpExtension,
    Message,
    PromptResultPart,
    ToolResultPart,
)
from cmf.message.request import Request, Response
from cmf.message.security import SecurityExtension, exposed, is_sensitive
from cmf.message.transform import messages_of, with_messages
from cmf.views.access import messages_inside
from cmf.views.tiers import SLOTS, granted
from pipeline.decisions.events import HeaderChanged
from pipeline.decisions.stage import MAY_CHANGE, Stage, Traffic

_T = TypeVar("_T", bound=Message | Request | Response)
_IDENTITY: Final = ("id", "session_id", "parent_id", "role", "status", "created_at", "schema_version")
_CONTENT: Final = ("content", "channel", "extra")
_WHOLE_SLOTS: Final = tuple((slot, rule) for slot, rule in SLOTS.items() if "." not in slot)
_NO_SECURITY: Final = trusted(SecurityExtension)
_NOTHING: Final = trusted(Extensions)
_NONE: Final = object()


class TierViolationError(Exception):
    """A stage changed what it may not. The runner turns this into a deny."""

    def __init__(self, stage: str, slot: str, tier: str, path: str) -> None:
        super().__init__(f"stage {stage} changed {slot} ({tier}) at {path}")
        self.stage, self.slot, self.tier, self.path = stage, slot, tier, path


@dataclass(frozen=True, slots=True)
class _Merge:
    """The check of what one stage returned."""

    stage: Stage
    headers: list[HeaderChanged]

    def violation(self, slot: str, tier: str, path: str) -> TierViolationError:
        return TierViolationError(self.stage.name, slot, tier, path)


def merged(stage: Stage, original: _T, given: _T, returned: Traffic) -> tuple[_T, tuple[HeaderChanged, ...]]:
    """`original` with what the stage was allowed to change of what it was given, and the headers that it changed.

    If the stage returned the object that it was given, nothing is checked.

    Raises:
        TierViolationError: it changed what it may not.
    """
    if returned is given:
        return original, ()
    merge = _Merge(stage, [])
    if type(returned) is not type(given):
        raise merge.violation("value", Tier.IMMUTABLE, "$")
    own, shown, back = messages_of(original), messages_of(given), messages_of(returned)
    if len(back) != len(shown):
        if stage.mode not in MAY_CHANGE:
            raise merge.violation("messages", f"mode {stage.mode}", "$.messages")
        raise merge.violation("messages", Tier.IMMUTABLE, "$.messages")
    messages = tuple(
        _message(merge, own_message, seen, new, f"$.messages[{index}]")
        for index, (own_message, seen, new) in enumerate(zip(own, shown, back, strict=True))
    )
    value = with_messages(original, messages)
    if not isinstance(value, Message):
        value = _envelope(merge, value, given, returned)
    return value, tuple(merge.headers)


def _envelope(merge: _Merge, value: Any, given: Any, returned: Any) -> Any:
    """The fields of a request or response besides its messages; a layout from a stage is never taken [A15]."""
    changed = {
        field.name: getattr(returned, field.name)
        for field in fields(given)
        if field.name not in ("messages", "choices", "provider_raw")
        and getattr(returned, field.name) != getattr(given, field.name)
    }
    if isinstance(given, Response):
        for index, (before, after) in enumerate(zip(given.choices, returned.choices, strict=True)):
            if replace(before, message=after.message) != after:
                raise merge.violation(f"choices[{index}]", Tier.IMMUTABLE, f"$.choices[{index}]")
    if "session_id" in changed:
        raise merge.violation("session_id", Tier.IMMUTABLE, "$.session_id")
    if changed and merge.stage.mode not in MAY_CHANGE:
        raise merge.violation(sorted(changed)[0], f"mode {merge.stage.mode}", "$")
    if not changed:
        return value
    return value.model_copy(update={name: to_json(item) for name, item in changed.items()})


def _message(merge: _Merge, original: Message, given: Message, returned: Message, path: str) -> Message:
    if returned is given:
        return original
    for name in _IDENTITY:
        before, after = getattr(given, name), getattr(returned, name)
        if after is not before and after != before:
            raise merge.violation(name, Tier.IMMUTABLE, f"{path}.{name}")
    changed = {
        name: getattr(returned, name)
        for name in _CONTENT
        if getattr(returned, name) is not getattr(given, name) and getattr(returned, name) != getattr(given, name)
    }
    if changed and merge.stage.mode not in MAY_CHANGE:
        raise merge.violation(next(iter(changed)), f"mode {merge.stage.mode}", f"{path}.{next(iter(changed))}")
    extensions = original.extensions
    if returned.extensions is not given.extensions:
        extensions = _extensions(
            merge,
            original.extensions or _NOTHING,
            given.extensions or _NOTHING,
            returned.extensions or _NOTHING,
            f"{path}.extensions",
        )
    if changed:
        # It is validated, since a stage may have built it by hand, of wrong types or of objects that can change. The
        # copy has no layout: a layout describes the message as it came, and is accepted from no stage [A15].
        anew = {name: to_json(item) for name, item in changed.items() if name != "content"}
        if "content" in changed:
            parts = original.content, given.content, returned.content
            anew["content"] = _parts(merge, *parts, path=f"{path}.content")
        return original.model_copy(update={**anew, "extensions": extensions})
    return original if extensions is original.extensions else replace(original, extensions=extensions)


def _parts(merge: _Merge, original: Any, given: Any, returned: Any, *, path: str) -> Any:
    """The JSON form of the parts that a stage returned, in which those that it did not change are the original ones.

    Messages inside a part have context that the stage may not have seen: they are held to the tiers as all others are.
    """
    if not isinstance(returned, tuple | list) or not isinstance(given, tuple):
        return to_json(returned)
    own = {id(seen): part for part, seen in zip(original, given, strict=True)}
    made = []
    for index, part in enumerate(returned):
        at = f"{path}[{index}]"
        if id(part) in own:
            made.append(own[id(part)])
        elif index < len(given) and type(part) is type(given[index]):
            made.append(_part(merge, original[index], given[index], part, at))
        else:  # one that the stage added
            _bring_nothing(merge, messages_inside(trusted(Message, role=Role.TOOL, content=(part,))), at)
            made.append(to_json(part))
    return tuple(made)


def _part(merge: _Merge, original: Any, given: Any, returned: Any, path: str) -> Any:
    if returned == given:
        return original
    if isinstance(returned, PromptResultPart):
        messages = _inner_messages(merge, original.messages, given.messages, returned.messages, f"{path}.messages")
        return {**to_json(replace(returned, messages=())), "messages": messages}
    if isinstance(returned, ToolResultPart):
        content = _parts(merge, original.content, given.content, returned.content, path=f"{path}.content")
        return {**to_json(replace(returned, content=None)), "content": content}
    return to_json(returned)


def _inner_messages(merge: _Merge, original: Any, given: Any, returned: Any, path: str) -> list[Any]:
    """The messages of a prompt's result: each that was there keeps its context, and none is new that brings any."""
    if len(returned) == len(given):
        threes = enumerate(zip(original, given, returned, strict=True))
        return [_message(merge, own, seen, new, f"{path}[{index}]") for index, (own, seen, new) in threes]
    own = {id(seen): message for message, seen in zip(original, given, strict=True)}
    return [own.get(id(new)) or _new_message(merge, new, f"{path}[{index}]") for index, new in enumerate(returned)]


def _new_message(merge: _Merge, message: Message, path: str) -> Any:
    _bring_nothing(merge, [message], path)
    return to_json(message)


def _bring_nothing(merge: _Merge, messages: Iterable[Message], path: str) -> None:
    """Refuse messages that a stage put into a part if they, or messages inside them, have extensions of their own."""
    for message in messages:
        if message.extensions is not None:
            raise merge.violation("extensions", Tier.IMMUTABLE, path)
        _bring_nothing(merge, messages_inside(message), path)


def _extensions(
    merge: _Merge, original: Extensions, given: Extensions, returned: Extensions, path: str
) -> Extensions | None:
    changed: dict[str, Any] = {}
    for slot, rule in _WHOLE_SLOTS:
        before, after = getattr(given, slot), getattr(returned, slot)
        if after is before or after == before:
            continue
        own = getattr(original, slot)
        if rule.tier is Tier.MUTABLE:
            changed[slot] = thaw(_on_top(own, before, after))  # made anew: the stage has what it returned [STG-15]
        elif slot == "http":
            headers = _http(merge, own, before, after, f"{path}.http")
            changed |= {} if headers is own else {slot: headers}
        elif slot == "delegation":
            changed[slot] = _delegation(merge, own, before, after, f"{path}.delegation")
        else:
            raise merge.violation(slot, rule.tier, f"{path}.{slot}")
    security = _security(
        merge,
        original.security or _NO_SECURITY,
        given.security or _NO_SECURITY,
        returned.security or _NO_SECURITY,
        f"{path}.security",
    )
    if not changed:
        if security is not None:  # made here, of the original and of labels that were checked
            return replace(original, security=security)
        return None if original is _NOTHING else original
    if security is not None:
        changed["security"] = security
    return original.model_copy(update=changed)


def _on_top(own: Mapping[str, Any] | None, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> Any:
    """`own`, which concurrent stages made of `before`, with the change from `before` to `after` key by key [STG-8]."""
    if own is before or own == before:
        return after
    current, given, made = own or {}, before or {}, after or {}
    kept = {name: item for name, item in current.items() if name in made or name not in given}
    return kept | {name: item for name, item in made.items() if name not in given or given[name] != item}


def _http(
    merge: _Merge, own: HttpExtension | None, before: HttpExtension | None, after: HttpExtension | None, path: str
) -> HttpExtension | None:
    """The headers with the stage's changes; `own` where it changed none."""
    old = {} if before is None else exposed(before.headers)
    new = {} if after is None else exposed(after.headers)
    # A stage that reads its value from JSON has null for what it was shown: that is no change [EXT-9].
    new = {name: old.get(name) if text is None else text for name, text in new.items()}
    names = [name for name in sorted(old.keys() | new.keys()) if old.get(name, _NONE) != new.get(name, _NONE)]
    if names and not granted(merge.stage.capabilities, SLOTS["http"].write):
        raise merge.violation("http", Tier.GUARDED, path)
    for name in names:
        shown = None if is_sensitive(name) else new.get(name)
        merge.headers.append(HeaderChanged(stage=merge.stage.name, name=name, value=shown, removed=name not in new))
    if not names:
        return own
    if after is None and (own is before or own == before):
        return None
    return HttpExtension(headers=_on_top(None if own is None else exposed(own.headers), old, new))


def _delegation(
    merge: _Merge,
    own: DelegationExtension | None,
    before: DelegationExtension | None,
    after: DelegationExtension | None,
    path: str,
) -> DelegationExtension:
    old = tuple(before.chain) if before is not None else ()
    if (
        not granted(merge.stage.capabilities, SLOTS["delegation"].read)
        or after is None
        or tuple(after.chain[: len(old)]) != old
    ):
        raise merge.violation("delegation", Tier.MONOTONIC, path)
    # A concurrent stage may have extended the chain too: both extensions are kept. They are read anew [STG-15].
    added = to_json(after.chain[len(old) :])
    return DelegationExtension.model_validate({"chain": [*(() if own is None else own.chain), *added]})


def _security(
    merge: _Merge, original: SecurityExtension, given: SecurityExtension, returned: SecurityExtension, path: str
) -> SecurityExtension | None:
    """The security block with labels united; None where nothing was added."""
    if returned is given:
        return None
    for field in ("classification", "subject", "objects", "data"):
        before, after = getattr(given, field), getattr(returned, field)
        if after is not before and after != before:
            raise merge.violation(f"security.{field}", Tier.IMMUTABLE, f"{path}.{field}")
    if not given.labels <= returned.labels:
        raise merge.violation("security.labels", Tier.MONOTONIC, f"{path}.labels")
    added = returned.labels - original.labels
    if not added:
        return None
    if not all(type(label) is str for label in added):
        raise TypeError("a label is a text")
    return replace(original, labels=original.labels | frozenset(map(freeze, added)))
