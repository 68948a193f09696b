"""Content blocks of the Messages format as parts, and back. Spec: docs/spec/adapters/anthropic_messages.md [ANT-8] ff.

Reading takes frozen JSON. A block whose type or shape has no canonical part becomes an `opaque` part, whole; a client's
tool call or result that does not fit is refused, because as an opaque part it would not be judged as a call.

A part that only this provider can take back (thinking, provider-run calls and results, file references) always has an
`extra` of this format, empty if need be: that is how writing tells it from a part of another provider.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cmf.adapters.wire.call_ids import from_plain_form, is_plain, mark, plain_form, with_mark
from cmf.adapters.wire.fields import as_text, extra_of, merge, object_in
from cmf.adapters.wire.loss import drop, own_extra
from cmf.enums import Role
from cmf.errors import ShapeError, UnmappedPartError, UnsupportedError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, replace, to_json, trusted
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

FORMAT: Final = "anthropic_messages"
CALLS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
HINT: Final = "see the Messages API reference"
_SEARCH_TEXTS: Final = "\n"  # between the texts of a search result, which are one content
_BLOCKS: Final = "content"  # the type of a source that is a document's own blocks, and the key of these
_COMPACTION: Final = "compaction"
_BROWSER: Final = "browser_state"
_NAMED_TOOL: Final = "tool_reference"
_BESIDE_BROWSER: Final = frozenset({"type", "cache_control"})

Block: TypeAlias = dict[str, Any]
Names: TypeAlias = dict[str, str]
"""Tool names by the id of the call, as far as the conversation has been read."""


def rest_of(body: Mapping[str, Any], taken: Collection[str], *, always: bool = False) -> FrozenDict | None:
    """The keys of a frozen object that are not `taken`, as an `extra` of this format; None if there are none.

    `always` gives the (then empty) extra anyway: the mark of what only this provider can take back.
    """
    left = {key: item for key, item in body.items() if key not in taken}
    return _extra(left) if left or always else None


def _extra(own: dict[str, Any]) -> FrozenDict:
    return frozen_mapping({FORMAT: frozen_mapping(own)})


def is_own(holder: Any) -> bool:
    """Whether a part came from this format and was not edited since."""
    return bool(holder.extra) and FORMAT in holder.extra


def _is_users(part: Part) -> bool:
    """Whether only users' messages hold such a part: media, and results of what the client ran."""
    if isinstance(part, ToolResultPart):
        return part.executed_by == "client"
    return isinstance(part, ImagePart | DocumentPart | ResourcePart)


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_blocks(blocks: Sequence[Any], path: str, names: Names, role: Role | None = None) -> list[Part]:
    """The parts of a list of frozen blocks, in order; `names` learns the calls among them.

    In an assistant's message, what only users say is marked as this format's own.
    """
    parts = [_decode_block(block, f"{path}[{index}]", names) for index, block in enumerate(blocks)]
    if role is Role.ASSISTANT:
        return [replace(part, extra=_extra({})) if _is_users(part) and part.extra is None else part for part in parts]
    return parts


def _decode_block(block: Any, path: str, names: Names) -> Part:
    if not isinstance(block, FrozenDict):
        raise ShapeError("expected a content block", path=path, hint=HINT)
    kind = _needed(block, "type", path)
    read = _READERS.get(kind, _result if kind.endswith("_tool_result") else None)
    part = read(block, path, names) if read is not None else None
    return part or trusted(OpaquePart, provider=FORMAT, type=kind, value=block)


def _needed(block: FrozenDict, key: str, path: str) -> str:
    text = block.get(key)
    if type(text) is not str:
        raise ShapeError(f"`{key}` is no string", path=f"{path}.{key}", hint=HINT)
    return text


_SAID: Final[dict[str, tuple[type[Part], dict[str, str], bool]]] = {
    "text": (TextPart, {"text": "text"}, False),
    "thinking": (ThinkingPart, {"thinking": "text", "signature": "signature"}, True),
    "redacted_thinking": (RedactedThinkingPart, {"data": "data"}, True),
}
"""Blocks of texts alone: their part, its fields by key (the first one is needed), and whether it is always marked."""


def _said(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    part_type, fields, marked = _SAID[block["type"]]
    texts = {key: block[key] for key in fields if type(block.get(key)) is str}
    if next(iter(fields)) not in texts:
        return None
    extra = rest_of(block, {"type", *texts}, always=marked) if marked or len(block) > 2 else None
    return trusted(part_type, **{fields[key]: text for key, text in texts.items()}, extra=extra)


_CALL_KEYS: Final = frozenset({"type", "id", "name", "input"})


def _call(block: FrozenDict, path: str, names: Names) -> Part | None:
    runner = "client" if block["type"] == "tool_use" else "provider"
    server = block.get("server_name") if block["type"] == "mcp_tool_use" else None
    if block["type"] == "mcp_tool_use" and type(server) is not str:
        return None
    call_id, name, given = _needed(block, "id", path), _needed(block, "name", path), block.get("input")
    # No other format's broken arguments may be written here: those of this one are marked [ANT-10].
    marked = runner == "provider" or isinstance(given, str)
    extra = rest_of(block, _CALL_KEYS if server is None else _CALL_KEYS | {"server_name"}, always=marked)
    if runner == "client":
        call_id, extra = _id_read(call_id, extra)
    if given is None or given == []:  # PHP writes an object without keys as a list
        given = FrozenDict()
    if not isinstance(given, dict | str):
        raise ShapeError("`input` is no object", path=f"{path}.input", hint=HINT)
    names[call_id] = name
    return trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=given if isinstance(given, dict) else None,
        arguments_raw=given if isinstance(given, str) else None,  # of a stream whose arguments never became JSON
        namespace=server,
        executed_by=runner,
        extra=extra,
    )


def _id_read(wire_id: str, extra: FrozenDict | None) -> tuple[str, FrozenDict | None]:
    """The canonical id for a wire's; one that the format's reference does not allow is kept, and marked so."""
    return from_plain_form(wire_id), extra if is_plain(wire_id) else with_mark(extra, FORMAT)


def _result(block: FrozenDict, path: str, names: Names) -> Part | None:
    """What a tool gave back: text or blocks; of most that the provider ran a JSON value, an object where it failed."""
    content, by_client = block.get("content"), block["type"] == "tool_result"
    of_blocks = by_client or block["type"] == "mcp_tool_result"
    fits = not of_blocks or isinstance(content, str | list | None)
    if not by_client and (type(block.get("tool_use_id")) is not str or not fits):
        return None
    call_id, taken = _needed(block, "tool_use_id", path), {"tool_use_id", "content"}
    if not fits:
        raise ShapeError("`content` is no text and no list of blocks", path=f"{path}.content", hint=HINT)
    if of_blocks:
        failed = block.get("is_error") is True
        taken |= {"is_error"} if isinstance(block.get("is_error"), bool | None) else set()
        if isinstance(content, list):
            content = tuple(decode_blocks(content, f"{path}.content", names)) or content
    else:
        failed = (as_text(object_in(block, "content").get("type")) or "").endswith("_error")
    if by_client:
        call_id, extra = _id_read(call_id, rest_of(block, {"type", *taken}))
    else:
        extra = rest_of(block, taken, always=True)
    return trusted(
        ToolResultPart,
        tool_call_id=call_id,
        tool_name=names.get(call_id),
        content=content,
        is_error=failed,
        executed_by="client" if by_client else "provider",
        extra=extra,
    )


_SOURCE_KEYS: Final = {
    "base64": ("data", "type", "media_type"),
    "url": ("url", "type"),
    "file": ("file_id", "type"),
    "text": ("data", "media_type"),
    _BLOCKS: (_BLOCKS,),
}
"""By type of a source: the key of its data, and the others that are read."""


def _media(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    part_type = DocumentPart if block["type"] == "document" else ImagePart
    source = object_in(block, "source")
    kind = as_text(source.get("type")) or ""
    fields = _source_in(source, kind, part_type) if kind in _SOURCE_KEYS else None
    if fields is None:
        return None
    taken = {"type", "source"}
    if part_type is DocumentPart and type(block.get("title")) is str:
        taken, fields["title"] = {*taken, "title"}, block["title"]
    left = {key: item for key, item in source.items() if key not in _SOURCE_KEYS[kind]}
    if kind == _BLOCKS and type(source[_BLOCKS]) is not str:
        left[_BLOCKS] = freeze(list(map(_cut, source[_BLOCKS])))
    if left:
        own = {key: item for key, item in block.items() if key not in taken}
        return trusted(part_type, **fields, extra=_extra({**own, "source": frozen_mapping(left)}))
    # Writing treats a part of another format differently; the mark keeps this one as it is.
    is_text = binary.agrees(fields.get("media_type") or "", "text/plain")
    rewritten = fields["data"].startswith("data:") if fields["type"] == "url" else is_text
    return trusted(part_type, **fields, extra=rest_of(block, taken, always=kind == "file" or rewritten))


def _source_in(source: Block, kind: str, part_type: type[Part]) -> dict[str, Any] | None:
    """The canonical fields of a media source; None where it has no canonical shape.

    Blocks of text, which citations name by number, are one text; plain text is base64 data whose view shows the text.
    """
    data, media_type = source.get(_SOURCE_KEYS[kind][0]), source.get("media_type")
    if kind == _BLOCKS and part_type is DocumentPart:
        texts = [data] if type(data) is str else _texts(data)
        data, media_type = _SEARCH_TEXTS.join(texts) if texts else None, "text/plain"
    if type(data) is not str:
        return None
    if kind in ("url", "file"):
        return {"type": "url" if kind == "url" else "file_ref", "data": data}
    if type(media_type) is not str:
        return None
    if kind != "base64":
        raw = data.encode("utf-8")
        if binary.sniff(raw) != "text/plain" or not binary.agrees(media_type, "text/plain"):
            return None
        data = base64.b64encode(raw).decode("ascii")
    return {"type": "base64", "data": data, "media_type": media_type}


def _search_result(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """What a search of the client's found, as the resource that it is; its texts are one [ANT-28]."""
    source, title, content = block.get("source"), block.get("title"), block.get("content")
    texts = _texts(content)
    if type(source) is not str or type(title) is not str or not isinstance(content, list) or not texts:
        return None
    own = {key: item for key, item in block.items() if key not in ("source", "title", "content")}
    if len(content) > 1 or content[0].keys() != {"type", "text"}:
        own["content"] = freeze(list(map(_cut, content)))
    return trusted(ResourcePart, uri=source, name=title, content=_SEARCH_TEXTS.join(texts), extra=_extra(own))


def _texts(blocks: Any) -> list[str]:
    """The texts of a list of text blocks; none where it is anything else."""
    listed = blocks if isinstance(blocks, list) else []
    said = [block.get("text") for block in listed if isinstance(block, dict) and block.get("type") == "text"]
    texts = [text for text in said if isinstance(text, str)]
    return texts if len(texts) == len(listed) else []


def _cut(block: Mapping[str, Any]) -> dict[str, Any]:
    """A text block without its text, which is in the content of the part: `chars` is its length there."""
    return {**{key: item for key, item in block.items() if key != "text"}, "chars": len(block["text"])}


def _compaction(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """The model's summary of what went before, as the text that it is; None where some of it is sealed [ANT-29]."""
    text, changes = block.get("content"), block.get("tool_changes")
    if type(text) is not str or block.get("encrypted_content") is not None:
        return None
    if changes is not None and not (isinstance(changes, list) and all(map(_only_names, changes))):
        return None  # it hands out tools
    return trusted(TextPart, text=text, extra=rest_of(block, {"content"}, always=True))


def _browser_state(block: FrozenDict, _path: str, _names: Names) -> Part:
    """The tabs of the client's browser, as the text of their JSON, of which the provider makes the model's [ANT-30]."""
    shown = {key: item for key, item in block.items() if key not in _BESIDE_BROWSER}
    return trusted(TextPart, text=dumps(shown).decode("utf-8"), extra=rest_of(block, shown, always=True))


def _tool_change(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """A change of tools that only names one, which is defined among the request's, under the type of such a name."""
    return trusted(OpaquePart, provider=FORMAT, type=_NAMED_TOOL, value=block) if _only_names(block) else None


def _only_names(change: Any) -> bool:
    tool = change.get("tool") if isinstance(change, dict) else None
    return isinstance(tool, dict) and tool.get("type") == _NAMED_TOOL and tool.keys() <= {"type", "name"}


_READERS: Final[dict[str, Callable[[FrozenDict, str, Names], Part | None]]] = {
    **dict.fromkeys(_SAID, _said),
    **dict.fromkeys(CALLS, _call),
    "tool_result": _result,
    "image": _media,
    "document": _media,
    "search_result": _search_result,
    _COMPACTION: _compaction,
    _BROWSER: _browser_state,
    "tool_addition": _tool_change,
    "tool_removal": _tool_change,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_content(message: Message, *, answer: bool = False) -> list[Block]:
    """The blocks of a message; parts that only another provider can take are dropped with a record.

    Neither an assistant nor an answer has media or client's results.
    """
    if answer or message.role is Role.ASSISTANT:
        for part in message.content:
            if _is_users(part) and not is_own(part):
                problem = f"an assistant's message holds no {part.content_type.value} in this format"
                raise UnsupportedError(problem, about=part, hint="put it into a message of the user")
    return _encode_parts(message.content, message)


def _encode_parts(parts: Iterable[Part], message: Message) -> list[Block]:
    return [block for part in parts if (block := encode_part(part, message)) is not None]


def encode_part(part: Part, message: Message) -> Block | None:
    """The block of one part; None where it was dropped: see `encode_content`."""
    if isinstance(part, VideoPart | AudioPart):
        problem = f"{part.content_type.value} cannot be sent in this format"
        raise UnsupportedError(problem, about=part, hint="route to a model that can")
    write, why = _WRITERS.get(type(part)), _why_not(part)
    if why is not None:
        drop(FORMAT, part.content_type.value, why, message=message)
        return None
    if write is None:
        raise UnmappedPartError(f"{type(part).__name__} has no block", hint="add it to the table of writers")
    block = write(part, message)
    return merge(block, own_extra(FORMAT, part, part.content_type.value, message=message)) if part.extra else block


def _why_not(part: Part) -> str | None:
    """Why the format cannot say a part that is not its own; None where it can."""
    if isinstance(part, ToolResultPart):
        is_foreign = part.executed_by == "provider" and extra_of(part, FORMAT).get("type") is None
        return "another provider ran the tool, or the result was edited" if is_foreign else None
    if isinstance(part, ToolCallPart):
        return "another provider ran it" if part.executed_by == "provider" and not is_own(part) else None
    if isinstance(part, OpaquePart):
        return None if part.provider == FORMAT else f"only {part.provider} knows its type"
    if isinstance(part, ResourceRefPart | PromptRequestPart | PromptResultPart):
        return "the format has no block for it"
    return None if is_own(part) else _SEALED.get(type(part))


_SEALED: Final[dict[type, str]] = {
    ThinkingPart: "only its own provider can read its signature",
    RedactedThinkingPart: "only its own provider can read it",
}


def _text(part: TextPart, message: Message) -> Block:
    own = extra_of(part, FORMAT)
    if own.get("type") == _COMPACTION:
        return {"content": part.text}
    if own.get("type") == _BROWSER and (decoded := loads_object(part.text)) is not None:
        return {key: item for key, item in decoded.items() if key not in own}
    return {"type": "text", "text": part.text}


def _tool_call(part: ToolCallPart, message: Message) -> Block:
    given = part.arguments if part.arguments is not None else part.arguments_raw or {}
    block: Block = {"type": "tool_use", "name": part.name, "input": given, **_call_id("id", part)}
    if part.executed_by == "provider":
        block["type"] = "server_tool_use"
        if part.namespace is not None:
            block |= {"type": "mcp_tool_use", "server_name": part.namespace}
    return block


def _call_id(key: str, part: ToolCallPart | ToolResultPart) -> Block:
    """The id as the format takes it; as it came, where a host of the format gave it [ANT-27]."""
    if part.tool_call_id is None:
        return {}
    kept = part.executed_by == "provider" or (part.extra and mark(FORMAT) in part.extra)
    return {key: part.tool_call_id if kept else plain_form(part.tool_call_id)}


def _tool_result(part: ToolResultPart, message: Message) -> Block:
    by_client, content = part.executed_by == "client", part.content
    kind = "tool_result" if by_client else extra_of(part, FORMAT)["type"]
    block: Block = {"type": kind, **_call_id("tool_use_id", part)}
    if isinstance(content, tuple):
        block["content"] = _encode_parts(content, message)
    elif isinstance(content, str) or content == [] or (not by_client and isinstance(content, dict | list)):
        block["content"] = content
    elif content is not None:
        block["content"] = dumps(content).decode("utf-8")
    if part.is_error and kind in ("tool_result", "mcp_tool_result"):
        block["is_error"] = True
    return block


def _image(part: ImagePart, message: Message) -> Block:
    return {"type": "image", "source": _source(part, "image")}


def _document(part: DocumentPart, message: Message) -> Block:
    return {"type": "document", "source": _source(part, "document"), **present(title=part.title)}


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
    source = object_in(extra_of(part, FORMAT), "source")
    kind = source.get("type")  # of a text, it rode along
    text = _as_text(part.data) if kind in ("text", _BLOCKS) else None
    if text is None:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if kind == "text":
        return {"media_type": part.media_type, "data": text}
    # A document's own blocks as they came; a bare text where it was one.
    return {_BLOCKS: _uncut(text, source[_BLOCKS]) if _BLOCKS in source else text}


def _inline(part: Part, data: str, media_type: str | None, what: str) -> Block:
    """A foreign part's data: text documents have a source of their own here."""
    media_type = binary.type_of(data, media_type or None)
    if media_type is None:
        raise UnsupportedError(f"the type of the {what} is not known", about=part, hint="say its media type")
    text = _as_text(data) if what == "document" and binary.agrees(media_type, "text/plain") else None
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
        texts = _uncut(part.content, extra_of(part, FORMAT).get("content"))
        return {"source": part.uri, "title": part.name, "content": texts}
    title = part.name if part.name is not None else part.uri
    if part.content is not None:
        source = {"type": "text", "media_type": "text/plain", "data": part.content}
        return {"type": "document", "source": source, "title": title}
    if part.blob is None:
        raise UnsupportedError("a resource without content cannot be sent", about=part, hint="read it first")
    media_type = part.mime_type or binary.sniff(part.blob)
    what = "image" if media_type is not None and media_type.startswith("image/") else "document"
    block: Block = {"type": what, "source": _inline(part, to_json(part.blob), media_type, what)}
    return block if what == "image" else {**block, "title": title}


def _uncut(content: str, cuts: Any) -> list[Block]:
    """The text blocks that one content was; a single one where the cuts do not fit it: no block was read so."""
    texts: list[Block] = []
    at = 0
    for cut in cuts if isinstance(cuts, list) else ():
        chars = cut.get("chars") if isinstance(cut, dict) else None
        if type(chars) is not int or chars < 0 or content[at - 1 : at] != _SEARCH_TEXTS[: at > 0]:
            break
        fields = {key: item for key, item in cut.items() if key != "chars"}
        texts.append({**fields, "text": content[at : at + chars]})
        at += chars + len(_SEARCH_TEXTS)
    else:
        if texts and at == len(content) + len(_SEARCH_TEXTS):
            return texts
    return [{"type": "text", "text": content}]


_WRITERS: Final[dict[type, Callable[[Any, Message], Block]]] = {
    TextPart: _text,
    ThinkingPart: lambda part, _: {"type": "thinking", "thinking": part.text, **present(signature=part.signature)},
    RedactedThinkingPart: lambda part, _: {"type": "redacted_thinking", "data": part.data},
    ToolCallPart: _tool_call,
    ToolResultPart: _tool_result,
    ImagePart: _image,
    DocumentPart: _document,
    ResourcePart: _resource,
    OpaquePart: lambda part, _: dict(part.value),
}
