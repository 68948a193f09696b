"""Chat-completions messages as canonical ones, and back. Spec: docs/spec/adapters/openai_chat.md [OAC-1] to [OAC-10].

Decoding is total: what has no canonical field stays in `extra`. A null, an empty list or an empty text under a key that
is known means the same as its absence, so it is layout, not content. What came from the format itself goes back as it
was; what comes from another one is said as far as the format can say it, dropped with a record, or refused [C8].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import ROLES, THOUGHTS, Dialect
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.fields import Fields, arguments_text, merge, role_named
from cmf.adapters.wire.layout import only_text
from cmf.enums import Role
from cmf.errors import DecodeError, ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.codec import dumps, loads, loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, trusted
from cmf.message import binary
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

Names = Mapping[str, str]  # the tool that a call id of the same request belongs to

_JSON: Final = "json"  # the form of a text that came as JSON and not as a string
_DETAILS: Final = "reasoning_details"
_PLAIN_KEYS: Final = frozenset({"role", "content"})
_MESSAGE_NULLS: Final = (
    "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "reasoning", "reasoning_content",
    _DETAILS, "name",
)  # fmt: skip


# -- reading -----------------------------------------------------------------------------------------------------------


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
    """One message of a request, or (with `reply`) of a choice."""
    fields = Fields(raw, path)
    fields.drop_nulls(_MESSAGE_NULLS)
    name = fields.take("role", str)
    if reply and not name and fields.peek("role") is None:  # null, absent or empty: some services leave it out
        fields.drop("role", None)
        name = "assistant"
    elif reply and name != "assistant":
        hint = "send other roles in a request"
        raise UnknownRoleError("a reply has the role `assistant`", path=f"{path}.role", hint=hint)
    role = role_named(name, ROLES, path)
    if role is Role.TOOL:
        part = _tool_result(fields, dialect, names)
        form = "function" if name == "function" else None
        return trusted(Message, role=role, content=(part,), extra=dialect.rest(fields, form))
    parts: list[Part] = []
    repeated = _reasoning(fields, dialect, parts) if role is Role.ASSISTANT else None
    _content(fields, dialect, parts, reply=reply, from_model=role is Role.ASSISTANT)
    if role is Role.ASSISTANT:
        _answer(fields, dialect, parts)
    return trusted(Message, role=role, content=tuple(parts), extra=dialect.rest(fields, repeated))


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
    content = fields.peek("content")
    if fields.take("content", str) is not None:
        if content:
            parts.append(trusted(TextPart, text=content))
    elif content is not None:
        if from_model and not (isinstance(content, list) and all(isinstance(block, dict) for block in content)):
            text = dumps(fields.left().pop("content")).decode()
            parts.append(trusted(TextPart, text=text, extra=dialect.mark(_JSON)))
            return
        for part in _blocks(fields.need("content", list), f"{fields.path}.content", dialect):
            if reply and dialect.key_of(part) is None:
                # A client expects one text in a reply, so a list is marked as one; in a request both mean the same.
                extra = frozen_mapping({**(part.extra or {}), **dialect.mark("block")})
                parts.append(replace(part, extra=extra))
            else:
                parts.append(part)


def _reasoning(fields: Fields, dialect: Dialect, parts: list[Part]) -> str | None:
    """The thinking beside the content. Gives the key whose text only repeats that of `reasoning_details`, if one does.

    Several details joined are a text of their own, which policy has to see in one piece.
    """
    details: list[Part] = []
    listed = fields.peek(_DETAILS)
    if isinstance(listed, list) and all(isinstance(item, dict) for item in listed):
        fields.take(_DETAILS, list)
        details = [_detail(item, fields.path, dialect) for item in listed]
    texts = [part.text for part in details if isinstance(part, ThinkingPart) and part.text]
    whole = texts[0] if len(texts) == 1 else None
    repeated = None
    for key in THOUGHTS:
        text = fields.take(key, str)
        if text and text == whole and repeated is None:
            repeated = key
        elif text:
            parts.append(trusted(ThinkingPart, text=text, extra=dialect.mark(key)))
    parts += details
    return repeated


def _detail(raw: FrozenDict, path: str, dialect: Dialect) -> Part:
    fields = Fields(raw, path)
    kind = raw.get("type")
    if kind == "reasoning.encrypted" and (data := fields.take("data", str)) is not None:
        fields.drop("type", kind)
        return trusted(RedactedThinkingPart, data=data, extra=dialect.rest(fields, _DETAILS))
    if kind == "reasoning.summary" and (text := fields.take("summary", str)) is not None:
        return trusted(ThinkingPart, text=text, extra=dialect.rest(fields, _DETAILS))
    if kind == "reasoning.text" and isinstance(raw.get("text"), str | None):
        fields.drop("type", kind)
        fields.drop("text", None)
        text, signature = fields.take("text", str) or "", fields.take("signature", str)
        return trusted(ThinkingPart, text=text, signature=signature, extra=dialect.rest(fields, _DETAILS))
    return _opaque(raw, dialect, _DETAILS)


def _answer(fields: Fields, dialect: Dialect, parts: list[Part]) -> None:
    """What only an assistant's message has: a refusal, a sound, calls. Some services send all fields, if empty."""
    if refusal := fields.take("refusal", str):
        parts.append(trusted(TextPart, text=refusal, extra=dialect.mark("refusal")))
    sound = fields.peek("audio")
    if isinstance(sound, dict) and any(sound.values()):
        inner = Fields(sound, fields.path)
        data, how = inner.take("data", str), "base64"
        if data is None:
            data, how = inner.take("id", str), "file_ref"  # history names a sound that the provider keeps
        if data is not None:
            fields.take("audio", dict)
            parts.append(trusted(AudioPart, type=how, data=data, extra=dialect.rest(inner, "audio")))
    for index, raw in enumerate(listed_in(fields, "tool_calls")):
        parts.append(_tool_call(raw, f"{fields.path}.tool_calls[{index}]", index, dialect))
    called = fields.peek("function_call")
    if "function_call" in fields and not (isinstance(called, dict) and not any(called.values())):
        inner = Fields(fields.need("function_call", dict), f"{fields.path}.function_call")
        name = inner.take("name", str)
        given = _given(inner, "function") if isinstance(inner.peek("arguments"), str | None) else None
        if name is None or given is None:
            parts.append(_opaque(called, dialect, "function_call"))
        else:
            extra = dialect.rest(inner, "function_call")
            parts.append(trusted(ToolCallPart, name=name, arguments=given[0], arguments_raw=given[1], extra=extra))


def _tool_call(raw: Any, path: str, index: int, dialect: Dialect) -> Part:
    if not isinstance(raw, dict):
        raise ShapeError("expected an object", path=path, hint="a tool call has `function`")
    kind = kind_of(raw, path)
    fields = Fields(raw, path)
    fields.drop("index", index)
    call_id = fields.take("id", str)
    inner = Fields(fields.take(kind, dict) or {}, f"{path}.{kind}")
    name, given = inner.take("name", str), _given(inner, kind)
    fits = isinstance(raw.get("id"), str | None) and isinstance(raw.get("type"), str | None)
    if name is None or given is None or not fits:
        return _opaque(raw, dialect, "tool_calls")
    arguments, text, key = given
    fields.leave(kind, inner)
    fields.drop("type", kind)
    extra = dialect.rest(fields, key)
    return trusted(ToolCallPart, tool_call_id=call_id, name=name, arguments=arguments, arguments_raw=text, extra=extra)


def kind_of(raw: Mapping[str, Any], path: str) -> str:
    """Whether a call, or a choice of a tool, is one of a `function` or of a `custom` tool.

    Raises ShapeError: it says something of both, and readers differ in which one it is.
    """
    forms = [form for form in ("function", "custom") if isinstance(raw.get(form), dict)]
    said = [form for form in forms if any(raw[form].values())]
    if len(said) > 1:
        problem, hint = "`function` and `custom` stand side by side", "leave out the one that is not meant"
        raise ShapeError(problem, path=path, code="shape.ambiguous-call", hint=hint)
    return next(iter([*said, *forms]), "custom")


def _given(fields: Fields, kind: str) -> tuple[FrozenDict | None, str | None, str | None] | None:
    """Arguments, or their text where it is no strict JSON object [A8]; and their form. None where they do not fit."""
    if kind == "custom":
        text = fields.take("input", str)
        return None if text is None else (frozen_mapping({"input": text}), None, kind)
    given = fields.peek("arguments")
    if not isinstance(given, str | dict | None):
        return None
    fields.left().pop("arguments", None)
    if isinstance(given, dict):
        return freeze(given), None, "object"
    value = loads_object(given) if given else FrozenDict()
    return (None, given, None) if value is None else (freeze(value), None, None)


def listed_in(fields: Fields, key: str) -> list[Any]:
    """The list under `key`, empty where there is none; ShapeError where it is something else."""
    return fields.need(key, list) if key in fields else []


# -- reading the blocks of a `content` list ----------------------------------------------------------------------------


def _blocks(raw: Any, path: str, dialect: Dialect) -> list[Part]:
    """The parts of a `content` list; a block of another type or shape is an opaque part."""
    return [_block(item, f"{path}[{index}]", dialect) for index, item in enumerate(raw)]


def _block(raw: Any, path: str, dialect: Dialect) -> Part:
    if not isinstance(raw, dict):
        raise ShapeError("expected an object", path=path, hint="a content block has a `type`")
    kind = raw.get("type")
    part = None
    if isinstance(kind, str) and kind in _TAKE:
        fields = Fields(raw, path)
        fields.drop("type", kind)
        part = _TAKE[kind](fields, dialect)
    return _opaque(raw, dialect) if part is None else part


def _opaque(raw: Any, dialect: Dialect, key: str | None = None) -> OpaquePart:
    """A wire object without a canonical shape, whole."""
    kind = raw.get("type")
    extra = dialect.mark(key) if key is not None else None
    name = kind if isinstance(kind, str) and kind else "untyped"
    return trusted(OpaquePart, provider=dialect.format, type=name, value=raw, extra=extra)


def _text(name: str, key: str | None, fields: Fields, dialect: Dialect) -> Part | None:
    text = fields.take(name, str)
    return None if text is None else trusted(TextPart, text=text, extra=dialect.rest(fields, key))


def _thinking(fields: Fields, dialect: Dialect) -> Part | None:
    """`thinking` is a text (with a signature, perhaps), or a list with one text block."""
    if (text := fields.take("thinking", str)) is not None:
        signature = fields.take("signature", str)
        return trusted(ThinkingPart, text=text, signature=signature, extra=dialect.rest(fields, "thinking_text"))
    listed = fields.take("thinking", list)
    only = listed[0] if listed is not None and len(listed) == 1 else None
    if not isinstance(only, dict) or only.keys() != {"type", "text"} or only["type"] != "text":
        return None
    text = only["text"]
    return trusted(ThinkingPart, text=text, extra=dialect.rest(fields, "thinking")) if isinstance(text, str) else None


def _source(url: str) -> dict[str, str]:
    """How media are given, and their data: base64 with its type where `url` is a data URL that can be spelled again."""
    inline = binary.data_url(url)
    if inline is not None and inline[0]:
        return {"type": "base64", "data": inline[1], "media_type": inline[0]}
    return {"type": "url", "data": url}


def _linked(part_type: type[Part], name: str, fields: Fields, dialect: Dialect) -> Part | None:
    """A block whose media are at `<name>.url`, or are `<name>` itself."""
    url = fields.take(name, str)
    key: str | None = "string"
    if url is None and (inner := fields.take(name, dict)) is not None:
        nested = Fields(inner, fields.path)
        # Not every service of the family takes videos, so one that came in this format is marked.
        url, key = nested.take("url", str), "url" if part_type is VideoPart else None
        fields.leave(name, nested)
    return None if url is None else trusted(part_type, **_source(url), extra=dialect.rest(fields, key))


def _input_audio(fields: Fields, dialect: Dialect) -> Part | None:
    if (whole := fields.take("input_audio", str)) is not None:
        how = "url" if "://" in whole or whole.startswith("data:") else "base64"
        return trusted(AudioPart, type=how, data=whole, extra=dialect.rest(fields, "string"))
    nested = Fields(fields.take("input_audio", dict) or {}, fields.path)
    data, kind = nested.take("data", str), nested.take("format", str)
    if data is None:
        return None
    fields.leave("input_audio", nested)
    media_type = f"audio/{kind}" if kind is not None else None
    return trusted(AudioPart, type="base64", data=data, media_type=media_type, extra=dialect.rest(fields))


def _file(fields: Fields, dialect: Dialect) -> Part | None:
    nested = Fields(fields.take("file", dict) or {}, fields.path)
    title, file_id, data = (nested.take(key, str) for key in ("filename", "file_id", "file_data"))
    if data is None and file_id is not None:
        source = {"type": "file_ref", "data": file_id}
    elif data is not None and file_id is None:
        linked = data.startswith("data:") or "://" in data
        source = _source(data) if linked else {"type": "base64", "data": data}
    else:
        return None
    fields.leave("file", nested)
    return trusted(DocumentPart, **source, title=title, extra=dialect.rest(fields))


def _document_url(fields: Fields, dialect: Dialect) -> Part | None:
    url, title = fields.take("document_url", str), fields.take("document_name", str)
    if url is None:
        return None
    return trusted(DocumentPart, **_source(url), title=title, extra=dialect.rest(fields, "document_url"))


_TAKE: Final[dict[str, Callable[[Fields, Dialect], Part | None]]] = {
    "text": partial(_text, "text", None),
    "refusal": partial(_text, "refusal", "refusal_block"),
    "thinking": _thinking,
    "image_url": partial(_linked, ImagePart, "image_url"),
    "video_url": partial(_linked, VideoPart, "video_url"),
    "input_audio": _input_audio,
    "file": _file,
    "document_url": _document_url,
}


# -- writing -----------------------------------------------------------------------------------------------------------

_IN_CONTENT: Final = frozenset({"block", "refusal_block", "thinking", "thinking_text", "string", "url", "document_url"})
_NO_RESULT: Final = ToolResultPart()


def wire_messages(message: Message, dialect: Dialect, ids: CallIds) -> list[dict[str, Any]]:
    """The wire messages of one message: its tool results, one each, then the rest if there is any."""
    if (text := only_text(message)) and message.role is not Role.TOOL:
        return [{"role": message.role.value, "content": text}]
    dialect.drop_foreign(message, "message", message)
    if message.role is Role.ASSISTANT:
        return [wire_assistant(message, dialect, ids)]
    results = [part for part in message.content if isinstance(part, ToolResultPart)]
    written = [wire for part in results if (wire := _tool_message(part, message, dialect, ids)) is not None]
    rest = [part for part in message.content if not isinstance(part, ToolResultPart)]
    if rest or not results:
        content = _wire_content(rest, dialect, message)
        body: dict[str, Any] = {"role": message.role.value, "content": "" if content is None else content}
        if message.role is Role.TOOL:
            body["tool_call_id"] = ids.of(_NO_RESULT)
        written.append(merge(body, dialect.own(message)) if not results else body)
    return written


def _tool_message(part: ToolResultPart, message: Message, dialect: Dialect, ids: CallIds) -> dict[str, Any] | None:
    if part.executed_by == "provider":  # what another provider ran on its machines has no place in this format
        loss.drop(dialect.format, part.content_type, "run by another provider", message=message)
        return None
    if part.is_error:
        loss.drop(dialect.format, part.content_type, "the format has no error flag", message=message)
    dialect.drop_foreign(part, part.content_type, message)
    content: Any = "" if part.content is None else part.content
    if isinstance(content, tuple):
        content = _wire_blocks(content, dialect, message)
    elif not isinstance(content, str):
        content = dumps(content).decode()
    body = {"role": "tool", "tool_call_id": ids.of(part), "content": content}
    if dialect.key_of(message) == "function":
        body = {"role": "function", "content": content, "name": part.tool_name or ""}
    return merge(body, dialect.own(message))


def _wire_content(parts: Sequence[Part], dialect: Dialect, message: Message) -> Any:
    """A single text as a text, anything else as blocks."""
    first = parts[0] if parts else None
    if len(parts) == 1 and isinstance(first, TextPart) and dialect.key_of(first) == _JSON:
        return _parsed(first.text)
    written = _wire_blocks(parts, dialect, message)
    only = written[0] if len(written) == 1 and isinstance(first, TextPart) else {}
    return only["text"] if only.keys() == {"type", "text"} else written or None


def wire_assistant(message: Message, dialect: Dialect, ids: CallIds, *, reply: bool = False) -> dict[str, Any]:
    """An assistant's message, of a request or (with `reply`) of a choice."""
    drop = partial(loss.drop, dialect.format, message=message)
    body: dict[str, Any] = {"role": "assistant", "content": None}
    content: list[Part] = []
    listed: dict[str, list[Any]] = {_DETAILS: [], "tool_calls": []}
    detailed: list[str] = []
    foreign: list[str] = []
    for part in message.content:
        key = dialect.key_of(part)
        if isinstance(part, ThinkingPart | RedactedThinkingPart):
            text = part.text if isinstance(part, ThinkingPart) else ""
            if key == _DETAILS:
                listed[_DETAILS].append(_wire_detail(part, dialect))
                detailed.append(text)
            elif isinstance(part, RedactedThinkingPart) or not (reply or key in _PLACED):
                drop(part.content_type, "reasoning of another provider, or edited")
            elif key in THOUGHTS:
                body[key] = body.get(key, "") + text
            elif key in _PLACED:
                content.append(part)
            else:
                if part.signature is not None:
                    drop(part.content_type, "a signature of another provider")
                foreign.append(text)
        elif isinstance(part, ToolCallPart | ToolResultPart) and part.executed_by == "provider":
            drop(part.content_type, "run by another provider")
        elif isinstance(part, ToolCallPart):
            dialect.drop_foreign(part, part.content_type, message)
            _call(part, dialect, ids, body, listed["tool_calls"])
        elif isinstance(part, TextPart) and key == "refusal":
            body["refusal"] = part.text
        elif isinstance(part, AudioPart) and key == "audio":
            body["audio"] = merge({"data" if part.type == "base64" else "id": part.data}, dialect.own(part))
        elif isinstance(part, OpaquePart) and part.provider == dialect.format and key in listed:
            listed[key].append(dict(part.value) if key == _DETAILS else part.value)
        elif isinstance(part, OpaquePart) and part.provider == dialect.format and key == "function_call":
            body[key] = part.value
        else:
            content.append(part)
    write = _reply_content if reply else _wire_content
    body["content"] = write(content, dialect, message)
    if body["content"] is None and not listed["tool_calls"] and not reply:
        body["content"] = ""
    if foreign:
        own_thoughts = body.get(dialect.reasoning_key, "")
        body[dialect.reasoning_key] = own_thoughts + loss.joined(dialect.format, "thinking", foreign, message=message)
    repeated = dialect.key_of(message)
    if repeated in THOUGHTS and any(detailed):
        body[repeated] = body.get(repeated, "") + "".join(detailed)
    body |= {name: items for name, items in listed.items() if items}
    return merge(body, dialect.own(message))


_PLACED: Final = (*THOUGHTS, "thinking", "thinking_text")
"""Forms of thinking that have a place in this format: beside the content, and in it."""


def _reply_content(parts: list[Part], dialect: Dialect, message: Message) -> Any:
    """One text, since that is what clients of a reply expect; a list only where the reply came as one."""
    if len(parts) == 1 and dialect.key_of(parts[0]) == _JSON:
        return _parsed(parts[0].text if isinstance(parts[0], TextPart) else "")
    written = _wire_blocks(parts, dialect, message)
    if any(dialect.key_of(part) in _IN_CONTENT for part in parts):
        return written or None
    if not all(block.keys() == {"type", "text"} for block in written):
        media = next((part for part in parts if isinstance(part, MediaPart)), message)
        raise UnsupportedError("a reply of this format is text", about=media, hint="strip its media")
    texts = [block["text"] for block in written]
    return loss.joined(dialect.format, "text", texts, message=message) if texts else None


def _parsed(text: str) -> Any:
    """The JSON that the text of a part still spells; the text itself where it spells none any more."""
    try:
        return loads(text, is_embedded=True)
    except DecodeError:
        return text


def _wire_detail(part: ThinkingPart | RedactedThinkingPart, dialect: Dialect) -> dict[str, Any]:
    own = dialect.own(part)
    if isinstance(part, RedactedThinkingPart):
        return merge({"type": "reasoning.encrypted", "data": part.data}, own)
    if own.get("type") == "reasoning.summary":
        return merge({"summary": part.text}, own)
    return merge({"type": "reasoning.text", "text": part.text, **present(signature=part.signature)}, own)


def _call(part: ToolCallPart, dialect: Dialect, ids: CallIds, body: dict[str, Any], calls: list[Any]) -> None:
    own, key = dialect.own(part), dialect.key_of(part)
    if key == "function_call":
        body[key] = merge({"name": part.name, "arguments": arguments_text(part)}, own)
        return
    kind = "function"
    given: dict[str, Any] = {"name": part.name, "arguments": arguments_text(part)}
    if part.arguments is not None and key == "custom" and isinstance(part.arguments.get("input"), str):
        kind, given = key, {"name": part.name, "input": part.arguments["input"]}
    elif part.arguments is not None and key == "object":
        given["arguments"] = part.arguments
    calls.append(merge({"id": ids.of(part), "type": own.get("type", kind), kind: given}, own))


# -- writing the blocks of a `content` list ----------------------------------------------------------------------------


def _wire_blocks(parts: Sequence[Part], dialect: Dialect, message: Message | None) -> list[dict[str, Any]]:
    """The blocks of these parts; what the format cannot say is dropped with a record, or refused [C8]."""
    written = (_wire_block(part, dialect, message) for part in parts)
    return [block for block in written if block is not None]


def _wire_block(part: Part, dialect: Dialect, message: Message | None) -> dict[str, Any] | None:
    """One block; None where it was dropped."""
    if type(part) not in _WRITE:
        problem = f"{dialect.format} cannot carry a {part.content_type} part here"
        raise UnsupportedError(problem, about=part, hint="route to a target that can")
    dialect.drop_foreign(part, part.content_type, message)
    if isinstance(part, OpaquePart) and part.provider != dialect.format:
        loss.drop(dialect.format, part.content_type, f"a block of {part.provider}", message=message)
        return None
    shown = loss.resource_as_text(dialect.format, part, message=message)
    if isinstance(shown, ResourcePart):
        problem = f"{dialect.format} cannot carry a resource but as its text"
        raise UnsupportedError(problem, about=part, hint="read it first")
    return merge(_WRITE[type(shown)](shown, dialect, dialect.key_of(shown)), dialect.own(part))


def _url_of(part: ImagePart | VideoPart | DocumentPart, dialect: Dialect) -> str:
    """The URL, or data URL, of media. UnsupportedError for a reference to a file, or data of unknown type."""
    if part.type == "url":
        return part.data
    if part.type == "base64" and (kind := binary.type_of(part.data, part.media_type or None)):
        return f"data:{kind};base64,{part.data}"
    problem = f"{dialect.format} cannot carry a {part.content_type} given as {part.type}"
    raise UnsupportedError(problem, about=part, hint="resolve the media first")


def _write_text(part: Any, dialect: Dialect, key: str | None) -> dict[str, Any]:
    kind = "refusal" if key == "refusal_block" else "text"
    return {"type": kind, kind: part.text}


def _write_thinking(part: ThinkingPart, dialect: Dialect, key: str | None) -> dict[str, Any]:
    if key == "thinking_text":
        return {"type": "thinking", "thinking": part.text, **present(signature=part.signature)}
    return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}


def _write_linked(part: ImagePart | VideoPart, dialect: Dialect, key: str | None) -> dict[str, Any]:
    if isinstance(part, VideoPart) and not dialect.video and key is None:
        raise UnsupportedError(f"{dialect.format} cannot carry a video", about=part, hint="route to a target that can")
    url, name = _url_of(part, dialect), "video_url" if isinstance(part, VideoPart) else "image_url"
    return {"type": name, name: url if key == "string" else {"url": url}}


def _write_audio(part: AudioPart, dialect: Dialect, key: str | None) -> dict[str, Any]:
    if key == "string":
        return {"type": "input_audio", "input_audio": part.data}
    if part.type != "base64":
        problem = f"{dialect.format} carries sounds as data only"
        raise UnsupportedError(problem, about=part, hint="resolve the reference first")
    kind = part.media_type and _AUDIO_FORMATS.get(part.media_type, part.media_type.removeprefix("audio/"))
    return {"type": "input_audio", "input_audio": {"data": part.data, **present(format=kind)}}


_AUDIO_FORMATS: Final = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}


def _write_document(part: DocumentPart, dialect: Dialect, key: str | None) -> dict[str, Any]:
    if key == "document_url":
        return {"type": key, key: _url_of(part, dialect), **present(document_name=part.title)}
    file = present(filename=part.title)
    if part.type == "file_ref":
        file["file_id"] = part.data
    else:
        is_bare = part.type == "base64" and part.media_type is None
        file["file_data"] = part.data if is_bare else _url_of(part, dialect)
    return {"type": "file", "file": file}


_WRITE: Final[dict[type, Callable[[Any, Dialect, str | None], dict[str, Any]]]] = {
    TextPart: _write_text,
    ResourcePart: _write_text,
    ThinkingPart: _write_thinking,
    OpaquePart: lambda part, *_: dict(part.value),
    ImagePart: _write_linked,
    VideoPart: _write_linked,
    AudioPart: _write_audio,
    DocumentPart: _write_document,
}
