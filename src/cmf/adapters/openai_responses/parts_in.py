"""From items of the Responses format to parts. Spec: docs/spec/adapters/openai_responses.md [RSP-3] to [RSP-8].

Bodies are frozen once at the door (which checks depth, text and types), so every piece can be shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cmf.adapters.openai_responses.items import (
    CALLS,
    CLIENT_RESULTS,
    FORMAT,
    INSIDE,
    ITEM,
    RESULTS,
    ROLES,
    TEXTS,
    CallItem,
    Runner,
    role_of,
    text_type,
)
from cmf.adapters.wire.call_ids import is_short, with_mark
from cmf.adapters.wire.fields import Fields, role_named
from cmf.enums import Role
from cmf.errors import ShapeError
from cmf.json.codec import loads_object
from cmf.json.frozen import FrozenDict, FrozenList, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.binary import data_url
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

IMAGE_FORMATS: Final = frozenset({"png", "jpeg", "webp"})
_HINT: Final = "see the provider's reference"


class ItemReader:
    """Reads the items of one request, or of one answer, in order: a result takes the name of the call it answers."""

    __slots__ = ("_answer", "_answered", "_names")

    def __init__(self, *, answer: bool = False, items: Iterable[Any] = ()) -> None:
        self._answer = answer
        self._names: dict[str, str] = {}
        # What an answer itself answers was run by the provider.
        self._answered = {_answered_id(item) for item in items} if answer else set()

    def expect(self, part: Part) -> None:
        """Take the name that a result is known to answer, where its call is not among the items read here."""
        if isinstance(part, ToolResultPart) and part.tool_call_id is not None and part.tool_name is not None:
            self._names.setdefault(part.tool_call_id, part.tool_name)

    def read(self, item: Any, path: str) -> tuple[Role, tuple[Part, ...]]:
        """The role of an item, and its parts. An item that has no canonical shape is one opaque part."""
        if not isinstance(item, dict):
            raise ShapeError("an item must be an object", path=path, hint=_HINT)
        kind = item.get("type")
        if kind == "message" or (kind is None and "role" in item):
            return self._message(item, path)
        if not isinstance(kind, str):
            return Role.USER, (opaque(item, "item_reference"),)
        parts: tuple[Part, ...] | None = None
        if kind == "reasoning":
            parts = _reasoning(item)
        elif kind in CALLS:
            parts = self._call(item, kind, CALLS[kind])
        elif kind in RESULTS:
            parts = self._result(item, kind)
        return role_of(kind, item), parts if parts is not None else (opaque(item, kind),)

    def _message(self, item: dict[str, Any], path: str) -> tuple[Role, tuple[Part, ...]]:
        role = self._role(item, path)
        content = item.get("content")
        if role is None:
            return Role.ASSISTANT, (opaque(item, "message"),)
        if isinstance(content, str):
            parts: list[Part] = [trusted(TextPart, text=content)]
        elif isinstance(content, list) and content and all(isinstance(part, dict) for part in content):
            parts = [self._part(part, role) for part in content]
        else:
            return role, (opaque(item, "message"),)
        facts = {
            key: fact
            for key, fact in item.items()
            if key not in ("role", "content") and not (key == "type" and fact == "message")
        }
        if facts or self._answer:
            parts[0] = _with_item(parts[0], facts)
        return role, tuple(parts)

    def _role(self, item: dict[str, Any], path: str) -> Role | None:
        named = item.get("role")
        if self._answer:
            return Role.ASSISTANT if named == "assistant" or "role" not in item else None
        if not isinstance(named, str):
            raise ShapeError("a message needs a role", path=f"{path}.role", hint=_HINT)
        return role_named(named, ROLES, path)

    def _part(self, part: dict[str, Any], role: Role, *, within: str | None = "message") -> Part:
        """One content part; `within` is None where parts and items cannot be mixed up."""
        kind = part.get("type")
        canonical: Part | None = None
        if isinstance(kind, str) and ITEM not in part and INSIDE not in part:
            if kind in TEXTS:
                canonical = self._text(part, kind, role)
            elif kind in ("input_image", "computer_screenshot"):
                canonical = _image(part)
            elif kind == "input_file":
                canonical = _file(part)
            elif kind == "input_audio":
                canonical = _audio(part)
        if canonical is not None:
            return canonical
        mark = frozen_mapping({FORMAT: frozen_mapping({INSIDE: within})}) if within is not None else None
        return opaque(part, kind if isinstance(kind, str) else "part", extra=mark)

    def _text(self, part: dict[str, Any], kind: str, role: Role) -> TextPart | None:
        fields = Fields(part, "")
        text = fields.take(TEXTS[kind], str)
        if text is None:
            return None
        if kind == text_type(role):
            fields.drop("type", kind)
            if self._answer:
                for name in ("annotations", "logprobs"):  # the encoder writes them, so empty ones are spelling
                    fields.drop(name, FrozenList())
        return trusted(TextPart, text=text, extra=fields.rest(FORMAT))

    def _call(self, item: dict[str, Any], kind: str, spec: CallItem) -> tuple[Part, ...] | None:
        fields = Fields(item, "")
        left = fields.left()
        if kind == "function_call":
            fields.drop("type", kind)
        name = spec.tool if spec.tool is not None else fields.take("name", str)
        given = _arguments(left, spec)
        if name is None or given is None:
            return None
        call_id = fields.take(spec.id_key, str)
        namespace = fields.take(spec.space, str) if spec.tool is None else None
        if call_id is not None:
            self._names[call_id] = name
        runner = self._runner(kind, spec, item, call_id)
        result = None
        if spec.result is not None and left.get(spec.result) is not None:
            content = _provider_result(left.pop(spec.result), kind, left)
            result = trusted(
                ToolResultPart,
                tool_call_id=call_id,
                tool_name=name,
                content=content,
                is_error=left.get("error") is not None,
                executed_by=runner,
            )
        arguments, raw = given
        extra = _with_long_id(fields.rest(FORMAT), call_id)
        call = trusted(
            ToolCallPart,
            tool_call_id=call_id,
            name=name,
            arguments=arguments,
            arguments_raw=raw,
            namespace=namespace,
            executed_by=runner,
            extra=extra,
        )
        return (call,) if result is None else (call, result)

    def _runner(self, kind: str, spec: CallItem, item: dict[str, Any], call_id: str | None) -> Runner:
        if kind == "tool_search_call":
            return "provider" if item.get("execution") == "server" else "client"
        if spec.tool is None:
            return spec.runner  # the client's own tools: an answer that holds their outputs repeats history
        return "provider" if call_id is not None and call_id in self._answered else spec.runner

    def _result(self, item: dict[str, Any], kind: str) -> tuple[Part, ...] | None:
        id_key, of_parts = RESULTS[kind]
        content = item.get("output")
        if isinstance(content, list) and of_parts:
            if not all(isinstance(part, dict) for part in content):
                return None
            content = tuple(self._part(part, Role.TOOL, within=None) for part in content) or content
        elif of_parts and not (content is None or isinstance(content, str)):
            return None
        fields = Fields(item, "")
        fields.left().pop("output", None)
        if kind == "function_call_output":
            fields.drop("type", kind)
        call_id = fields.take(id_key, str)
        part = trusted(
            ToolResultPart,
            tool_call_id=call_id,
            tool_name=self._names.get(call_id) if call_id is not None else None,
            content=content,
            executed_by="provider" if self._answer and kind not in CLIENT_RESULTS else "client",
            extra=_with_long_id(fields.rest(FORMAT), call_id),
        )
        return (part,)


def opaque(block: dict[str, Any], kind: str, *, extra: FrozenDict | None = None) -> OpaquePart:
    """A block that has no canonical shape, whole."""
    return trusted(OpaquePart, provider=FORMAT, type=kind, value=block, extra=extra)


def _answered_id(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, dict) else None
    answered = item.get(RESULTS[kind][0]) if isinstance(kind, str) and kind in RESULTS else None
    return answered if isinstance(answered, str) else None


def _with_item(part: Part, facts: dict[str, Any]) -> Part:
    """The part, marked as the first of an item with these facts."""
    own = dict(part.extra[FORMAT]) if part.extra is not None else {}
    own[ITEM] = frozen_mapping(facts)
    return replace(part, extra=frozen_mapping({FORMAT: frozen_mapping(own)}))


def _with_long_id(extra: FrozenDict | None, call_id: str | None) -> FrozenDict | None:
    """The other fields; an id that is longer than the format's reference allows is kept, and marked so [RSP-16]."""
    return extra if call_id is None or is_short(call_id) else with_mark(extra, FORMAT)


def _arguments(left: dict[str, Any], spec: CallItem) -> tuple[FrozenDict | None, str | None] | None:
    """Arguments and raw arguments, taken out of `left`; None where they have a shape of their own."""
    if spec.keys:
        return frozen_mapping({key: left.pop(key) for key in spec.keys if key in left}), None
    key = spec.text or spec.whole or ""
    value = left.pop(key, None)
    if not value and spec.text is not None and isinstance(value, str | None):
        return FrozenDict(), None
    if value is None:
        return None, None
    if spec.text is None:
        return (value, None) if isinstance(value, FrozenDict) else None
    if not isinstance(value, str):
        return None
    read = loads_object(value)
    return (None, value) if read is None else (freeze(read), None)


def _provider_result(value: Any, kind: str, left: dict[str, Any]) -> Any:
    if kind != "image_generation_call" or not isinstance(value, str):
        return value
    named = left.get("output_format")
    media_type = f"image/{named}" if isinstance(named, str) and named in IMAGE_FORMATS else None
    return (trusted(ImagePart, type="base64", data=value, media_type=media_type),)


def _reasoning(item: dict[str, Any]) -> tuple[Part, ...] | None:
    parts: list[Part] = []
    for key, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
        entries = item.get(key)
        if entries is None or entries == []:
            continue
        if not isinstance(entries, list):
            return None
        for entry in entries:
            if not isinstance(entry, dict) or entry.get("type") != kind or not isinstance(entry.get("text"), str):
                return None
            if ITEM in entry or INSIDE in entry:
                return None
            fields = Fields(entry, "")
            text = fields.take("text", str)
            if kind == "summary_text":
                fields.drop("type", kind)
            parts.append(trusted(ThinkingPart, text=text, extra=fields.rest(FORMAT)))
    sealed = item.get("encrypted_content")
    if sealed is not None and not isinstance(sealed, str):
        return None
    if not parts:
        if sealed is None:
            return None
        parts.append(trusted(RedactedThinkingPart, data=sealed))
    elif sealed is not None:
        parts[0] = replace(parts[0], signature=sealed)
    read_keys = ("type", "summary", "content", "encrypted_content")
    parts[0] = _with_item(parts[0], {key: value for key, value in item.items() if key not in read_keys})
    return tuple(parts)


# -- media -------------------------------------------------------------------------------------------------------------


def _source(fields: Fields, *, inline: str, url: str | None) -> dict[str, Any] | None:
    """`type`, `data` and `media_type` of a media part, taken out of its fields."""
    text = fields.take(inline, str)
    if text is not None:
        inline_data = data_url(text)
        if inline_data is not None and inline_data[0]:
            return {"type": "base64", "media_type": inline_data[0], "data": inline_data[1]}
        return {"type": "url" if inline == "image_url" else "base64", "data": text}
    for key, kind in ((url, "url"), ("file_id", "file_ref")):
        if key is not None and (text := fields.take(key, str)) is not None:
            return {"type": kind, "data": text}
    return None


def _image(part: dict[str, Any]) -> ImagePart | None:
    fields = Fields(part, "")
    fields.drop("type", "input_image")
    source = _source(fields, inline="image_url", url=None)
    return None if source is None else trusted(ImagePart, **source, extra=fields.rest(FORMAT))


def _file(part: dict[str, Any]) -> DocumentPart | None:
    fields = Fields(part, "")
    fields.drop("type", "input_file")
    source = _source(fields, inline="file_data", url="file_url")
    if source is None:
        return None
    return trusted(DocumentPart, **source, title=fields.take("filename", str), extra=fields.rest(FORMAT))


def _audio(part: dict[str, Any]) -> AudioPart | None:
    sound = part.get("input_audio")
    if not isinstance(sound, dict) or sound.keys() != {"data", "format"}:
        return None
    if not isinstance(sound["data"], str) or not isinstance(sound["format"], str):
        return None
    fields = Fields(part, "")
    fields.take("input_audio", dict)
    fields.drop("type", "input_audio")
    media_type = f"audio/{sound['format']}"
    return trusted(AudioPart, type="base64", data=sound["data"], media_type=media_type, extra=fields.rest(FORMAT))
