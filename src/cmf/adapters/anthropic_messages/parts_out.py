"""Canonical parts as content blocks of the Messages format. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from cmf.adapters.anthropic_messages.parts_in import (
    BLOCKS,
    BROWSER,
    COMPACTION,
    FORMAT,
    SEARCH_TEXTS,
    is_own,
    is_users,
)
from cmf.adapters.wire.call_ids import mark, plain_form
from cmf.adapters.wire.fields import extra_of, merge
from cmf.adapters.wire.loss import drop, own_extra
from cmf.enums import Role
from cmf.errors import UnmappedPartError, UnsupportedError
from cmf.json.codec import dumps, loads_object
from cmf.json.value import to_json
from cmf.message import binary
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    PromptRequestPart,
    PromptResultPart,
    RedactedThinkingPart,
    ResourcePart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)

Block: TypeAlias = dict[str, Any]


def encode_content(message: Message, *, answer: bool = False) -> list[Block]:
    """The blocks of a message: see `encode_parts`. Neither an assistant nor an answer has media or client's results."""
    if answer or message.role is Role.ASSISTANT:
        for part in message.content:
            if is_users(part) and not is_own(part):
                raise UnsupportedError(
                    f"an assistant's message holds no {part.content_type.value} in this format",
                    about=part,
                    hint="put it into a message of the user",
                )
    return encode_parts(message.content, message)


def encode_parts(parts: Iterable[Part], message: Message) -> list[Block]:
    """The blocks of some parts of a message; parts that only another provider can take are dropped with a record."""
    return [block for part in parts if (block := encode_part(part, message)) is not None]


def encode_part(part: Part, message: Message) -> Block | None:
    """The block of one part; None where it was dropped: see `encode_parts`."""
    write = _WRITERS.get(type(part))
    if write is None:
        raise UnmappedPartError(f"{type(part).__name__} has no block", hint="add it to the table of writers")
    block = write(part, message)
    if block is None or not part.extra:
        return block
    return merge(block, own_extra(FORMAT, part, part.content_type.value, message=message))


def _text(part: TextPart, message: Message) -> Block:
    own = extra_of(part, FORMAT)
    if own.get("type") == COMPACTION:
        return {"content": part.text}
    if own.get("type") == BROWSER and (decoded := loads_object(part.text)) is not None:
        return {key: item for key, item in decoded.items() if key not in own}
    return {"type": "text", "text": part.text}


def _thinking(part: ThinkingPart, message: Message) -> Block | None:
    if not is_own(part):
        drop(FORMAT, "thinking", "only its own provider can read its signature", message=message)
        return None
    block: Block = {"type": "thinking", "thinking": part.text}
    if part.signature is not None:
        block["signature"] = part.signature
    return block


def _redacted_thinking(part: RedactedThinkingPart, message: Message) -> Block | None:
    if not is_own(part):
        drop(FORMAT, "redacted_thinking", "only its own provider can read it", message=message)
        return None
    return {"type": "redacted_thinking", "data": part.data}


def _tool_call(part: ToolCallPart, message: Message) -> Block | None:
    block: Block = {"type": "tool_use", "name": part.name, "input": _input(part)}
    if part.tool_call_id is not None:
        block["id"] = _call_id(part, part.tool_call_id)
    if part.executed_by == "provider":
        if not is_own(part):
            drop(FORMAT, "tool_call", "another provider ran it", message=message)
            return None
        block["type"] = "server_tool_use"
        if part.namespace is not None:
            block |= {"type": "mcp_tool_use", "server_name": part.namespace}
    return block


def _call_id(part: ToolCallPart | ToolResultPart, call_id: str) -> str:
    """The id as the format takes it; as it came, where a host of the format gave it [ANT-27]."""
    kept = part.executed_by == "provider" or (part.extra and mark(FORMAT) in part.extra)
    return call_id if kept else plain_form(call_id)


def _input(part: ToolCallPart) -> Any:
    if part.arguments is not None:
        return part.arguments
    return part.arguments_raw or {}


def _tool_result(part: ToolResultPart, message: Message) -> Block | None:
    if part.executed_by == "provider":
        return _provider_result(part, message)
    block: Block = {"type": "tool_result", **_result(part, message)}
    if part.is_error:
        block["is_error"] = True
    return block


def _provider_result(part: ToolResultPart, message: Message) -> Block | None:
    kind = extra_of(part, FORMAT).get("type")
    if kind is None:
        drop(FORMAT, "tool_result", "another provider ran the tool, or the result was edited", message=message)
        return None
    block: Block = {"type": kind, **_result(part, message)}
    if isinstance(part.content, dict | list):
        block["content"] = part.content
    if part.is_error and kind == "mcp_tool_result":
        block["is_error"] = True
    return block


def _result(part: ToolResultPart, message: Message) -> Block:
    block: Block = {} if part.tool_call_id is None else {"tool_use_id": _call_id(part, part.tool_call_id)}
    content = part.content
    if isinstance(content, tuple):
        block["content"] = encode_parts(content, message)
    elif isinstance(content, str):
        block["content"] = content
    elif content is not None:
        block["content"] = [] if content == [] else dumps(content).decode("utf-8")
    return block


def _image(part: ImagePart, message: Message) -> Block:
    return {"type": "image", "source": _source(part, "image")}


def _document(part: DocumentPart, message: Message) -> Block:
    block: Block = {"type": "document", "source": _source(part, "document")}
    if part.title is not None:
        block["title"] = part.title
    return block


def _source(part: ImagePart | DocumentPart, what: str) -> Block:
    own = is_own(part)
    if part.type == "file_ref":
        if not own:
            raise UnsupportedError(f"the {what} is held by another provider", about=part, hint="send its data or a URL")
        return {"type": "file", "file_id": part.data}
    if part.type == "url":
        inline = None if own else binary.data_url(part.data)
        return {"type": "url", "url": part.data} if inline is None else _inline(part, inline[1], inline[0], what)
    if not own:
        return _inline(part, part.data, part.media_type, what)
    source = extra_of(part, FORMAT).get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if kind in ("text", BLOCKS) and (text := _as_text(part.data)) is not None:  # its `type` rode along
        return {"media_type": part.media_type, "data": text} if kind == "text" else _of_blocks(text, source)
    return {"type": "base64", "media_type": part.media_type, "data": part.data}


def _of_blocks(text: str, source: Any) -> Block:
    """A document's own blocks as they came; a bare text where it was one."""
    if BLOCKS not in source:
        return {BLOCKS: text}
    return {BLOCKS: _cut(text, source[BLOCKS]) or [{"type": "text", "text": text}]}


def _inline(part: Part, data: str, media_type: str | None, what: str) -> Block:
    """A foreign part's data: text documents have a source of their own here."""
    media_type = binary.type_of(data, media_type or None)
    if media_type is None:
        raise UnsupportedError(f"the type of the {what} is not known", about=part, hint="say its media type")
    if what == "document" and binary.agrees(media_type, "text/plain"):
        text = _as_text(data)
        if text is not None:
            return {"type": "text", "media_type": "text/plain", "data": text}
    return {"type": "base64", "media_type": media_type, "data": data}


def _as_text(data: str) -> str | None:
    try:
        return base64.b64decode(data, validate=True).decode("utf-8")
    except ValueError:
        return None


def _resource(part: ResourcePart, message: Message) -> Block:
    """A resource that came with its content is a document here; its address has no place but the title."""
    if is_own(part) and part.content is not None:  # a search result [ANT-28]
        texts = _cut(part.content, extra_of(part, FORMAT).get("content")) or [{"type": "text", "text": part.content}]
        return {"source": part.uri, "title": part.name, "content": texts}
    title = part.name if part.name is not None else part.uri
    if part.content is not None:
        return {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": part.content},
            "title": title,
        }
    if part.blob is None:
        raise UnsupportedError("a resource without content cannot be sent", about=part, hint="read it first")
    media_type = part.mime_type or binary.sniff(part.blob)
    what = "image" if media_type is not None and media_type.startswith("image/") else "document"
    block: Block = {"type": what, "source": _inline(part, to_json(part.blob), media_type, what)}
    return block if what == "image" else {**block, "title": title}


def _cut(content: str, cuts: Any) -> list[Block]:
    """The texts that one content was. None at all where the cuts do not fit it: no search result was read so."""
    texts: list[Block] = []
    at = 0
    for cut in cuts if isinstance(cuts, list) else ():
        chars = cut.get("chars") if isinstance(cut, dict) else None
        if type(chars) is not int or chars < 0 or content[at - 1 : at] != SEARCH_TEXTS[: at > 0]:
            return []
        fields = {key: item for key, item in cut.items() if key != "chars"}
        texts.append({**fields, "text": content[at : at + chars]})
        at += chars + len(SEARCH_TEXTS)
    return texts if at == len(content) + len(SEARCH_TEXTS) else []


def _unsupported(part: VideoPart | AudioPart, _message: Message) -> Block:
    problem = f"{part.content_type.value} cannot be sent in this format"
    raise UnsupportedError(problem, about=part, hint="route to a model that can")


def _not_carried(part: ResourceRefPart | PromptRequestPart | PromptResultPart, message: Message) -> None:
    drop(FORMAT, part.content_type.value, "the format has no block for it", message=message)


def _opaque(part: OpaquePart, message: Message) -> Block | None:
    if part.provider != FORMAT:
        drop(FORMAT, "opaque", f"only {part.provider} knows its type", message=message)
        return None
    return dict(part.value)


_WRITERS: Final[dict[type, Callable[[Any, Message], Block | None]]] = {
    TextPart: _text,
    ThinkingPart: _thinking,
    RedactedThinkingPart: _redacted_thinking,
    ToolCallPart: _tool_call,
    ToolResultPart: _tool_result,
    ImagePart: _image,
    DocumentPart: _document,
    ResourcePart: _resource,
    VideoPart: _unsupported,
    AudioPart: _unsupported,
    ResourceRefPart: _not_carried,
    PromptRequestPart: _not_carried,
    PromptResultPart: _not_carried,
    OpaquePart: _opaque,
}
