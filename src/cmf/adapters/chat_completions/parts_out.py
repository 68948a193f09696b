"""Canonical messages as chat-completions ones. Spec: docs/spec/adapters/openai_chat.md [OAC-3] to [OAC-5], [OAC-10].

What came from the format itself goes back as it was; what comes from another one is said as far as the format can say
it, dropped with a record, or refused [C8].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import JSON, THOUGHTS, Dialect
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.fields import merge
from cmf.adapters.wire.layout import only_text
from cmf.enums import Role
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
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
        body: dict[str, Any] = {"role": message.role.value, "content": _content(rest, dialect, message, empty="")}
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
    content: Any = part.content
    if isinstance(content, tuple):
        content = _wire_blocks(content, dialect, message)
    elif content is None:
        content = ""
    elif not isinstance(content, str):
        content = dumps(content).decode()
    body = {"role": "tool", "tool_call_id": ids.of(part), "content": content}
    if dialect.key_of(message) == "function":
        del body["tool_call_id"]
        body |= {"role": "function", "name": part.tool_name or ""}
    return merge(body, dialect.own(message))


def _content(parts: Sequence[Part], dialect: Dialect, message: Message, *, empty: str | None) -> Any:
    """A single text as a text, anything else as blocks."""
    if not parts:
        return empty
    first = parts[0]
    if len(parts) == 1 and dialect.key_of(first) == JSON:
        return _parsed(first)
    if len(parts) == 1 and isinstance(first, TextPart) and not first.extra:
        return first.text
    written = _wire_blocks(list(parts), dialect, message)
    only = written[0] if len(written) == 1 and isinstance(first, TextPart) else None
    if only is not None and only.keys() == {"type", "text"}:
        return only["text"]
    return written or empty


def wire_assistant(message: Message, dialect: Dialect, ids: CallIds, *, reply: bool = False) -> dict[str, Any]:
    """An assistant's message, of a request or (with `reply`) of a choice."""
    body: dict[str, Any] = {"role": "assistant", "content": None}
    content: list[Part] = []
    details: list[dict[str, Any]] = []
    detailed: list[str] = []
    foreign: list[str] = []
    calls: list[Any] = []
    for part in message.content:
        if isinstance(part, ThinkingPart | RedactedThinkingPart):
            if dialect.key_of(part) == "reasoning_details":
                details.append(_detail(part, dialect))
                detailed.append(part.text if isinstance(part, ThinkingPart) else "")
            elif (kept := _thinking(part, message, dialect, body, content, reply=reply)) is not None:
                foreign.append(kept)
        elif isinstance(part, ToolCallPart):
            _call(part, message, dialect, ids, body, calls)
        elif isinstance(part, TextPart) and dialect.key_of(part) == "refusal":
            body["refusal"] = part.text
        elif isinstance(part, AudioPart) and dialect.key_of(part) == "audio":
            given = {"data" if part.type == "base64" else "id": part.data}
            body["audio"] = merge(given, dialect.own(part))
        elif isinstance(part, ToolResultPart) and part.executed_by == "provider":
            loss.drop(dialect.format, part.content_type, "run by another provider", message=message)
        elif isinstance(part, OpaquePart) and _outside(part, dialect, body, details, calls):
            pass
        else:
            content.append(part)
    body["content"] = (
        _reply_content(content, dialect, message) if reply else _content(content, dialect, message, empty=None)
    )
    if body["content"] is None and not calls and not reply:
        body["content"] = ""
    if foreign:
        own_thoughts = body.get(dialect.reasoning_key, "")
        body[dialect.reasoning_key] = own_thoughts + loss.joined(dialect.format, "thinking", foreign, message=message)
    if details:
        body["reasoning_details"] = details
    repeated = dialect.key_of(message)
    if repeated in THOUGHTS and any(detailed):
        body[repeated] = body.get(repeated, "") + "".join(detailed)
    if calls:
        body["tool_calls"] = calls
    return merge(body, dialect.own(message))


def _reply_content(parts: list[Part], dialect: Dialect, message: Message) -> Any:
    """One text, since that is what clients of a reply expect; a list only where the reply came as one."""
    if len(parts) == 1 and dialect.key_of(parts[0]) == JSON:
        return _parsed(parts[0])
    written = _wire_blocks(parts, dialect, message)
    if any(dialect.key_of(part) in _IN_CONTENT for part in parts):
        return written or None
    if not all(block.keys() == {"type", "text"} for block in written):
        media = next((part for part in parts if isinstance(part, MediaPart)), message)
        raise UnsupportedError("a reply of this format is text", about=media, hint="strip its media")
    texts = [block["text"] for block in written]
    return loss.joined(dialect.format, "text", texts, message=message) if texts else None


def _parsed(part: Part) -> Any:
    """The JSON that the text of a part still spells; the text itself where it spells none any more."""
    text = part.text if isinstance(part, TextPart) else ""
    try:
        return loads(text, is_embedded=True)
    except DecodeError:
        return text


def _thinking(
    part: ThinkingPart | RedactedThinkingPart,
    message: Message,
    dialect: Dialect,
    body: dict[str, Any],
    content: list[Part],
    *,
    reply: bool,
) -> str | None:
    """Put thinking where it was; the text of another provider's, which a reply has one place for."""
    key = dialect.key_of(part)
    if isinstance(part, ThinkingPart) and key in THOUGHTS:
        body[key] = body.get(key, "") + part.text
    elif isinstance(part, ThinkingPart) and key in ("thinking", "thinking_text"):
        content.append(part)
    elif isinstance(part, ThinkingPart) and reply:
        if part.signature is not None:
            loss.drop(dialect.format, part.content_type, "a signature of another provider", message=message)
        return part.text
    else:
        loss.drop(dialect.format, part.content_type, "reasoning of another provider, or edited", message=message)
    return None


def _detail(part: ThinkingPart | RedactedThinkingPart, dialect: Dialect) -> dict[str, Any]:
    own = dialect.own(part)
    if isinstance(part, RedactedThinkingPart):
        return merge({"type": "reasoning.encrypted", "data": part.data}, own)
    if own.get("type") == "reasoning.summary":
        return merge({"summary": part.text}, own)
    signed = {} if part.signature is None else {"signature": part.signature}
    return merge({"type": "reasoning.text", "text": part.text, **signed}, own)


def _outside(
    part: OpaquePart, dialect: Dialect, body: dict[str, Any], details: list[dict[str, Any]], calls: list[Any]
) -> bool:
    """Put an opaque object of this format back where it was, if that was outside the content."""
    key = dialect.key_of(part) if part.provider == dialect.format else None
    if key == "reasoning_details":
        details.append(dict(part.value))
    elif key == "tool_calls":
        calls.append(part.value)
    elif key == "function_call":
        body["function_call"] = part.value
    else:
        return False
    return True


def _call(
    part: ToolCallPart, message: Message, dialect: Dialect, ids: CallIds, body: dict[str, Any], calls: list[Any]
) -> None:
    if part.executed_by == "provider":
        loss.drop(dialect.format, part.content_type, "run by another provider", message=message)
        return
    dialect.drop_foreign(part, part.content_type, message)
    own, key = dialect.own(part), dialect.key_of(part)
    if key == "function_call":
        body["function_call"] = merge({"name": part.name, "arguments": arguments_text(part)}, own)
    elif key == "custom" and part.arguments is not None and isinstance(part.arguments.get("input"), str):
        custom = {"name": part.name, "input": part.arguments["input"]}
        kind = own.get("type", "custom")
        calls.append(merge({"id": ids.of(part), "type": kind, "custom": custom}, own))
    else:
        arguments = part.arguments if key == "object" and part.arguments is not None else arguments_text(part)
        function = {"name": part.name, "arguments": arguments}
        calls.append(merge({"id": ids.of(part), "type": own.get("type", "function"), "function": function}, own))


def arguments_text(part: ToolCallPart) -> str:
    """The arguments as embedded JSON: the raw text where they are none."""
    if part.arguments_raw is not None:
        return part.arguments_raw
    return dumps(part.arguments or {}).decode()


# -- blocks of a `content` list ----------------------------------------------------------------------------------------


def _wire_blocks(parts: Sequence[Part], dialect: Dialect, message: Message | None) -> list[dict[str, Any]]:
    """The blocks of these parts; what the format cannot say is dropped with a record, or refused [C8]."""
    written = (_wire_block(part, dialect, message) for part in parts)
    return [block for block in written if block is not None]


def _wire_block(part: Part, dialect: Dialect, message: Message | None) -> dict[str, Any] | None:
    """One block; None where it was dropped."""
    write = _WRITE.get(type(part))
    if write is None:
        raise UnsupportedError(
            f"{dialect.format} cannot carry a {part.content_type} part here",
            about=part,
            hint="route to a target that can",
        )
    dialect.drop_foreign(part, part.content_type, message)
    block = write(part, dialect, message)
    return None if block is None else merge(block, dialect.own(part))


def _url_of(part: ImagePart | VideoPart | DocumentPart, dialect: Dialect) -> str:
    """The URL, or data URL, of media. UnsupportedError for a reference to a file, or data of unknown type."""
    if part.type == "url":
        return part.data
    if part.type == "base64" and (kind := binary.type_of(part.data, part.media_type or None)):
        return f"data:{kind};base64,{part.data}"
    raise UnsupportedError(
        f"{dialect.format} cannot carry a {part.content_type} given as {part.type}",
        about=part,
        hint="resolve the media first",
    )


def _write_text(part: TextPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if dialect.key_of(part) == "refusal_block":
        return {"type": "refusal", "refusal": part.text}
    return {"type": "text", "text": part.text}


def _write_thinking(part: ThinkingPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if dialect.key_of(part) == "thinking_text":
        signed = {} if part.signature is None else {"signature": part.signature}
        return {"type": "thinking", "thinking": part.text, **signed}
    return {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}


def _write_opaque(part: OpaquePart, dialect: Dialect, message: Message | None) -> dict[str, Any] | None:
    if part.provider == dialect.format:
        return dict(part.value)
    loss.drop(dialect.format, part.content_type, f"a block of {part.provider}", message=message)
    return None


def _write_image(part: ImagePart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    url = _url_of(part, dialect)
    return {"type": "image_url", "image_url": url if dialect.key_of(part) == "string" else {"url": url}}


def _write_video(part: VideoPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if not dialect.video and dialect.key_of(part) is None:
        raise UnsupportedError(f"{dialect.format} cannot carry a video", about=part, hint="route to a target that can")
    url = _url_of(part, dialect)
    return {"type": "video_url", "video_url": url if dialect.key_of(part) == "string" else {"url": url}}


def _write_audio(part: AudioPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if dialect.key_of(part) == "string":
        return {"type": "input_audio", "input_audio": part.data}
    if part.type != "base64":
        raise UnsupportedError(
            f"{dialect.format} carries sounds as data only", about=part, hint="resolve the reference first"
        )
    kind = {} if part.media_type is None else {"format": _audio_format(part.media_type)}
    return {"type": "input_audio", "input_audio": {"data": part.data, **kind}}


def _audio_format(media_type: str) -> str:
    return {"audio/mpeg": "mp3", "audio/x-wav": "wav"}.get(media_type, media_type.removeprefix("audio/"))


def _write_document(part: DocumentPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if dialect.key_of(part) == "document_url":
        name = {} if part.title is None else {"document_name": part.title}
        return {"type": "document_url", "document_url": _url_of(part, dialect), **name}
    file = {} if part.title is None else {"filename": part.title}
    if part.type == "file_ref":
        file["file_id"] = part.data
    elif part.type == "base64" and part.media_type is None:
        file["file_data"] = part.data
    else:
        file["file_data"] = _url_of(part, dialect)
    return {"type": "file", "file": file}


def _write_resource(part: ResourcePart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    shown = loss.resource_as_text(dialect.format, part, message=message)
    if isinstance(shown, TextPart):
        return {"type": "text", "text": shown.text}
    raise UnsupportedError(
        f"{dialect.format} cannot carry a resource but as its text", about=part, hint="read it first"
    )


Write = Callable[[Any, Dialect, Message | None], dict[str, Any] | None]

_WRITE: Final[dict[type, Write]] = {
    TextPart: _write_text,
    ThinkingPart: _write_thinking,
    OpaquePart: _write_opaque,
    ImagePart: _write_image,
    VideoPart: _write_video,
    AudioPart: _write_audio,
    DocumentPart: _write_document,
    ResourcePart: _write_resource,
}
