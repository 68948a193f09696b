"""Gemini's parts as canonical parts. Spec: docs/spec/adapters/gemini.md [GEM-4] to [GEM-9].

A part is an object with one data key; whatever else it has (a signature, video metadata) is kept in `extra`. A part
with no data key that is known here, or with two of them, is opaque.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cmf.adapters.wire.fields import Fields
from cmf.adapters.wire.google_files import is_held
from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import trusted
from cmf.message.message import (
    DocumentPart,
    MediaPart,
    OpaquePart,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    media_class,
)

FORMAT: Final = "gemini"
CODE: Final = "executableCode"  # the name under which the code that Google runs is a tool call
CODE_RESULT: Final = "codeExecutionResult"
EMPTY: Final = FrozenDict()

_ABOUT: Final = frozenset({"thought", "thoughtSignature"})  # keys of a part that are no data


def decode_part(raw: Any, path: str) -> Part:
    """The canonical part of one part in normal form; ShapeError where a call or a result has no usable body."""
    if not isinstance(raw, dict):
        raise ShapeError("expected a JSON object", path=path, hint="a part is an object with one data key")
    if len(raw) == 1 and type(text := raw.get("text")) is str:
        return trusted(TextPart, text=text)
    kinds = [key for key in raw if key in _READERS]
    if len(kinds) > 1 or (not kinds and raw.keys() - _ABOUT):
        return _opaque(raw)
    read = _READERS[kinds[0]] if kinds else _text
    part = read(Fields(raw, path))
    return _opaque(raw) if part is None else part


def is_text(raw: Any) -> bool:
    """Whether a part in normal form decodes to a `TextPart`."""
    return _text_kind(raw) and raw.get("thought") is not True


def is_thought(raw: Any) -> bool:
    """Whether a part in normal form decodes to a `ThinkingPart`."""
    return _text_kind(raw) and raw.get("thought") is True


def _text_kind(raw: Any) -> bool:
    if not isinstance(raw, dict) or not isinstance(raw.get("text"), str):
        return False
    return not any(key in _READERS and key != "text" for key in raw)


def inside(fields: Fields, key: str) -> Fields | None:
    """The object under `key`, to be read on its own; None where absent or null. What is left goes back: `leave`."""
    body = fields.optional(key, dict)
    return None if body is None else Fields(body, f"{fields.path}.{key}")


def _opaque(raw: dict[str, Any]) -> OpaquePart:
    kind = next((key for key in raw if key not in _ABOUT), "part")
    return trusted(OpaquePart, provider=FORMAT, type=kind, value=freeze(raw))


def _text(fields: Fields) -> Part | None:
    if "text" in fields and not isinstance(fields.peek("text"), str):
        return None
    text = fields.take("text", str) or ""
    if fields.peek("thought") is True:
        signature = fields.take("thoughtSignature", str)
        if signature is None:
            fields.drop("thought", True)  # a signed one keeps it, to tell its signature from another provider's
        return trusted(ThinkingPart, text=text, signature=signature, extra=fields.rest(FORMAT))
    fields.drop("thought", False)
    fields.drop("thought", None)
    return trusted(TextPart, text=text, extra=fields.rest(FORMAT))


def _function_call(fields: Fields) -> Part | None:
    call = inside(fields, "functionCall")
    if call is None:
        return None
    return _call(fields, "functionCall", call, "name", "client")


def _call(fields: Fields, key: str, call: Fields, name_key: str, runner: str) -> ToolCallPart:
    name, arguments = call.need(name_key, str), call.optional("args", dict) or EMPTY
    call_id = call.optional("id", str)
    fields.leave(key, call)
    return trusted(
        ToolCallPart,
        name=name,
        arguments=arguments,
        tool_call_id=call_id,
        executed_by=runner,
        extra=fields.rest(FORMAT),
    )


def _function_response(fields: Fields) -> Part | None:
    result = inside(fields, "functionResponse")
    if result is None:
        return None
    name = result.need("name", str)
    response = result.optional("response", dict) or EMPTY
    parts = result.optional("parts", list)
    tool_call_id = result.optional("id", str)
    content: Any = response
    if parts:
        # The text is the response as JSON; the values in it are shown unescaped with it.
        text_part = trusted(
            TextPart,
            text=dumps(response).decode(),
            extra=frozen_mapping({FORMAT: frozen_mapping({"response": response})}),
        )
        path = f"{fields.path}.functionResponse.parts"
        content = (text_part, *(decode_part(part, f"{path}[{index}]") for index, part in enumerate(parts)))
    fields.leave("functionResponse", result)
    return trusted(
        ToolResultPart,
        tool_call_id=tool_call_id,
        tool_name=name,
        content=content,
        is_error=response.keys() == {"error"},
        extra=fields.rest(FORMAT),
    )


def _inline_data(fields: Fields) -> Part | None:
    blob = inside(fields, "inlineData")
    if blob is None or not isinstance(blob.peek("data"), str):
        return None
    return _media(fields, "inlineData", blob, "base64", blob.need("data", str))


def _file_data(fields: Fields) -> Part | None:
    file = inside(fields, "fileData")
    if file is None or not isinstance(file.peek("fileUri"), str):
        return None
    uri = file.need("fileUri", str)
    return _media(fields, "fileData", file, "file_ref" if is_held(uri) else "url", uri)


def _media(fields: Fields, key: str, body: Fields, source: str, data: str) -> MediaPart:
    media_type = body.optional("mimeType", str)
    kind = media_class(media_type or "")
    title: dict[str, Any] = {"title": body.optional("displayName", str)} if kind is DocumentPart else {}
    fields.leave(key, body)
    return trusted(kind, type=source, data=data, media_type=media_type, extra=fields.rest(FORMAT), **title)


def _executable_code(fields: Fields) -> Part | None:
    code = inside(fields, CODE)
    if code is None:
        return None
    id_ = code.take("id", str)
    body = freeze(code.left())
    return trusted(
        ToolCallPart, name=CODE, arguments=body, tool_call_id=id_, executed_by="provider", extra=fields.rest(FORMAT)
    )


def _code_execution_result(fields: Fields) -> Part | None:
    result = inside(fields, CODE_RESULT)
    if result is None:
        return None
    outcome = result.peek("outcome")
    id_ = result.take("id", str)
    return trusted(
        ToolResultPart,
        tool_call_id=id_,
        tool_name=CODE,
        content=freeze(result.left()),
        is_error=isinstance(outcome, str) and outcome != "OUTCOME_OK",
        executed_by="provider",
        extra=fields.rest(FORMAT),
    )


def is_server_tool(name: Any) -> bool:
    """Whether `name` is in the spelling of Google's own tools (`GOOGLE_SEARCH_WEB`)."""
    return isinstance(name, str) and name.isupper()


def _tool_call(fields: Fields) -> Part | None:
    call = inside(fields, "toolCall")
    if call is None or not is_server_tool(call.peek("toolType")):
        return None
    return _call(fields, "toolCall", call, "toolType", "provider")


def _tool_response(fields: Fields) -> Part | None:
    result = inside(fields, "toolResponse")
    if result is None or not is_server_tool(result.peek("toolType")):
        return None
    part = {
        "tool_name": result.need("toolType", str),
        "content": result.optional("response", dict) or EMPTY,
        "tool_call_id": result.optional("id", str),
    }
    fields.leave("toolResponse", result)
    return trusted(ToolResultPart, **part, executed_by="provider", extra=fields.rest(FORMAT))


_READERS: Final[dict[str, Callable[[Fields], Part | None]]] = {
    "text": _text,
    "functionCall": _function_call,
    "functionResponse": _function_response,
    "inlineData": _inline_data,
    "fileData": _file_data,
    CODE: _executable_code,
    CODE_RESULT: _code_execution_result,
    "toolCall": _tool_call,
    "toolResponse": _tool_response,
}
