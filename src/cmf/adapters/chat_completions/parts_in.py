"""Chat-completions messages as canonical ones. Spec: docs/spec/adapters/openai_chat.md [OAC-1] to [OAC-9].

Decoding is total: what has no canonical field stays in `extra`. A null, an empty list or an empty text under a key that
is known means the same as its absence, so it is layout, not content.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import JSON, ROLES, THOUGHTS, Dialect
from cmf.adapters.wire.fields import Fields, role_named
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message import binary
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    SourceType,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

Names = dict[str, str]  # the tool that a call id of the same request belongs to
Taken = Part | None
Take = Callable[[Fields, Dialect], Taken]

_PLAIN_KEYS: Final = frozenset({"role", "content"})
_MESSAGE_NULLS: Final = (
    "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "reasoning", "reasoning_content",
    "reasoning_details", "name",
)  # fmt: skip


def read_plain(raw: Any) -> Message | None:
    """The message that is nothing but a role and a text, which is written so again; None for any other."""
    if not isinstance(raw, dict) or raw.keys() != _PLAIN_KEYS:
        return None
    name, text = raw["role"], raw["content"]
    role = ROLES.get(name) if isinstance(name, str) and isinstance(text, str) and text else None
    if role is None or role is Role.TOOL:
        return None
    return trusted(Message, role=role, content=(trusted(TextPart, text=text),))


def decoded_message(raw: Any, path: str, dialect: Dialect, names: Names, *, reply: bool = False) -> Message:
    """One message of a request, or (with `reply`) of a choice. Fills `names` with the calls that it makes."""
    fields = Fields(raw, path)
    fields.drop_nulls(_MESSAGE_NULLS)
    name = fields.take("role", str)
    if reply:
        name = _reply_role(fields, name)
    role = role_named(name, ROLES, path)
    if role is Role.TOOL:
        part = _tool_result(fields, dialect, names)
        form = "function" if name == "function" else None
        return trusted(Message, role=role, content=(part,), extra=dialect.rest(fields, form))
    parts: list[Part] = []
    joined = _reasoning(fields, dialect, parts) if role is Role.ASSISTANT else None
    _content(fields, dialect, parts, reply=reply, from_model=role is Role.ASSISTANT)
    if role is Role.ASSISTANT:
        _answer(fields, dialect, parts, names)
    return trusted(Message, role=role, content=tuple(parts), extra=dialect.rest(fields, joined))


def _reply_role(fields: Fields, name: str | None) -> str:
    if not name and fields.peek("role") is None:  # null, absent or empty: some services leave it to the client
        fields.drop("role", None)
        return "assistant"
    if name != "assistant":
        hint = "send other roles in a request"
        raise UnknownRoleError("a reply has the role `assistant`", path=f"{fields.path}.role", hint=hint)
    return name


def _tool_result(fields: Fields, dialect: Dialect, names: Names) -> ToolResultPart:
    call_id = fields.need("tool_call_id", str) if fields.peek("tool_call_id") is not None else None
    name = fields.peek("name")  # stays in `extra` too: the encoder must know that the wire had it
    if not isinstance(name, str):
        name = names.get(call_id) if call_id is not None else None
    content: Any = fields.take("content", str)
    if content is None and fields.peek("content") is not None:
        listed = fields.need("content", list)
        content = tuple(_blocks(listed, f"{fields.path}.content", dialect)) or listed
    return trusted(ToolResultPart, tool_call_id=call_id, tool_name=name, content=content)


def _content(fields: Fields, dialect: Dialect, parts: list[Part], *, reply: bool, from_model: bool) -> None:
    """The parts of `content`. That of a model may be any JSON: some services parse its answer for the client."""
    text = fields.take("content", str)
    if text is not None:
        if text:
            parts.append(trusted(TextPart, text=text))
        return
    if fields.peek("content") is None:
        return
    content = fields.peek("content")
    is_blocks = isinstance(content, list) and all(isinstance(block, dict) for block in content)
    if from_model and not is_blocks:
        text = dumps(fields.left().pop("content")).decode()
        parts.append(trusted(TextPart, text=text, extra=dialect.mark(JSON)))
        return
    listed = _blocks(fields.need("content", list), f"{fields.path}.content", dialect)
    if reply:
        # A client expects one text in a reply, so a list is marked as one; in a request both forms mean the same.
        listed = [_as_block(part, dialect) for part in listed]
    parts += listed


def _as_block(part: Part, dialect: Dialect) -> Part:
    if dialect.key_of(part) is not None:
        return part
    return replace(part, extra=frozen_mapping({**(part.extra or {}), **dialect.mark("block")}))


def _reasoning(fields: Fields, dialect: Dialect, parts: list[Part]) -> str | None:
    """The thinking beside the content. Gives the key whose text only repeats that of `reasoning_details`, if one does.

    Several details joined are a text of their own, which policy has to see in one piece.
    """
    details = _details(fields, dialect)
    texts = [part.text for part in details if isinstance(part, ThinkingPart) and part.text]
    whole = texts[0] if len(texts) == 1 else None
    repeated = None
    for key in THOUGHTS:
        text = fields.take(key, str)
        if text and text == whole and repeated is None:
            repeated = key
        elif text:
            extra = dialect.mark(key)
            parts.append(trusted(ThinkingPart, text=text, extra=extra))
    parts += details
    return repeated


def _details(fields: Fields, dialect: Dialect) -> list[Part]:
    listed = fields.take("reasoning_details", list)
    if listed is None:
        return []
    if not all(isinstance(item, dict) for item in listed):
        fields.put_back("reasoning_details", listed)
        return []
    return [_detail(item, fields.path, dialect) for item in listed]


def _detail(raw: FrozenDict, path: str, dialect: Dialect) -> Part:
    fields = Fields(raw, path)
    kind = raw.get("type")
    if kind == "reasoning.encrypted" and (data := fields.take("data", str)) is not None:
        fields.drop("type", kind)
        return trusted(RedactedThinkingPart, data=data, extra=dialect.rest(fields, "reasoning_details"))
    if kind == "reasoning.summary" and (text := fields.take("summary", str)) is not None:
        return trusted(ThinkingPart, text=text, extra=dialect.rest(fields, "reasoning_details"))
    if kind == "reasoning.text" and isinstance(raw.get("text"), str | None):
        fields.drop("type", kind)
        fields.drop("text", None)
        text = fields.take("text", str)
        signature = fields.take("signature", str)
        extra = dialect.rest(fields, "reasoning_details")
        return trusted(ThinkingPart, text=text or "", signature=signature, extra=extra)
    return _opaque(raw, dialect, "reasoning_details")


def _answer(fields: Fields, dialect: Dialect, parts: list[Part], names: Names) -> None:
    """What only an assistant's message has: a refusal, a sound, calls."""
    refusal = fields.take("refusal", str)
    if refusal:
        parts.append(trusted(TextPart, text=refusal, extra=dialect.mark("refusal")))
    _audio(fields, dialect, parts)
    for index, raw in enumerate(listed_in(fields, "tool_calls")):
        parts.append(_tool_call(raw, f"{fields.path}.tool_calls[{index}]", index, dialect))
    if "function_call" in fields and not _is_empty(fields.peek("function_call")):
        parts.append(_function_call(fields.need("function_call", dict), fields.path, dialect))
    for part in parts:
        if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
            names[part.tool_call_id] = part.name


def _is_empty(raw: Any) -> bool:
    """Whether it is an object of which nothing is filled in: some services give all fields of a reply."""
    return isinstance(raw, dict) and not any(raw.values())


def _audio(fields: Fields, dialect: Dialect, parts: list[Part]) -> None:
    raw = fields.take("audio", dict) if not _is_empty(fields.peek("audio")) else None
    if raw is None:
        return
    inner = Fields(raw, fields.path)
    data = inner.take("data", str)
    how = "base64" if data is not None else "file_ref"
    if data is None:
        data = inner.take("id", str)  # history names a sound that the provider keeps
    if data is None:
        fields.put_back("audio", raw)
        return
    parts.append(trusted(AudioPart, type=how, data=data, extra=dialect.rest(inner, "audio")))


def _tool_call(raw: Any, path: str, index: int, dialect: Dialect) -> Part:
    if not isinstance(raw, dict):
        raise ShapeError("expected an object", path=path, hint="a tool call has `function`")
    fields = Fields(raw, path)
    fields.drop("index", index)
    if not isinstance(raw.get("id"), str | None) or not isinstance(raw.get("type"), str | None):
        return _opaque(raw, dialect, "tool_calls")
    call_id = fields.take("id", str)
    kind = "function" if isinstance(fields.peek("function"), dict) else "custom"
    inner = Fields(fields.take(kind, dict) or {}, f"{path}.{kind}")
    name = inner.take("name", str)
    if name is None or not _fits(inner, kind):
        return _opaque(raw, dialect, "tool_calls")
    if kind == "function":
        arguments, text, key = _arguments(inner)
    else:
        arguments, text, key = frozen_mapping({"input": inner.take("input", str)}), None, "custom"
    fields.leave(kind, inner)
    fields.drop("type", kind)
    return trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=arguments,
        arguments_raw=text,
        extra=dialect.rest(fields, key),
    )


def _fits(body: Fields, kind: str) -> bool:
    """Whether what a call is given has the shape that calls of this kind have."""
    if kind == "function":
        return isinstance(body.peek("arguments"), str | dict | None)
    return isinstance(body.peek("input"), str)


def _arguments(fields: Fields) -> tuple[FrozenDict | None, str | None, str | None]:
    """Arguments, or their text where it is no strict JSON object [A8]; and the form, where they are no text."""
    given = fields.take("arguments", dict)
    if given is not None:
        return freeze(given), None, "object"
    fields.drop("arguments", None)
    text = fields.take("arguments", str)
    if not text:
        return FrozenDict(), None, None
    value = loads_object(text)
    return (None, text, None) if value is None else (freeze(value), None, None)


def _function_call(raw: Any, path: str, dialect: Dialect) -> Part:
    inner = Fields(raw, f"{path}.function_call")
    name = inner.take("name", str)
    if name is None or not isinstance(inner.peek("arguments"), str | None):
        return _opaque(raw, dialect, "function_call")
    arguments, text, _ = _arguments(inner)
    extra = dialect.rest(inner, "function_call")
    return trusted(ToolCallPart, name=name, arguments=arguments, arguments_raw=text, extra=extra)


def listed_in(fields: Fields, key: str) -> list[Any]:
    """The list under `key`, empty where there is none; ShapeError where it is something else."""
    return fields.need(key, list) if key in fields else []


# -- blocks of a `content` list ----------------------------------------------------------------------------------------


def _blocks(raw: Any, path: str, dialect: Dialect) -> list[Part]:
    """The parts of a `content` list; a block of another type or shape is an opaque part."""
    return [_block(item, f"{path}[{index}]", dialect) for index, item in enumerate(raw)]


def _block(raw: Any, path: str, dialect: Dialect) -> Part:
    if not isinstance(raw, dict):
        raise ShapeError("expected an object", path=path, hint="a content block has a `type`")
    kind = raw.get("type")
    take = _TAKE.get(kind) if isinstance(kind, str) else None
    if take is not None:
        fields = Fields(raw, path)
        fields.drop("type", kind)
        part = take(fields, dialect)
        if part is not None:
            return part
    return _opaque(raw, dialect)


def _opaque(raw: Any, dialect: Dialect, key: str | None = None) -> OpaquePart:
    """A wire object without a canonical shape, whole."""
    kind = raw.get("type")
    extra = dialect.mark(key) if key is not None else None
    name = kind if isinstance(kind, str) and kind else "untyped"
    return trusted(OpaquePart, provider=dialect.format, type=name, value=raw, extra=extra)


def _text(fields: Fields, dialect: Dialect) -> Taken:
    text = fields.take("text", str)
    return None if text is None else trusted(TextPart, text=text, extra=dialect.rest(fields))


def _refusal(fields: Fields, dialect: Dialect) -> Taken:
    text = fields.take("refusal", str)
    return None if text is None else trusted(TextPart, text=text, extra=dialect.rest(fields, "refusal_block"))


def _thinking(fields: Fields, dialect: Dialect) -> Taken:
    """`thinking` is a text (with a signature, perhaps), or a list with one text block."""
    text = fields.take("thinking", str)
    if text is not None:
        signature = fields.take("signature", str)
        extra = dialect.rest(fields, "thinking_text")
        return trusted(ThinkingPart, text=text, signature=signature, extra=extra)
    inner = fields.take("thinking", list)
    if inner is None or len(inner) != 1 or not isinstance(inner[0], dict):
        return None
    only = inner[0]
    if set(only) != {"type", "text"} or only["type"] != "text" or not isinstance(only["text"], str):
        return None
    return trusted(ThinkingPart, text=only["text"], extra=dialect.rest(fields, "thinking"))


def _source(url: str) -> tuple[SourceType, str, str | None]:
    """How media are given, their data, their media type: base64 where `url` is a data URL that can be spelled again."""
    inline = binary.data_url(url)
    return ("base64", inline[1], inline[0]) if inline is not None and inline[0] else ("url", url, None)


# Not every service of the family takes videos, so one that came in this format is marked.
_OWN_URL: Final[dict[type[Part], str]] = {VideoPart: "url"}


def _with_url(part_type: type[Part], name: str) -> Take:
    """A block whose media are at `<name>.url`, or are `<name>` itself."""

    def take(fields: Fields, dialect: Dialect) -> Taken:
        inner = fields.take(name, dict)
        key: str | None = "string"
        if inner is None:
            url = fields.take(name, str)
        else:
            nested = Fields(inner, fields.path)
            url = nested.take("url", str)
            key = _OWN_URL.get(part_type)
            fields.leave(name, nested)
        if url is None:
            return None
        how, data, kind = _source(url)
        return trusted(part_type, type=how, data=data, media_type=kind, extra=dialect.rest(fields, key))

    return take


def _input_audio(fields: Fields, dialect: Dialect) -> Taken:
    whole = fields.take("input_audio", str)
    if whole is not None:
        how: SourceType = "url" if "://" in whole or whole.startswith("data:") else "base64"
        return trusted(AudioPart, type=how, data=whole, extra=dialect.rest(fields, "string"))
    inner = fields.take("input_audio", dict)
    if inner is None:
        return None
    nested = Fields(inner, fields.path)
    data, kind = nested.take("data", str), nested.take("format", str)
    if data is None:
        return None
    fields.leave("input_audio", nested)
    media_type = f"audio/{kind}" if kind is not None else None
    return trusted(AudioPart, type="base64", data=data, media_type=media_type, extra=dialect.rest(fields))


def _file(fields: Fields, dialect: Dialect) -> Taken:
    inner = fields.take("file", dict)
    if inner is None or isinstance(inner.get("file_id"), str) == isinstance(inner.get("file_data"), str):
        return None
    nested = Fields(inner, fields.path)
    title = nested.take("filename", str)
    file_id = nested.take("file_id", str)
    if file_id is not None:
        how, data, kind = "file_ref", file_id, None
    else:
        data = nested.need("file_data", str)
        how, data, kind = _source(data) if data.startswith("data:") or "://" in data else ("base64", data, None)
    fields.leave("file", nested)
    extra = dialect.rest(fields)
    return trusted(DocumentPart, type=how, data=data, media_type=kind, title=title, extra=extra)


def _document_url(fields: Fields, dialect: Dialect) -> Taken:
    url = fields.take("document_url", str)
    if url is None:
        return None
    how, data, kind = _source(url)
    title = fields.take("document_name", str)
    extra = dialect.rest(fields, "document_url")
    return trusted(DocumentPart, type=how, data=data, media_type=kind, title=title, extra=extra)


_TAKE: Final[dict[str, Take]] = {
    "text": _text,
    "refusal": _refusal,
    "thinking": _thinking,
    "image_url": _with_url(ImagePart, "image_url"),
    "video_url": _with_url(VideoPart, "video_url"),
    "input_audio": _input_audio,
    "file": _file,
    "document_url": _document_url,
}
