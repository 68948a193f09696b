"""References in a request to content that the provider holds, and that is not in the request itself [C9].

They stand wherever adapters keep them: in parts, in opaque blocks, in `extra` fields. A request with a reference is
refused unless the same content was judged here before, for this subject in this session, and went out unedited.
Spec: docs/spec/references.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cmf.adapters.wire.google_files import is_held
from cmf.message.message import (
    MediaPart,
    Message,
    OpaquePart,
    Part,
    PromptResultPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request, Response, other_models
from cmf.message.transform import messages_of
from pipeline.decisions.decision import Effect, Hit, StageRecord
from pipeline.decisions.stage import Traffic

RULE: Final = "by_reference"
_MARK: Final = "reference"


class Referred(StrEnum):
    """What kind of thing is referred to."""

    RESPONSE = "response"  # an earlier answer, with the conversation before it
    CONVERSATION = "conversation"
    PROMPT = "prompt"
    FILE = "file"
    CACHE = "cache"
    ITEM = "item"
    CONTAINER = "container"
    SKILL = "skill"  # instructions and code that were uploaded
    BACKGROUND = "background"  # the answer is to be fetched later, and not through this pipeline


_CONTENT: Final = "send the content itself"
# What each kind is called, and what a client is told to do instead.
_NAMES: Final[Mapping[Referred, tuple[str, str]]] = {
    Referred.RESPONSE: ("an earlier answer", _CONTENT),
    Referred.CONVERSATION: ("a stored conversation", _CONTENT),
    Referred.PROMPT: ("a prompt beside the messages", "send it as messages"),
    Referred.FILE: ("an uploaded file", _CONTENT),
    Referred.CACHE: ("cached content", _CONTENT),
    Referred.ITEM: ("a stored item", "send the content itself, as clients do with `store: false`"),
    Referred.CONTAINER: ("a container", _CONTENT),
    Referred.SKILL: ("an uploaded skill", _CONTENT),
    Referred.BACKGROUND: ("an answer to fetch later", "wait for the answer instead"),
}


@dataclass(frozen=True, slots=True)
class Reference:
    """One reference: its kind, the id (None where there is none that could be known), and the view that it is in."""

    kind: Referred
    id: str | None
    path: str

    @property
    def mark(self) -> str | None:
        """The mark by which a session records that the content was judged; None if there is no id to make one of."""
        return None if self.id is None else mark(self.kind, self.id)


def mark(kind: Referred, id: str) -> str:
    """The mark of content that was judged: for `Changes.seen` and `SessionStore.seen`."""
    return f"{_MARK}:{kind.value}:{id}"


def references(value: Traffic, since: int = 0) -> tuple[Reference, ...]:
    """All references in a request or message, in order; of a response none, since it goes to no model.

    The messages of a request before index `since` are left out.
    """
    if isinstance(value, Response):
        return ()
    return tuple(_in_request(value, since) if isinstance(value, Request) else _in_message(value, ""))


def refusals(found: Sequence[Reference], seen: Callable[[Collection[str]], frozenset[str]]) -> tuple[StageRecord, ...]:
    """A stage record for each reference to content that was not judged here. They refuse the run in every mode.

    Args:
        found: what `references` gave.
        seen: given some marks, those of them that the session has.
    """
    marks = {one.mark for one in found if one.mark is not None}
    known = seen(marks) if marks else frozenset()
    return tuple(_refusal(one) for one in found if one.mark not in known)


def judged(value: Traffic, released: Traffic) -> frozenset[str]:
    """The marks of what later requests may refer to: that of a response's id, if the response went out unedited.

    If policy edited it, the provider still keeps the unedited content under that id.
    """
    if not isinstance(value, Response) or not isinstance(released, Response) or not same_content(value, released):
        return frozenset()
    ids = (own.get("id") for own in _own_fields(value.extra or {}))
    return frozenset(mark(Referred.RESPONSE, own) for own in ids if isinstance(own, str) and own)


def same_content(value: Traffic, released: Traffic) -> bool:
    """Whether both have the same content; labels and other extensions may differ."""
    own, left = messages_of(value), messages_of(released)
    return len(own) == len(left) and all(
        (one.content, one.extra) == (other.content, other.extra) for one, other in zip(own, left, strict=True)
    )


def _refusal(one: Reference) -> StageRecord:
    name, instead = _NAMES[one.kind]
    hit = Hit(
        rule=RULE,
        code=f"reference.{one.kind.value}",
        effect=Effect.DENY,
        reason=f"This refers to content that was not judged here ({name}, at {one.path}): {instead}.",
        severity="high",
        detail={"path": one.path, "kind": one.kind.value},
    )
    return StageRecord(stage=RULE, mode="sequential", hit=hit, closed=True)


# -- finding them ------------------------------------------------------------------------------------------------------


def _in_request(request: Request, since: int) -> Iterator[Reference]:
    for named in (request.model or "", *other_models(request)):
        if _PRESET in named:
            yield Reference(Referred.PROMPT, named, "request")
    if request.extra:
        for own in _own_fields(request.extra):
            for level in _levels(own):
                yield from _of_request(level)
        yield from _files(request.extra, "request")
    for index, tool in enumerate(request.tools):
        if tool.extra:
            for own in _own_fields(tool.extra):
                yield from _containers(own, f"tools[{index}]")
            yield from _files(tool.extra, f"tools[{index}]")
    for index, message in enumerate(request.messages[since:], since):
        yield from _in_message(message, f"messages[{index}].")


def _levels(own: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """These fields, and the nested ones that a service reads as if they were at this level."""
    yield own
    for key in _MERGED:
        if isinstance(inner := own.get(key), dict):
            yield from _levels(inner)


def _of_request(own: Mapping[str, Any]) -> Iterator[Reference]:
    for key, item in own.items():
        kind = _OF_REQUEST.get(_spelling(key))
        if kind is not None and item is not None and item is not False:
            yield Reference(kind, None if kind is Referred.BACKGROUND else _id(item), "request")
    thread = own.get("thread")  # one that begins brings nothing
    if isinstance(thread, dict) and thread.get("previous_message_id") is not None:
        yield Reference(Referred.RESPONSE, _id(thread["previous_message_id"]), "request")
    yield from _containers(own, "request")


def _containers(own: Mapping[str, Any], path: str) -> Iterator[Reference]:
    held = own.get("container")
    if isinstance(held, str) or (isinstance(held, dict) and held.get("id") is not None):
        yield Reference(Referred.CONTAINER, _id(held), path)
    place = own.get("environment")  # where a shell runs
    for key, named in place.items() if isinstance(place, dict) else ():
        if _spelling(key) == "containerid" and named is not None:
            yield Reference(Referred.CONTAINER, _id(named), path)


def _in_message(message: Message, prefix: str) -> Iterator[Reference]:
    if message.extra:
        yield from _files(message.extra, f"{prefix}content[0]")
    for index, part in enumerate(message.content):
        if type(part) not in _SELF_CONTAINED or part.extra:
            path = f"{prefix}content[{index}]"
            if isinstance(part, ToolCallPart):
                yield from _images(part, message.content[index + 1 : index + 2], path)
            yield from _in_part(part, path)


def _images(call: ToolCallPart, behind: Sequence[Part], path: str) -> Iterator[Reference]:
    """The image of a call that a Responses request names by its id alone, so that the provider fills the image in."""
    for own in _own_fields(call.extra or {}):
        if own.get("type") == _GENERATED and not _is_returned(call, behind):
            named = own.get("id") if call.tool_call_id is None else call.tool_call_id
            if named is not None:
                yield Reference(Referred.ITEM, _id(named), path)


def _is_returned(call: ToolCallPart, behind: Sequence[Part]) -> bool:
    """Whether the image that a call made follows it in the request, with its data."""
    return any(
        isinstance(inner, MediaPart) and bool(inner.data)
        for part in behind
        if isinstance(part, ToolResultPart) and part.tool_call_id == call.tool_call_id
        if isinstance(part.content, tuple)
        for inner in part.content
    )


def _in_part(part: Part, path: str) -> Iterator[Reference]:
    if isinstance(part, MediaPart) and (part.type == "file_ref" or (part.type == "url" and is_held(part.data))):
        yield Reference(Referred.FILE, part.data, path)
    elif isinstance(part, OpaquePart):
        if part.type == "item_reference":
            yield Reference(Referred.ITEM, _id(part.value), path)
        yield from _files(part.value, path)
    elif isinstance(part, ToolResultPart) and isinstance(part.content, tuple):
        for index, inner in enumerate(part.content):
            yield from _in_part(inner, f"{path}.content[{index}]")
    elif isinstance(part, PromptResultPart):
        for index, message in enumerate(part.messages):
            yield from _in_message(message, f"{path}.messages[{index}].")
    if part.extra:
        yield from _files(part.extra, path)


def _files(item: Any, path: str) -> Iterator[Reference]:
    """References to files and skills at any depth. Citations are left out: they bring no content in."""
    if isinstance(item, list):
        for each in item:
            yield from _files(each, path)
        return
    if not isinstance(item, dict) or str(item.get("type", "")).endswith("citation"):
        return
    for key, inner in item.items():
        kind = _HELD.get(_spelling(key))
        if _spelling(key) == "fileuri" and isinstance(inner, str) and is_held(inner):
            kind = Referred.FILE
        if kind is None or inner is None:
            yield from _files(inner, path)
        elif kind is not Referred.SKILL or item.get("type") != _THEIR_OWN:
            for each in inner if isinstance(inner, list) else [inner]:
                yield Reference(kind, _id(each), path)


def _own_fields(extra: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields in `extra`: those of each wire format, or, in a request built by hand, `extra` itself."""
    return [extra, *(own for own in extra.values() if isinstance(own, dict))]


def _id(item: Any) -> str | None:
    """The id that `item` is, or has under `id`; None if it has neither form."""
    named = item.get("id") if isinstance(item, dict) else item
    return named if isinstance(named, str) and named else None


def _spelling(key: str) -> str:
    return key.replace("_", "").lower()


_OF_REQUEST: Final = {
    "previousresponseid": Referred.RESPONSE,
    "conversation": Referred.CONVERSATION,
    "prompt": Referred.PROMPT,
    "background": Referred.BACKGROUND,
    "cachedcontent": Referred.CACHE,
    "continuationtoken": Referred.RESPONSE,
    "preset": Referred.PROMPT,
}
_HELD: Final = {"fileid": Referred.FILE, "fileids": Referred.FILE, "skillid": Referred.SKILL}
_MERGED: Final = ("extra_body", "google")  # of LiteLLM's proxy and of Gemini's endpoint for OpenAI clients
_PRESET: Final = "@preset/"  # OpenRouter's: a prompt that it keeps, and a model with it
_THEIR_OWN: Final = "anthropic"  # the type of skills that nobody uploaded: the provider's own, like its tools
_GENERATED: Final = "image_generation_call"
_SELF_CONTAINED: Final = frozenset({TextPart, ThinkingPart, ToolCallPart})  # except for their `extra` from the wire
