"""Canonical parts as Gemini's parts. Spec: docs/spec/adapters/gemini.md [GEM-4] to [GEM-10]."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from cmf.adapters.gemini.parts_in import CODE, CODE_RESULT, EMPTY, FORMAT, is_server_tool
from cmf.adapters.wire import loss
from cmf.adapters.wire.fields import extra_of, merge
from cmf.adapters.wire.google_files import is_held
from cmf.enums import Role
from cmf.errors import UnsupportedError
from cmf.json.codec import loads_object
from cmf.json.value import present
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
from cmf.views.render import result_text

Names = Mapping[str, str]
"""Tool names by call id, for results that do not say which tool they are of."""


def encode_group(messages: Sequence[Message], names: Names | None = None) -> dict[str, Any]:
    """One content of Gemini's from the messages that belong in it, in normal form."""
    from_model = any(message.role is Role.ASSISTANT for message in messages)
    content: dict[str, Any] = {"role": "model" if from_model else "user"}
    parts = content["parts"] = []
    for message in messages:
        parts += _Turn(message, names or {}).each(message.content)
        if message.extra:
            own = extra_of(message, FORMAT)
            if isinstance(own.get("role"), str):
                content["role"] = own["role"]
            merge(content, own)
            loss.drop_foreign_extra(FORMAT, message, "message", message=message)
    return content


class _Turn:
    """Writes the parts of one message."""

    __slots__ = ("_message", "_names")

    def __init__(self, message: Message, names: Names) -> None:
        self._message = message
        self._names = names

    def each(self, parts: Iterable[Part]) -> list[dict[str, Any]]:
        """Parts in normal form; without those that were dropped, with a record."""
        encoded = (self._part(part) for part in parts)
        return [part for part in encoded if part is not None]

    def _drop(self, block_type: str, reason: str) -> None:
        loss.drop(FORMAT, block_type, reason, message=self._message)

    def _part(self, part: Part) -> dict[str, Any] | None:
        """One part in normal form; None where it was dropped, with a record."""
        write = _WRITERS.get(type(part))
        encoded = None if write is None else write(self, part)
        if encoded is None:
            if write is None:
                self._drop(part.content_type.value, "the format has no such part")
            return None
        if part.extra:
            loss.drop_foreign_extra(FORMAT, part, part.content_type.value, message=self._message)
            merge(encoded, extra_of(part, FORMAT))
        return encoded

    def _text(self, part: TextPart) -> dict[str, Any]:
        return {"text": part.text}

    def _thinking(self, part: ThinkingPart) -> dict[str, Any]:
        encoded = {"text": part.text, "thought": True}
        if part.signature is not None:
            if "thought" in extra_of(part, FORMAT):
                encoded["thoughtSignature"] = part.signature
            else:
                self._drop("thinking_signature", "it is another provider's")
        return encoded

    def _opaque(self, part: OpaquePart) -> dict[str, Any] | None:
        if part.provider == FORMAT:
            return dict(part.value)
        self._drop("opaque", "it is another format's block")
        return None

    def _tool_call(self, part: ToolCallPart) -> dict[str, Any] | None:
        arguments = _arguments(part)
        id_ = present(id=part.tool_call_id)
        if part.executed_by == "client":
            return {"functionCall": {"name": part.name, "args": arguments, **id_}}
        if part.name == CODE:
            return {CODE: {**arguments, **id_}}
        if is_server_tool(part.name):
            return {"toolCall": {"toolType": part.name, "args": arguments, **id_}}
        self._drop("tool_call", "another provider ran it")
        return None

    def _tool_result(self, part: ToolResultPart) -> dict[str, Any] | None:
        id_, name = present(id=part.tool_call_id), part.tool_name
        if part.executed_by == "provider":
            return self._provider_result(part, name, id_)
        if name is None:
            name = self._names.get(part.tool_call_id or "")
        if name is None:
            raise UnsupportedError(
                "a tool result without the tool's name", about=part, hint="send the call that it answers as well"
            )
        result: dict[str, Any] = {"name": name, **id_}
        if isinstance(part.content, tuple):
            result["response"], media = self._result_content(part.content, is_error=part.is_error)
            if media:
                result["parts"] = media
        else:
            result["response"] = _response(part.content, is_error=part.is_error)
        return {"functionResponse": result}

    def _provider_result(self, part: ToolResultPart, name: str | None, id_: dict[str, str]) -> dict[str, Any] | None:
        if name == CODE:
            plain = part.content if isinstance(part.content, dict) else None
            outcome = "OUTCOME_FAILED" if part.is_error else "OUTCOME_OK"
            body = plain if plain is not None else {"outcome": outcome, **_response(part.content, is_error=False)}
            return {CODE_RESULT: {**body, **id_}}
        if is_server_tool(name):
            return {
                "toolResponse": {"toolType": name, "response": _response(part.content, is_error=part.is_error), **id_}
            }
        self._drop("tool_result", "another provider ran it")
        return None

    def _result_content(self, inner: Sequence[Part], *, is_error: bool) -> tuple[dict[str, Any], list[Any]]:
        """The response object and the parts beside it, of a result that is made of parts."""
        first = inner[0] if inner else None
        if isinstance(first, TextPart) and "response" in extra_of(first, FORMAT):
            response = loads_object(first.text)
            if response is not None:
                return response, self.each(inner[1:])
        shown = [loss.resource_as_text(FORMAT, part, message=self._message) for part in inner]
        texts = [part.text for part in shown if isinstance(part, TextPart)]
        media = self.each([part for part in shown if not isinstance(part, TextPart)])
        return (_response("\n".join(texts), is_error=is_error) if texts else {}), media

    def _media(self, part: MediaPart) -> dict[str, Any]:
        named = present(displayName=part.title if isinstance(part, DocumentPart) else None)
        if part.type == "base64":
            typed = present(mimeType=binary.type_of(part.data, part.media_type))
            return {"inlineData": {**typed, "data": part.data, **named}}
        if (inline := binary.data_url(part.data)) is not None:
            return {"inlineData": {"mimeType": inline[0], "data": inline[1], **named}}
        if part.type == "file_ref" and not is_held(part.data) and "://" not in part.data:
            raise UnsupportedError(
                "a file that another provider holds", about=part, hint="send its bytes or an address"
            )
        return {"fileData": {**present(mimeType=part.media_type), "fileUri": part.data, **named}}

    def _resource(self, part: ResourcePart) -> dict[str, Any] | None:
        shown = loss.resource_as_text(FORMAT, part, message=self._message)
        if isinstance(shown, TextPart):
            return {"text": shown.text}
        self._drop("resource", "the format has no such part")
        return None

    def _dropped(self, part: Any) -> None:
        self._drop(part.content_type.value, "it is another provider's secret")


def _arguments(part: ToolCallPart) -> Mapping[str, Any]:
    if part.arguments is not None:
        return part.arguments
    if part.arguments_raw is None or not part.arguments_raw.strip():
        return EMPTY
    hint = "Gemini takes an object: repair the call"
    raise UnsupportedError("arguments that are no JSON object", about=part, hint=hint)


def _response(content: Any, *, is_error: bool) -> dict[str, Any]:
    """The object that Gemini wants for a result: the result itself, or under the name that Gemini gives it."""
    if isinstance(content, dict):
        return content
    if isinstance(content, tuple):
        content = result_text(content)
    return {"error" if is_error else "output": content}


_WRITERS: Final[dict[type, Callable[[Any, Any], dict[str, Any] | None]]] = {
    TextPart: _Turn._text,
    ThinkingPart: _Turn._thinking,
    RedactedThinkingPart: _Turn._dropped,
    OpaquePart: _Turn._opaque,
    ToolCallPart: _Turn._tool_call,
    ToolResultPart: _Turn._tool_result,
    ResourcePart: _Turn._resource,
    ImagePart: _Turn._media,
    AudioPart: _Turn._media,
    VideoPart: _Turn._media,
    DocumentPart: _Turn._media,
}
