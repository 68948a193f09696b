"""Edits that rules asked for, carried out: redact, rewrite, strip. Spec: docs/spec/effects.md.

An edit that cannot be carried out is never skipped: `EffectError` becomes a deny of the part.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, Final

from cmf.adapters.wire.replies import silent
from cmf.enums import Role
from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import FrozenDict, freeze, thaw
from cmf.json.value import replace
from cmf.message.message import (
    Message,
    Part,
    PromptRequestPart,
    PromptResultPart,
    RedactedThinkingPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Choice, Request, Response
from cmf.views.render import exact_json, result_text
from pipeline.decisions.decision import EDITS, EXTRA, Effect, Hit, Mode, ViewDecision
from pipeline.decisions.errors import EffectError
from pipeline.decisions.paths import edit, holds_parts

MASK: Final = "[MASKED]"


class Replacer:
    """Makes the text that replaces what was removed. By `hash` and `token`, equal values get equal replacements.

    `key` is 16 random bytes or more. Without it nobody can find a value by hashing guesses.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._tokens: dict[str, int] = {}

    def __call__(self, removed: str, how: str) -> str:
        """The replacement for `removed`; `how` is mask, hash, drop or token."""
        if how == "drop":
            return ""
        if how == "hash":
            return f"[HASH:{hmac.new(self._key, removed.encode(), hashlib.sha256).hexdigest()[:16]}]"
        if how == "token":
            return f"[TOKEN_{self._tokens.setdefault(removed, len(self._tokens) + 1)}]"
        return MASK


def apply_edits(
    value: Message | Request | Response,
    views: Iterable[ViewDecision],
    mode: Mode,
    replacer: Replacer,
    removed_paths: list[str] | None = None,
) -> Message | Request | Response:
    """`value` with the enforced redactions, rewrites and removals of all views carried out.

    Later paths are edited first, so that a removal never moves what is still to be edited. The paths of removed parts
    are appended to `removed_paths`.

    Raises:
        EffectError: an edit does not fit what it names (a span beyond the text, say); `path` says where.
    """
    if mode is not Mode.ENFORCE:
        return value
    before = value
    changes = [
        (view.path, partial(_edited, hits, view.path, replacer, removed_paths))
        for view in reversed(list(views))
        if (hits := [hit for hit in view.hits if hit.effect in EDITS and hit.enforced])
    ]
    value = edit(value, changes) if changes else value
    if isinstance(value, Request):
        value = _with_fitting_choice(before, value)
    return value if value is before else _without_echoes(before, value)


def _edited(hits: list[Hit], path: str, replacer: Replacer, removed: list[str] | None, part: Any) -> Any:
    edited = None
    if not any(hit.effect is Effect.STRIP_TOOL for hit in hits):
        pointed = [hit for hit in hits if "pointer" in hit.fields]
        edited = _edited_fields(part, pointed, path, replacer) if pointed else part
        spans = _merged_spans(hits)
        edited = _redact_spans(edited, spans, path, replacer) if spans else edited
    if edited is None and removed is not None:
        removed.append(path)
    return edited


def _with_fitting_choice(before: Message | Request | Response, request: Request) -> Request:
    """The request without removed tools among those that its choice names."""
    choice = request.tool_choice
    if choice is None:
        return request
    names = {tool.name for tool in request.tools}
    if choice.allowed is not None and isinstance(before, Request) and before.tools != request.tools:
        removed = {tool.name for tool in before.tools} - names
        choice = replace(choice, allowed=tuple(name for name in choice.allowed if name not in removed))
    if (choice.name is not None and choice.name not in names) or (choice.mode == "required" and choice.allowed == ()):
        raise EffectError(
            "the tool choice names a tool that policy removed",
            path="request",
            code="effect.tool-choice-stripped",
            hint="let the request choose another tool",
        )
    return request if choice is request.tool_choice else replace(request, tool_choice=choice)


# -- echoes ------------------------------------------------------------------------------------------------------------


def _without_echoes(before: Any, after: Any) -> Any:
    """`after` without the fields that may repeat what an edit removed from the model's words."""
    if isinstance(after, Message):
        return _silenced(before, after)
    if isinstance(after, Request):
        messages = tuple(map(_silenced, before.messages, after.messages))
        changed = any(new is not old for new, old in zip(messages, after.messages, strict=True))
        return replace(after, messages=messages) if changed else after
    choices = tuple(
        replace(new, message=_silenced(old.message, new.message), extra=silent(new.extra)) if _resaid(old, new) else new
        for old, new in zip(before.choices, after.choices, strict=True)
    )
    edited = any(map(_resaid, before.choices, choices))
    return replace(after, choices=choices, extra=silent(after.extra)) if edited else after


def _resaid(before: Choice, after: Choice) -> bool:
    """Whether an edit changed the words of a model. What accompanies a tool's result is the protocol's, and stays."""
    return after is not before and after.message.role is Role.ASSISTANT


def _silenced(before: Message, after: Message) -> Message:
    if after is before or after.role is not Role.ASSISTANT or not after.extra:
        return after
    return replace(after, extra=silent(after.extra))


# -- spans -------------------------------------------------------------------------------------------------------------


def _merged_spans(hits: list[Hit]) -> list[tuple[int, int, str]]:
    """Disjoint spans, the last one first. Spans that overlap become one, with the stricter replacement of the two."""
    spans = sorted(
        (span[0], span[1], hit.fields.get("replacement", "mask"))
        for hit in hits
        for span in hit.fields.get("spans", ())
    )
    merged: list[tuple[int, int, str]] = []
    for start, end, how in spans:
        if merged and start < merged[-1][1]:
            first, last, before = merged[-1]
            merged[-1] = (first, max(last, end), min(before, how, key=_STRICT.index))
        else:
            merged.append((start, end, how))
    return merged[::-1]


_STRICT: Final = ("drop", "mask", "token", "hash")


def _cut(text: str, spans: list[tuple[int, int, str]], path: str, replacer: Replacer) -> str:
    pieces, until = [], len(text)  # from the back
    for start, end, how in spans:
        if end > len(text):
            raise EffectError(
                "a span ends past the text",
                path=path,
                code="effect.span-outside",
                hint="spans are offsets in input.content",
            )
        pieces += [text[end:until], replacer(text[start:end], how)]
        until = start
    return "".join(reversed([*pieces, text[:until]]))


def _redact_spans(part: Part, spans: list[tuple[int, int, str]], path: str, replacer: Replacer) -> Part | None:
    match part:
        case ThinkingPart(signature=signature) if signature is not None:
            return None  # a signed part is removed whole: an edited one would be a forgery [C12]
        case RedactedThinkingPart():
            return None
        case TextPart() | ThinkingPart():
            return _edited_part(part, text=_cut(part.text, spans, path, replacer))
        case ResourcePart(content=str() as text):
            return _edited_part(part, content=_cut(text, spans, path, replacer), size_bytes=None)
        case PromptResultPart(content=str() as text):
            return _edited_part(part, content=_cut(text, spans, path, replacer))
        case PromptResultPart(error_message=str() as text):
            return _edited_part(part, error_message=_cut(text, spans, path, replacer))
        case ToolResultPart():
            return _redact_result(part, spans, path, replacer)
        case _:
            raise EffectError(
                f"{type(part).__name__} has no text to cut", path=path, code="effect.no-text", hint="deny it instead"
            )


def _redact_result(part: ToolResultPart, spans: list[tuple[int, int, str]], path: str, replacer: Replacer) -> Part:
    if holds_parts(part):
        return part  # its text is that of the parts inside it, which are judged and edited on their own
    text = _cut(result_text(part.content), spans, path, replacer)
    if isinstance(part.content, str):
        return _edited_part(part, content=text)
    try:
        return _edited_part(part, content=freeze(loads(text)))
    except CmfError as error:
        raise EffectError(
            "cutting there would break the JSON",
            path=path,
            code="effect.breaks-json",
            hint="cut inside the quotes of a string",
        ) from error


def _edited_part(part: Part, **fields: Any) -> Part:
    edited: Part = part.edited(**fields)
    return edited


# -- pointers ----------------------------------------------------------------------------------------------------------


def _without_moving(hits: list[Hit]) -> list[Hit]:
    """The hits in an order in which none moves or removes what a later one names; each place is removed once.

    Extra fields are removed first, since an edit of arguments takes them all; arguments last, and from the back.
    """
    removals = {_place(hit): hit for hit in hits if _removes(hit)}
    from_the_back = [removals[place] for place in sorted(removals, reverse=True)]
    extra = [hit for hit in from_the_back if _is_extra(hit)]
    arguments = [hit for hit in from_the_back if not _is_extra(hit)]
    return [*extra, *(hit for hit in hits if not _removes(hit)), *arguments]


def _removes(hit: Hit) -> bool:
    return _is_extra(hit) or (hit.effect is Effect.REDACT and hit.fields.get("replacement") == "drop")


def _is_extra(hit: Hit) -> bool:
    pointer: str = hit.fields["pointer"]
    return pointer.startswith(EXTRA)


def _place(hit: Hit) -> tuple[tuple[int, str], ...]:
    """What its pointer names; places in a list in their order, since of two indices the longer is the later one."""
    return tuple((len(token), token) for token in _tokens(hit.fields["pointer"]))


def _tokens(pointer: str) -> list[str]:
    return [token.replace("~1", "/").replace("~0", "~") for token in pointer.split("/")[1:]]


def _edited_fields(part: Any, hits: list[Hit], path: str, replacer: Replacer) -> Any:
    """The part with the edits of its arguments and extra fields, which are copied once for all of them."""
    opened: dict[str, Any] = {}
    gaps: dict[int, list[Any]] = {}
    for hit in _without_moving(hits):
        name, tokens = _field_of(part, hit, path)
        if name not in opened:
            opened[name] = thaw(getattr(part, name))
        if hit.effect is Effect.REWRITE:
            _edit_at(opened[name], tokens, partial(_given, hit), path, gaps, adds=True)
        elif _removes(hit):
            _edit_at(opened[name], tokens, lambda _: _REMOVED, path, gaps)
        else:
            _edit_at(opened[name], tokens, partial(_hidden, hit, replacer), path, gaps)
    for items in gaps.values():
        items[:] = [item for item in items if item is not _REMOVED]
    if "extra" in opened:
        part = replace(part, extra=FrozenDict(opened["extra"]) or None)
    return part.edited(arguments=FrozenDict(opened["arguments"])) if "arguments" in opened else part


def _field_of(part: Any, hit: Hit, path: str) -> tuple[str, list[str]]:
    """The field of the part that the hit's pointer leads into, and where in it.

    Raises:
        EffectError: the part has no such field, or the effect may not edit it.
    """
    tokens = _tokens(hit.fields["pointer"])
    is_call = isinstance(part, ToolCallPart | PromptRequestPart)
    if hit.effect is Effect.REWRITE and not is_call:
        raise EffectError(
            "only arguments can be rewritten", path=path, code="effect.bad-pointer", hint="redact it instead"
        )
    if hit.effect is Effect.REWRITE or (tokens[0] == "arguments" and is_call and len(tokens) > 1):
        if part.arguments is None:
            raise EffectError(
                "the call has no readable arguments", path=path, code="effect.no-arguments", hint="deny it instead"
            )
        return "arguments", tokens[1:]
    if tokens[:2] == ["properties", "extra"] and getattr(part, "extra", None) is not None and len(tokens) > 2:
        return "extra", tokens[2:]
    raise EffectError(
        "this pointer cannot be redacted",
        path=path,
        code="effect.bad-pointer",
        hint="name /arguments/… of a call, or /properties/extra/…",
    )


def _given(hit: Hit, before: Any) -> Any:
    return _with_numbers(thaw(hit.fields["value"]), before)


def _with_numbers(given: Any, before: Any) -> Any:
    """The given value with the numbers that policy was shown as texts, and gives back at their places, as they were."""
    if isinstance(given, dict) and isinstance(before, dict):
        return {key: _with_numbers(item, before.get(key)) for key, item in given.items()}
    if isinstance(given, list) and isinstance(before, list):
        return [_with_numbers(*pair) for pair in zip_longest(given, before[: len(given)])]
    is_number = type(before) in (int, float)
    return before if is_number and isinstance(given, str) and exact_json(before, "", {}) == given else given


def _hidden(hit: Hit, replacer: Replacer, found: Any) -> str:
    return replacer(found if isinstance(found, str) else dumps(found).decode(), hit.fields.get("replacement", "mask"))


_REMOVED: Final = object()
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")  # one spelling for each place, as RFC 6901 has it


def _edit_at(
    root: Any,
    tokens: list[str],
    change: Callable[[Any], Any],
    path: str,
    gaps: dict[int, list[Any]],
    *,
    adds: bool = False,
) -> None:
    """Apply `change` to what the pointer's tokens name in `root`, which is a fresh copy.

    What is removed from a list leaves a gap, and the list is added to `gaps`: to close each gap at once would move all
    that follows it. With `adds`, the last token may be a new key of an object; `change` is then called with None.
    """
    holder = root
    for token in tokens[:-1]:
        holder = _step(holder, token, path)
    last = tokens[-1]
    is_new = adds and isinstance(holder, dict) and last not in holder
    done = change(None if is_new else _step(holder, last, path))
    if isinstance(holder, list):
        holder[int(last)] = done
        if done is _REMOVED:
            gaps[id(holder)] = holder
    elif done is _REMOVED:
        del holder[last]
    else:
        holder[last] = done


def _step(holder: Any, token: str, path: str) -> Any:
    if isinstance(holder, Mapping) and token in holder:
        return holder[token]
    if isinstance(holder, list) and _INDEX.fullmatch(token) and int(token) < len(holder):
        return holder[int(token)]
    raise EffectError(
        "a pointer names nothing", path=path, code="effect.bad-pointer", hint="look whether it is there first"
    )
