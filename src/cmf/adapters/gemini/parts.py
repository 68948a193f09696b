"""Gemini's parts as canonical parts, and back. Spec: docs/spec/adapters/gemini.md [GEM-4] to [GEM-10].

A part is an object with one data key; whatever else it has (a signature, video metadata) is kept in `extra`. A part
with no data key that is known here, or with two of them, is opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import Fields, extra_of, merge
from cmf.adapters.wire.google_files import is_held
from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import present, trusted
from cmf.message import binary
from cmf.message.message import (
    DocumentPart,
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
    media_class,
)
from cmf.views.render import result_text

FORMAT: Final = "gemini"
CODE: Final = "executableCode"  # the name under which the code that Google runs is a tool call
CODE_RESULT: Final = "codeExecutionResult"
EMPTY: Final = FrozenDict()
Names = Mapping[str, str]
"""Tool names by call id, for results that do not say which tool they are of."""

_ABOUT: Final = frozenset({"thought", "thoughtSignature"})  # keys of a part that are no data
_Read = tuple[type[Part], dict[str, Any]] | None
"""The class and the fields of a part; None if it is opaque."""


# -- reading -----------------------------------------------------------------------------------------------------------


def decode_part(raw: Any, path: str) -> Part:
    """The canonical part of one part in normal form; ShapeError where a call or a result has no usable body."""
    if not isinstance(raw, dict):
        raise ShapeError("expected a JSON object", path=path, hint="a part is an object with one data key")
    if len(raw) == 1 and type(text := raw.get("text")) is str:
        return trusted(TextPart, text=text)
    kinds = [key for key in raw if key == "text" or key in _READERS]
    fields, read = Fields(raw, path), None
    if len(kinds) == 1 and kinds[0] != "text":
        key = kinds[0]
        body = fields.inside(key)
        read = None if body is None else _READERS[key](body)
        if body is not None and key not in (CODE, CODE_RESULT):  # of which all is read
            fields.leave(key, body)
    elif len(kinds) == 1 or (not kinds and raw.keys() <= _ABOUT):
        read = _text(fields)
    if read is None:
        kind = next((key for key in raw if key not in _ABOUT), "part")
        return trusted(OpaquePart, provider=FORMAT, type=kind, value=freeze(raw))
    part: Part = trusted(read[0], **read[1], extra=fields.rest(FORMAT))
    return part


def is_text(raw: Any, *, thought: bool = False) -> bool:
    """Whether a part in normal form decodes to a `TextPart`; with `thought`, to a `ThinkingPart`."""
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str) or (raw.get("thought") is True) != thought:
        return False
    return _READERS.keys().isdisjoint(raw)


def is_server_tool(name: Any) -> bool:
    """Whether `name` is in the spelling of Google's own tools (`GOOGLE_SEARCH_WEB`)."""
    return isinstance(name, str) and name.isupper()


def _text(fields: Fields) -> _Read:
    if "text" in fields and not isinstance(fields.peek("text"), str):
        return None
    text = fields.take("text", str) or ""
    if fields.peek("thought") is True:
        signature = fields.take("thoughtSignature", str)
        if signature is None:
            fields.drop("thought", True)  # a signed one keeps it, to tell its signature from another provider's
        return ThinkingPart, {"text": text, "signature": signature}
    fields.drop("thought", False)
    fields.drop("thought", None)
    return TextPart, {"text": text}


def _call(name_key: str, runner: str, call: Fields) -> _Read:
    if runner == "provider" and not is_server_tool(call.peek(name_key)):
        return None
    own = {"name": call.need(name_key, str), "arguments": call.optional("args", dict) or EMPTY}
    return ToolCallPart, {**own, "tool_call_id": call.optional("id", str), "executed_by": runner}


def _function_response(result: Fields) -> _Read:
    name = result.need("name", str)
    response = result.optional("response", dict) or EMPTY
    parts = result.optional("parts", list)
    own = {"tool_name": name, "tool_call_id": result.optional("id", str), "is_error": response.keys() == {"error"}}
    content: Any = response
    if parts:
        # The text is the response as JSON; the values in it are shown unescaped with it.
        extra = frozen_mapping({FORMAT: frozen_mapping({"response": response})})
        text_part = trusted(TextPart, text=dumps(response).decode(), extra=extra)
        content = (text_part, *(decode_part(part, f"{result.path}.parts[{at}]") for at, part in enumerate(parts)))
    return ToolResultPart, {**own, "content": content}


def _tool_response(result: Fields) -> _Read:
    if not is_server_tool(result.peek("toolType")):
        return None
    own = {"tool_name": result.need("toolType", str), "content": result.optional("response", dict) or EMPTY}
    return ToolResultPart, {**own, "tool_call_id": result.optional("id", str), "executed_by": "provider"}


def _media(data_key: str, body: Fields) -> _Read:
    data = body.take(data_key, str)
    if data is None:
        return None
    source = "base64" if data_key == "data" else "file_ref" if is_held(data) else "url"
    media_type = body.optional("mimeType", str)
    kind = media_class(media_type or "")
    title: dict[str, Any] = {"title": body.optional("displayName", str)} if kind is DocumentPart else {}
    return kind, {"type": source, "data": data, "media_type": media_type, **title}


def _executable_code(code: Fields) -> _Read:
    own = {"name": CODE, "tool_call_id": code.take("id", str), "executed_by": "provider"}
    return ToolCallPart, {**own, "arguments": freeze(code.left())}


def _code_execution_result(result: Fields) -> _Read:
    outcome = result.peek("outcome")
    own = {"tool_name": CODE, "tool_call_id": result.take("id", str), "executed_by": "provider"}
    failed = isinstance(outcome, str) and outcome != "OUTCOME_OK"
    return ToolResultPart, {**own, "content": freeze(result.left()), "is_error": failed}


_READERS: Final[dict[str, Callable[[Fields], _Read]]] = {
    "functionCall": partial(_call, "name", "client"),
    "functionResponse": _function_response,
    "inlineData": partial(_media, "data"),
    "fileData": partial(_media, "fileUri"),
    CODE: _executable_code,
    CODE_RESULT: _code_execution_result,
    "toolCall": partial(_call, "toolType", "provider"),
    "toolResponse": _tool_response,
}


# -- writing -----------------------------------------------------------------------------------------------------------


def encode_group(messages: Sequence[Message], names: Names = EMPTY) -> dict[str, Any]:
    """One content of Gemini's from the messages that belong in it, in normal form."""
    from_model = any(message.role is Role.ASSISTANT for message in messages)
    content: dict[str, Any] = {"role": "model" if from_model else "user"}
    parts = content["parts"] = []
    for message in messages:
        parts += _encode_parts(message.content, message, names)
        if message.extra:
            own = extra_of(message, FORMAT)
            if isinstance(own.get("role"), str):
                content["role"] = own["role"]
            merge(content, own)
            loss.drop_foreign_extra(FORMAT, message, "message", message=message)
    return content


def _encode_parts(parts: Iterable[Part], message: Message, names: Names) -> list[dict[str, Any]]:
    """Parts in normal form; without those that were dropped, with a record."""
    encoded: list[dict[str, Any]] = []
    for part in parts:
        wire = _encode_part(part, message, names)
        if isinstance(wire, str):
            loss.drop(FORMAT, part.content_type.value, wire, message=message)
            continue
        if part.extra:
            loss.drop_foreign_extra(FORMAT, part, part.content_type.value, message=message)
            merge(wire, extra_of(part, FORMAT))
        encoded.append(wire)
    return encoded


def _encode_part(part: Part, message: Message, names: Names) -> dict[str, Any] | str:
    """One part in normal form, but for what it came with; or why it cannot be said."""
    if isinstance(part, TextPart):
        return {"text": part.text}
    if isinstance(part, ToolCallPart):
        return _encode_call(part)
    if isinstance(part, ToolResultPart):
        return _encode_result(part, message, names)
    if isinstance(part, MediaPart):
        return _encode_media(part)
    if isinstance(part, ThinkingPart):
        encoded: dict[str, Any] = {"text": part.text, "thought": True}
        if part.signature is not None:
            if "thought" in extra_of(part, FORMAT):
                encoded["thoughtSignature"] = part.signature
            else:
                loss.drop(FORMAT, "thinking_signature", "it is another provider's", message=message)
        return encoded
    if isinstance(part, OpaquePart):
        return dict(part.value) if part.provider == FORMAT else "it is another format's block"
    if isinstance(part, RedactedThinkingPart):
        return "it is another provider's secret"
    shown = loss.resource_as_text(FORMAT, part, message=message) if isinstance(part, ResourcePart) else part
    return {"text": shown.text} if isinstance(shown, TextPart) else "the format has no such part"


def _encode_call(part: ToolCallPart) -> dict[str, Any] | str:
    arguments, id_ = part.arguments, present(id=part.tool_call_id)
    if arguments is None:
        if part.arguments_raw is not None and part.arguments_raw.strip():
            hint = "Gemini takes an object: repair the call"
            raise UnsupportedError("arguments that are no JSON object", about=part, hint=hint)
        arguments = EMPTY
    if part.executed_by == "client":
        return {"functionCall": {"name": part.name, "args": arguments, **id_}}
    if part.name == CODE:
        return {CODE: {**arguments, **id_}}
    if is_server_tool(part.name):
        return {"toolCall": {"toolType": part.name, "args": arguments, **id_}}
    return "another provider ran it"


def _encode_result(part: ToolResultPart, message: Message, names: Names) -> dict[str, Any] | str:
    content, id_, name = part.content, present(id=part.tool_call_id), part.tool_name
    if part.executed_by == "provider":
        if name == CODE:
            failed = {"outcome": "OUTCOME_FAILED" if part.is_error else "OUTCOME_OK"}
            body = content if isinstance(content, dict) else failed | _response(content, is_error=False)
            return {CODE_RESULT: {**body, **id_}}
        if is_server_tool(name):
            return {"toolResponse": {"toolType": name, "response": _response(content, is_error=part.is_error), **id_}}
        return "another provider ran it"
    name = names.get(part.tool_call_id or "") if name is None else name
    if name is None:
        hint = "send the call that it answers as well"
        raise UnsupportedError("a tool result without the tool's name", about=part, hint=hint)
    result: dict[str, Any] = {"name": name, **id_}
    if not isinstance(content, tuple):
        return {"functionResponse": {**result, "response": _response(content, is_error=part.is_error)}}
    first = content[0] if content else None
    own = isinstance(first, TextPart) and "response" in extra_of(first, FORMAT)
    response = loads_object(first.text) if isinstance(first, TextPart) and own else None
    if response is not None:
        media = content[1:]
    else:
        shown = [loss.resource_as_text(FORMAT, inner, message=message) for inner in content]
        texts = [inner.text for inner in shown if isinstance(inner, TextPart)]
        media = tuple([inner for inner in shown if not isinstance(inner, TextPart)])
        response = _response("\n".join(texts), is_error=part.is_error) if texts else {}
    parts = _encode_parts(media, message, names) or None
    return {"functionResponse": {**result, "response": response, **present(parts=parts)}}


def _response(content: Any, *, is_error: bool) -> dict[str, Any]:
    """The object that Gemini wants for a result: the result itself, or under the name that Gemini gives it."""
    if isinstance(content, dict):
        return content
    text = result_text(content) if isinstance(content, tuple) else content
    return {"error" if is_error else "output": text}


def _encode_media(part: MediaPart) -> dict[str, Any]:
    named = present(displayName=part.title if isinstance(part, DocumentPart) else None)
    if part.type == "base64":
        typed = present(mimeType=binary.type_of(part.data, part.media_type))
        return {"inlineData": {**typed, "data": part.data, **named}}
    if (inline := binary.data_url(part.data)) is not None:
        return {"inlineData": {"mimeType": inline[0], "data": inline[1], **named}}
    if part.type == "file_ref" and not is_held(part.data) and "://" not in part.data:
        hint = "send its bytes or an address"
        raise UnsupportedError("a file that another provider holds", about=part, hint=hint)
    return {"fileData": {**present(mimeType=part.media_type), "fileUri": part.data, **named}}
