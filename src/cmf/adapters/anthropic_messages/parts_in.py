"""Content blocks of the Messages format as canonical parts. Spec: docs/spec/adapters/anthropic_messages.md [ANT-8] ff.

Reading takes frozen JSON. A block whose type or shape has no canonical part becomes an `opaque` part, whole; a client's
tool call or result that does not fit is refused, because as an opaque part it would not be judged as a call.

A part that only this provider can take back (thinking, provider-run calls and results, file references) always has an
`extra` of this format, empty if need be: that is how writing tells it from a part of another provider.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from cmf.adapters.wire.call_ids import from_plain_form, is_plain, with_mark
from cmf.adapters.wire.fields import as_text, object_in
from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message import binary
from cmf.message.message import (
    DocumentPart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    ResourcePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT: Final = "anthropic_messages"
CALLS: Final = ("tool_use", "server_tool_use", "mcp_tool_use")
_HINT: Final = "see the Messages API reference"
_EMPTY: Final = FrozenDict()
SEARCH_TEXTS: Final = "\n"  # between the texts of a search result, which are one content

_MARK: Final = frozen_mapping({FORMAT: _EMPTY})

Names: TypeAlias = dict[str, str]
"""Tool names by the id of the call, as far as the conversation has been read."""


def rest_of(body: Mapping[str, Any], taken: Collection[str], *, always: bool = False) -> FrozenDict | None:
    """The keys of a frozen object that are not in `known`, as an `extra` of this format; None if there are none.

    `always` gives the (then empty) extra anyway: the mark of what only this provider can take back.
    """
    left = {key: item for key, item in body.items() if key not in taken}
    return frozen_mapping({FORMAT: frozen_mapping(left)}) if left or always else None


def is_own(holder: Any) -> bool:
    """Whether a part came from this format and was not edited since."""
    return bool(holder.extra) and FORMAT in holder.extra


def is_users(part: Part) -> bool:
    """Whether only users' messages hold such a part: media, and results of what the client ran."""
    if isinstance(part, ToolResultPart):
        return part.executed_by == "client"
    return isinstance(part, ImagePart | DocumentPart | ResourcePart)


def learn_calls(names: Names, messages: Iterable[Message]) -> None:
    """Add the names of the tools that the messages call, by the id of the call."""
    for message in messages:
        for part in message.content:
            if isinstance(part, ToolCallPart) and part.tool_call_id is not None:
                names[part.tool_call_id] = part.name


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_blocks(blocks: Sequence[Any], path: str, names: Names) -> list[Part]:
    """The parts of a list of blocks, in order; `names` learns the calls among them."""
    return [decode_block(block, f"{path}[{index}]", names) for index, block in enumerate(blocks)]


def decode_assistant(blocks: Sequence[Any], path: str, names: Names) -> list[Part]:
    """The parts of an assistant's message: `decode_blocks`, and what only users say is marked as this format's own."""
    return [
        replace(part, extra=_MARK) if is_users(part) and part.extra is None else part
        for part in decode_blocks(blocks, path, names)
    ]


def decode_block(block: Any, path: str, names: Names) -> Part:
    """The part of a (frozen) block: see `decode_blocks`."""
    if not isinstance(block, FrozenDict):
        raise ShapeError("expected a content block", path=path, hint=_HINT)
    kind = block.get("type")
    if not isinstance(kind, str):
        raise ShapeError("`type` is no string", path=f"{path}.type", hint=_HINT)
    read = _READERS.get(kind)
    if read is not None:
        part = read(block, path, names)
    elif kind.endswith("_tool_result"):
        part = _provider_result(block, path, names)
    else:
        part = None
    return part or trusted(OpaquePart, provider=FORMAT, type=kind, value=block)


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
        given = _EMPTY
    if not isinstance(given, dict | str):
        raise ShapeError("`input` is no object", path=f"{path}.input", hint=_HINT)
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


def _needed(block: FrozenDict, key: str, path: str) -> str:
    text = block.get(key)
    if type(text) is not str:
        raise ShapeError(f"`{key}` is no string", path=f"{path}.{key}", hint=_HINT)
    return text


def _tool_result(block: FrozenDict, path: str, names: Names) -> Part | None:
    call_id, extra = _id_read(_needed(block, "tool_use_id", path), rest_of(block, {"type", *_result_keys(block)}))
    return trusted(
        ToolResultPart,
        tool_call_id=call_id,
        tool_name=names.get(call_id),
        content=_result_content(block.get("content"), f"{path}.content", names),
        is_error=block.get("is_error") is True,
        extra=extra,
    )


def _result_keys(block: FrozenDict) -> set[str]:
    """The keys that a result's part has; of `is_error` only if it is a plain flag."""
    plain = isinstance(block.get("is_error"), bool | None)
    return {"tool_use_id", "content", "is_error"} if plain else {"tool_use_id", "content"}


def _result_content(content: Any, path: str, names: Names) -> Any:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ShapeError("`content` is no text and no list of blocks", path=path, hint=_HINT)
    return tuple(decode_blocks(content, path, names)) or content


def _provider_result(block: FrozenDict, path: str, names: Names) -> Part | None:
    """What a tool that the provider ran gave back: blocks of MCP, or one JSON value, an object where it failed."""
    content, taken = block.get("content"), {"tool_use_id", "content"}
    if type(block.get("tool_use_id")) is not str:
        return None
    if block["type"] == "mcp_tool_result":
        if not isinstance(content, str | list | None):
            return None
        content, taken = _result_content(content, f"{path}.content", names), _result_keys(block)
        failed = block.get("is_error") is True
    else:
        verdict = content.get("type") if isinstance(content, dict) else None
        failed = isinstance(verdict, str) and verdict.endswith("_error")
    return trusted(
        ToolResultPart,
        tool_call_id=block["tool_use_id"],
        tool_name=names.get(block["tool_use_id"]),
        content=content,
        is_error=failed,
        executed_by="provider",
        extra=rest_of(block, taken, always=True),
    )


BLOCKS: Final = "content"  # the type of a source that is a document's own blocks, and the key of these
_SOURCE_KEYS: Final = {"base64": "data", "url": "url", "file": "file_id", "text": "data"}
_TAKEN: Final = {
    "base64": ("type", "media_type", "data"),
    "url": ("type", "url"),
    "file": ("type", "file_id"),
    "text": ("media_type", "data"),
    BLOCKS: (BLOCKS,),
}


def _image(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    fields = _media(block)
    if fields is None or "text" in fields:
        return None
    return trusted(ImagePart, **fields, extra=_media_extra(block, {"type", "source"}, fields))


def _document(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    source = block.get("source")
    if isinstance(source, FrozenDict) and source.get("type") == BLOCKS:
        fields = _blocks_source(source)
    else:
        fields = _media(block)
    if fields is None:
        return None
    keys = {"type", "source"}
    if type(block.get("title")) is str:
        keys, fields["title"] = {*keys, "title"}, block["title"]
    return trusted(DocumentPart, **fields, extra=_media_extra(block, keys, fields))


def _media(block: FrozenDict) -> dict[str, Any] | None:
    """The canonical fields of a media source; None where it has no canonical shape."""
    source = object_in(block, "source")
    kind = as_text(source.get("type"))
    data = source.get(_SOURCE_KEYS.get(kind or "", ""))
    if type(data) is not str:
        return None
    if kind == "url":
        return {"type": "url", "data": data}
    if kind == "file":
        return {"type": "file_ref", "data": data}
    media_type = source.get("media_type")
    if type(media_type) is not str:
        return None
    if kind == "base64":
        return {"type": "base64", "data": data, "media_type": media_type}
    return _text_source(data, media_type)


def _blocks_source(source: FrozenDict) -> dict[str, Any] | None:
    """A text, or blocks of text which citations name by number: one text; None where there is anything else in them."""
    blocks = source.get(BLOCKS)
    texts = [blocks] if type(blocks) is str else _texts(blocks)
    return _text_source(SEARCH_TEXTS.join(texts), "text/plain") if texts else None


def _text_source(text: str, media_type: str) -> dict[str, Any] | None:
    """Plain text as base64 data, where its view will show it as the text that it is."""
    raw = text.encode("utf-8")
    if binary.sniff(raw) != "text/plain" or not binary.agrees(media_type, "text/plain"):
        return None
    return {"type": "base64", "data": base64.b64encode(raw).decode("ascii"), "media_type": media_type}


def _media_extra(block: FrozenDict, taken: Collection[str], fields: dict[str, Any]) -> FrozenDict | None:
    source = block["source"]
    kind = source["type"]
    left = {key: item for key, item in source.items() if key not in _TAKEN[kind]}
    if kind == BLOCKS and type(source[BLOCKS]) is not str:
        left[BLOCKS] = freeze(list(map(_cut, source[BLOCKS])))
    if not left:
        # Writing treats a part of another format differently; the mark keeps this one as it is.
        is_text = binary.agrees(fields.get("media_type") or "", "text/plain")
        rewritten = fields["data"].startswith("data:") if fields["type"] == "url" else is_text
        return rest_of(block, taken, always=kind == "file" or rewritten)
    own = {key: item for key, item in block.items() if key not in taken} | {"source": frozen_mapping(left)}
    return frozen_mapping({FORMAT: frozen_mapping(own)})


def _search_result(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """What a search of the client's found, as the resource that it is; its texts are one [ANT-28]."""
    source, title, content = block.get("source"), block.get("title"), block.get("content")
    texts = _texts(content)
    if type(source) is not str or type(title) is not str or not isinstance(content, list) or not texts:
        return None
    extra = rest_of(block, {"source", "title", "content"}, always=True)
    if extra is not None and (len(content) > 1 or content[0].keys() != {"type", "text"}):
        extra = frozen_mapping({FORMAT: frozen_mapping({**extra[FORMAT], "content": freeze(list(map(_cut, content)))})})
    return trusted(ResourcePart, uri=source, name=title, content=SEARCH_TEXTS.join(texts), extra=extra)


def _texts(blocks: Any) -> list[str]:
    """The texts of a list of text blocks; none where it is anything else."""
    texts = [block["text"] for block in blocks if _is_text(block)] if isinstance(blocks, list) else []
    return texts if texts and len(texts) == len(blocks) else []


def _is_text(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and type(block.get("text")) is str


def _cut(block: Mapping[str, Any]) -> dict[str, Any]:
    """A text block without its text, which is in the content of the part: `chars` is its length there."""
    return {**{key: item for key, item in block.items() if key != "text"}, "chars": len(block["text"])}


COMPACTION: Final = "compaction"
BROWSER: Final = "browser_state"
NAMED_TOOL: Final = "tool_reference"
_SUMMARY_KEYS: Final = frozenset({"content"})
_BESIDE_BROWSER: Final = frozenset({"type", "cache_control"})


def _compaction(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """The model's summary of what went before, as the text that it is; None where some of it is sealed [ANT-29]."""
    text, changes = block.get("content"), block.get("tool_changes")
    if type(text) is not str or block.get("encrypted_content") is not None:
        return None
    if changes is not None and not (isinstance(changes, list) and all(map(_only_names, changes))):
        return None  # it hands out tools
    return trusted(TextPart, text=text, extra=rest_of(block, _SUMMARY_KEYS, always=True))


def _browser_state(block: FrozenDict, _path: str, _names: Names) -> Part:
    """The tabs of the client's browser, as the text of their JSON, of which the provider makes the model's [ANT-30]."""
    shown = {key: item for key, item in block.items() if key not in _BESIDE_BROWSER}
    beside = {key: item for key, item in block.items() if key in _BESIDE_BROWSER}
    return trusted(TextPart, text=dumps(shown).decode("utf-8"), extra=frozen_mapping({FORMAT: frozen_mapping(beside)}))


def _tool_change(block: FrozenDict, _path: str, _names: Names) -> Part | None:
    """A change of tools that only names one, which is defined among the request's, under the type of such a name."""
    return trusted(OpaquePart, provider=FORMAT, type=NAMED_TOOL, value=block) if _only_names(block) else None


def _only_names(change: Any) -> bool:
    tool = change.get("tool") if isinstance(change, dict) else None
    return isinstance(tool, dict) and tool.get("type") == NAMED_TOOL and tool.keys() <= {"type", "name"}


Reader: TypeAlias = Callable[[FrozenDict, str, Names], Part | None]
_READERS: Final[dict[str, Reader]] = {
    **dict.fromkeys(_SAID, _said),
    **dict.fromkeys(CALLS, _call),
    "tool_result": _tool_result,
    "image": _image,
    "document": _document,
    "search_result": _search_result,
    COMPACTION: _compaction,
    BROWSER: _browser_state,
    "tool_addition": _tool_change,
    "tool_removal": _tool_change,
}
