"""The blocks of a `content` list, both ways. Spec: docs/spec/adapters/openai_chat.md [OAC-3] to [OAC-5]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from cmf.adapters.chat_completions.dialect import Dialect
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import Fields, extra_of, merge
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.json.value import trusted
from cmf.message import binary
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ResourcePart,
    SourceType,
    TextPart,
    ThinkingPart,
    VideoPart,
)

Taken = Part | None
Take = Callable[[Fields, Dialect], Taken]


def blocks(raw: Any, path: str, dialect: Dialect) -> list[Part]:
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
    return opaque(raw, dialect)


def opaque(raw: Any, dialect: Dialect, key: str | None = None) -> OpaquePart:
    """A wire object without a canonical shape, whole."""
    kind = raw.get("type")
    extra = FrozenDict({f"{dialect.format}.key": key}) if key is not None else None
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


def source(url: str) -> tuple[SourceType, str, str | None]:
    """How media are given, their data, their media type: base64 where `url` is a data URL that can be spelled again."""
    found = binary.data_url(url)
    return ("base64", found[1], found[0]) if found is not None and found[0] else ("url", url, None)


def url_of(part: ImagePart | VideoPart | DocumentPart, dialect: Dialect) -> str:
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
        how, data, kind = source(url)
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
        how, data, kind = source(data) if data.startswith("data:") or "://" in data else ("base64", data, None)
    fields.leave("file", nested)
    extra = dialect.rest(fields)
    return trusted(DocumentPart, type=how, data=data, media_type=kind, title=title, extra=extra)


def _document_url(fields: Fields, dialect: Dialect) -> Taken:
    url = fields.take("document_url", str)
    if url is None:
        return None
    how, data, kind = source(url)
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


# -- and back ----------------------------------------------------------------------------------------------------------


def wire_blocks(parts: Sequence[Part], dialect: Dialect, message: Message | None) -> list[dict[str, Any]]:
    """The blocks of these parts; what the format cannot say is dropped with a record, or refused [C8]."""
    written = (wire_block(part, dialect, message) for part in parts)
    return [block for block in written if block is not None]


def wire_block(part: Part, dialect: Dialect, message: Message | None) -> dict[str, Any] | None:
    """One block; None where it was dropped."""
    write = _WRITE.get(type(part))
    if write is None:
        raise UnsupportedError(
            f"{dialect.format} cannot carry a {part.content_type} part here",
            about=part,
            hint="route to a target that can",
        )
    if dialect.is_foreign(part):
        loss.drop(dialect.format, part.content_type, "fields of another format", message=message)
    block = write(part, dialect, message)
    return None if block is None else merge(block, extra_of(part, dialect.format))


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
    url = url_of(part, dialect)
    return {"type": "image_url", "image_url": url if dialect.key_of(part) == "string" else {"url": url}}


def _write_video(part: VideoPart, dialect: Dialect, message: Message | None) -> dict[str, Any]:
    if not dialect.video and dialect.key_of(part) is None:
        raise UnsupportedError(f"{dialect.format} cannot carry a video", about=part, hint="route to a target that can")
    url = url_of(part, dialect)
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
        return {"type": "document_url", "document_url": url_of(part, dialect), **name}
    file = {} if part.title is None else {"filename": part.title}
    if part.type == "file_ref":
        file["file_id"] = part.data
    elif part.type == "base64" and part.media_type is None:
        file["file_data"] = part.data
    else:
        file["file_data"] = url_of(part, dialect)
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
