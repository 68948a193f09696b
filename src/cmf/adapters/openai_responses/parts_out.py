"""From parts to items of the Responses format. Spec: docs/spec/adapters/openai_responses.md [RSP-3] to [RSP-8].

What came from this format carries its own facts in `extra` and goes back as it was; what came from elsewhere is written
plainly, and what cannot be written is dropped with a record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.openai_responses.items import CALLS, FORMAT, INSIDE, ITEM, RESULTS, TEXTS, text_type
from cmf.adapters.wire.call_ids import CallIds, mark, short_form
from cmf.adapters.wire.fields import extra_of
from cmf.adapters.wire.loss import drop, resource_as_text
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.codec import dumps
from cmf.message.binary import type_of
from cmf.message.message import (
    NO_SHAPE,
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

_OWN_KEYS: Final = frozenset({ITEM, INSIDE, "type"})


class ItemWriter:
    """Writes the items of one request, or of one answer; calls and results without ids are paired by order."""

    __slots__ = (
        "_answer",
        "_caller",
        "_facts",
        "_ids",
        "_kind",
        "_made",
        "_message",
        "_open",
        "_stem",
        "_written",
    )

    def __init__(self, *, answer: bool = False, stem: str = "") -> None:
        self._answer = answer
        self._stem = stem  # what the ids that items of an answer lack have between kind and number
        self._ids = CallIds()
        self._made = 0
        self._caller: str | None = None  # the id of the last call
        self._kind: Any = None  # the item type that the part had on this wire, if layout tells
        self._written: list[dict[str, Any]] = []
        self._facts: list[Any] = []  # the original fields of each item; None for one from another format
        self._open: str | None = None  # the kind of the last item while more parts may join it
        self._message: Message

    def items(self, message: Message, kinds: Mapping[str, Any] = NO_SHAPE) -> list[dict[str, Any]]:
        """The items with the content of the message; `kinds`: the original item type, by number of the part."""
        self._written, self._facts, self._open, self._message = [], [], None, message
        for number, part in enumerate(message.content):
            self._kind = kinds.get(str(number)) if kinds else None
            self._add(part)
        return [self._closed(item, facts) for item, facts in zip(self._written, self._facts, strict=True)]

    def _add(self, part: Part) -> None:
        own = extra_of(part, FORMAT)
        if isinstance(part, ThinkingPart | RedactedThinkingPart):
            self._add_thinking(part, own)
        elif isinstance(part, ToolCallPart):
            self._add_call(part, own)
        elif isinstance(part, ToolResultPart):
            self._add_result(part, own)
        elif isinstance(part, OpaquePart) and INSIDE not in own:
            if part.provider == FORMAT:
                self._begin(dict(part.value), {})
            else:
                self._drop(part, "a foreign block")
        else:
            self._add_content(part, own)

    def _begin(self, item: dict[str, Any], facts: Any = None, *, joinable: str | None = None) -> None:
        self._written.append(item)
        self._facts.append(facts)
        self._open = joinable

    def _drop(self, part: Part, reason: str) -> None:
        drop(FORMAT, part.content_type, reason, message=self._message)

    def _closed(self, item: dict[str, Any], facts: Any) -> dict[str, Any]:
        """The item with its original fields; one from another format with those that clients expect in an answer."""
        if isinstance(facts, dict):
            for key, fact in facts.items():
                item.setdefault(key, fact)
        elif self._answer:
            prefix = _ID_PREFIXES.get(str(item.get("type")))
            if prefix is not None:
                item.setdefault("id", f"{prefix}_{self._stem}{self._made}")
                if prefix != "rs":
                    item.setdefault("status", "completed")
            self._made += 1
        return item

    # -- content -------------------------------------------------------------------------------------------------------

    def _add_content(self, part: Part, own: dict[str, Any]) -> None:
        role = self._message.role
        if role is Role.TOOL:
            raise UnsupportedError(
                "this format has no text or media of role tool outside a result",
                about=part,
                hint="make it a tool result",
            )
        if self._answer and isinstance(part, ImagePart) and not own and part.type == "base64":
            self._begin({"type": "image_generation_call", "result": part.data})
            return
        written = self._part(part, own, role)
        if written is None:
            return
        facts = own.get(ITEM)
        if self._open == "message" and not isinstance(facts, dict):
            self._written[-1]["content"].append(written)
            return
        self._begin({"type": "message", "role": role.value, "content": [written]}, facts, joinable="message")

    def _part(self, part: Part, own: dict[str, Any], role: Role) -> dict[str, Any] | None:
        if isinstance(part, TextPart):
            written = self._text(part, own, role)
        elif isinstance(part, ImagePart):
            named = own.get("type")
            written = {"type": named if named == "computer_screenshot" else "input_image"}
            media_type = type_of(part.data, part.media_type)  # images of Ollama have none
            written["file_id" if part.type == "file_ref" else "image_url"] = _url(part.type, media_type, part.data)
        elif isinstance(part, DocumentPart):
            written = {"type": "input_file", _FILE_KEYS[part.type]: _url(part.type, part.media_type, part.data)}
            if part.title is not None:
                written["filename"] = part.title
        elif isinstance(part, AudioPart) and part.type == "base64":
            sound = {"data": part.data, "format": _audio_format(part.media_type)}
            written = {"type": "input_audio", "input_audio": sound}
        elif isinstance(part, AudioPart | VideoPart):
            problem = f"this format cannot carry {part.content_type} from {part.type}"
            raise UnsupportedError(problem, about=part, hint="drop it")
        elif isinstance(part, OpaquePart) and part.provider == FORMAT:
            return dict(part.value)
        elif isinstance(text := resource_as_text(FORMAT, part, message=self._message), TextPart):
            return self._text(text, {}, role)
        else:
            self._drop(part, "no such content part in this format")
            return None
        return with_leftover(written, own)

    def _text(self, part: TextPart, own: dict[str, Any], role: Role) -> dict[str, Any]:
        named = own.get("type")
        kind = named if isinstance(named, str) and named in TEXTS else text_type(role)
        written: dict[str, Any] = {"type": kind, TEXTS[kind]: part.text}
        if self._answer and kind == "output_text":
            written["annotations"] = own.get("annotations", [])
            written["logprobs"] = own.get("logprobs", [])
        return written

    # -- thinking ------------------------------------------------------------------------------------------------------

    def _add_thinking(self, part: ThinkingPart | RedactedThinkingPart, own: dict[str, Any]) -> None:
        facts = own.get(ITEM)
        has_facts = isinstance(facts, dict)
        if self._open != "reasoning" or has_facts:
            if not has_facts and (not self._answer or isinstance(part, RedactedThinkingPart)):
                self._drop(part, "only this provider's own reasoning can be sent back")
                return
            self._begin({"type": "reasoning", "summary": []}, facts, joinable="reasoning")
        item = self._written[-1]
        if isinstance(part, RedactedThinkingPart):
            item["encrypted_content"] = part.data
            return
        kind = own.get("type", "summary_text")
        target = item.setdefault("content", []) if kind == "reasoning_text" else item["summary"]
        target.append(with_leftover({"type": kind, "text": part.text}, own))
        if part.signature is not None:
            if has_facts:
                item["encrypted_content"] = part.signature
            else:
                drop(FORMAT, "signature", "a foreign signature", message=self._message)

    # -- calls and results ---------------------------------------------------------------------------------------------

    def _add_call(self, part: ToolCallPart, own: dict[str, Any]) -> None:
        named = own.get("type", self._kind)
        kind = named if isinstance(named, str) and named in CALLS else "function_call"
        spec = CALLS[kind]
        if kind == "function_call" and part.executed_by == "provider":
            self._drop(part, "a call that another provider ran")
            return
        item: dict[str, Any] = {"type": kind}
        call_id = self._call_id(part)
        if part.tool_call_id is not None or (spec.id_key not in own and spec.id_key == "call_id"):
            item[spec.id_key] = call_id
        if spec.tool is None:
            item["name"] = part.name
            if part.namespace is not None:
                item[spec.space] = part.namespace
        if spec.text is not None:
            raw = part.arguments_raw
            item[spec.text] = raw if raw is not None else dumps(part.arguments or {}).decode()
        elif part.arguments is not None:
            if spec.whole is not None:
                item[spec.whole] = part.arguments
            else:
                item.update({key: part.arguments[key] for key in spec.keys if key in part.arguments})
        self._caller = part.tool_call_id
        self._begin(with_leftover(item, own), {} if own else None, joinable=kind if spec.result is not None else None)

    def _add_result(self, part: ToolResultPart, own: dict[str, Any]) -> None:
        named = own.get("type", self._kind)
        if named is None and part.executed_by == "provider":
            self._join_result(part)
            return
        kind = named if isinstance(named, str) and named in RESULTS else "function_call_output"
        id_key, of_parts = RESULTS[kind]
        item: dict[str, Any] = {"type": kind}
        call_id = self._call_id(part)
        if part.tool_call_id is not None or (id_key not in own and id_key == "call_id"):
            item[id_key] = call_id
        item["output"] = self._output(part.content) if of_parts else part.content
        if part.is_error:
            drop(FORMAT, "is_error", "results have no error flag here", message=self._message)
        self._begin(with_leftover(item, own), {})

    def _call_id(self, part: ToolCallPart | ToolResultPart) -> str:
        """The id as the format takes it; a longer one that came from it is kept [RSP-16]."""
        call_id = self._ids.of(part)
        return call_id if part.extra and mark(FORMAT) in part.extra else short_form(call_id)

    def _join_result(self, part: ToolResultPart) -> None:
        """Put what a hosted tool returned into the item of its call, which it must follow."""
        spec = CALLS.get(self._open) if self._open is not None else None
        if spec is None or spec.result is None or self._caller != part.tool_call_id:
            self._drop(part, "a result that another provider made")
            return
        item = self._written[-1]
        content = part.content
        image = content[0] if isinstance(content, tuple) and content else None
        item[spec.result] = image.data if isinstance(image, ImagePart) else content
        self._open = None

    def _output(self, content: Any) -> Any:
        if content is None or isinstance(content, str):
            return content if content is not None else ""
        if not isinstance(content, tuple):
            return dumps(content).decode()
        written = (self._part(part, extra_of(part, FORMAT), Role.TOOL) for part in content)
        return [part for part in written if part is not None]


_FILE_KEYS: Final = {"base64": "file_data", "url": "file_url", "file_ref": "file_id"}
_ID_PREFIXES: Final = {"message": "msg", "reasoning": "rs", "function_call": "fc", "image_generation_call": "ig"}


def with_leftover(written: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The wire object with its original fields; those that were written take precedence."""
    for key, value in own.items():
        if key not in _OWN_KEYS:
            written.setdefault(key, value)
    return written


def _url(kind: str, media_type: str | None, data: str) -> str:
    return f"data:{media_type};base64,{data}" if kind == "base64" and media_type is not None else data


def _audio_format(media_type: str | None) -> str:
    name = (media_type or "audio/wav").removeprefix("audio/")
    return {"mpeg": "mp3", "x-wav": "wav", "wave": "wav"}.get(name, name)


# -- the form of a message item ----------------------------------------------------------------------------------------


def message_form(item: dict[str, Any]) -> str:
    """How a wire message is spelled: with its type or without, its content as a string or as a list."""
    named = "typed" if item.get("type") == "message" else "easy"
    return named if isinstance(item.get("content"), str) else f"{named}-list"


def default_form(item: dict[str, Any]) -> str:
    """The form of a message for which none is recorded: the shortest."""
    if len(item) > 3:  # it has facts of its own beside type, role and content
        return "typed-list"
    return "easy" if _single_text(item) is not None else "easy-list"


def in_form(item: dict[str, Any], form: str) -> dict[str, Any]:
    """The message item (typed, its content a list) in another form; a string only if nothing is lost."""
    if item.get("type") != "message":
        return item
    if not form.endswith("-list"):
        text = _single_text(item)
        if text is not None:
            item["content"] = text
    if form.startswith("easy"):
        del item["type"]
    return item


def _single_text(item: dict[str, Any]) -> str | None:
    """The text of a message that is just one plain text."""
    content = item.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return None
    part = content[0]
    plain = "output_text" if item.get("role") == Role.ASSISTANT else "input_text"
    return part["text"] if part.keys() == {"type", "text"} and part["type"] == plain else None
