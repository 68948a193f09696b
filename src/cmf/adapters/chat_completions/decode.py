"""Chat-completions messages as canonical ones. Spec: docs/spec/adapters/openai_chat.md [OAC-1] to [OAC-9].

Decoding is total: what has no canonical field stays in `extra`. A null, an empty list or an empty text under a key that
is known means the same as its absence, so it is layout, not content.
"""

from __future__ import annotations

from typing import Any, Final

from cmf.adapters.chat_completions.blocks import blocks, opaque
from cmf.adapters.chat_completions.dialect import JSON, ROLES, THOUGHTS, Dialect
from cmf.adapters.wire.fields import Fields
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError
from cmf.json.codec import dumps, loads_object
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import replace, trusted
from cmf.message.message import (
    AudioPart,
    Message,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

Names = dict[str, str]  # the tool that a call id of the same request belongs to

_MESSAGE_NULLS: Final = (
    "content", "refusal", "tool_calls", "function_call", "audio", "annotations", "reasoning", "reasoning_content",
    "reasoning_details", "name",
)  # fmt: skip


def decoded_message(raw: Any, path: str, dialect: Dialect, names: Names, *, reply: bool = False) -> Message:
    """One message of a request, or (with `reply`) of a choice. Fills `names` with the calls that it makes."""
    fields = Fields(raw, path)
    fields.drop_nulls(_MESSAGE_NULLS)
    name = fields.take("role", str)
    if reply:
        name = _reply_role(fields, name)
    role = ROLES.get(name) if name is not None else None
    if role is None:
        raise UnknownRoleError("unknown or missing role", path=f"{path}.role", hint=f"use one of {', '.join(ROLES)}")
    if role is Role.TOOL:
        part = _tool_result(fields, dialect, names)
        return trusted(Message, role=role, content=(part,), extra=dialect.rest(fields, _form(name)))
    parts: list[Part] = []
    joined = None
    if role is Role.ASSISTANT:
        joined = _reasoning(fields, dialect, parts)
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


def _form(role: str | None) -> str | None:
    return "function" if role == "function" else None


def _tool_result(fields: Fields, dialect: Dialect, names: Names) -> ToolResultPart:
    call_id = fields.need("tool_call_id", str) if fields.peek("tool_call_id") is not None else None
    name = fields.peek("name")  # stays in `extra` too: the encoder must know that the wire had it
    if not isinstance(name, str):
        name = names.get(call_id) if call_id is not None else None
    content: Any = fields.take("content", str)
    if content is None and fields.peek("content") is not None:
        listed = fields.need("content", list)
        content = tuple(blocks(listed, f"{fields.path}.content", dialect)) or listed
    return trusted(ToolResultPart, tool_call_id=call_id, tool_name=name, content=content)


def _content(fields: Fields, dialect: Dialect, parts: list[Part], *, reply: bool, from_model: bool) -> None:
    """The parts of `content`; with `said`, it may be any JSON: some services parse a model's answer for the client."""
    text = fields.take("content", str)
    if text is not None:
        if text:
            parts.append(trusted(TextPart, text=text))
        return
    if fields.peek("content") is None:
        return
    if from_model and not _is_blocks(fields.peek("content")):
        text = dumps(fields.left().pop("content")).decode()
        parts.append(trusted(TextPart, text=text, extra=frozen_mapping({f"{dialect.format}.key": JSON})))
        return
    listed = blocks(fields.need("content", list), f"{fields.path}.content", dialect)
    if reply:
        # A client expects one text in a reply, so a list is marked as one; in a request both forms mean the same.
        listed = [_as_block(part, dialect) for part in listed]
    parts += listed


def _is_blocks(content: Any) -> bool:
    return isinstance(content, list) and all(isinstance(block, dict) for block in content)


def _as_block(part: Part, dialect: Dialect) -> Part:
    if dialect.key_of(part) is not None:
        return part
    return replace(part, extra=FrozenDict({**(part.extra or {}), f"{dialect.format}.key": "block"}))


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
            extra = frozen_mapping({f"{dialect.format}.key": key})
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
    return opaque(raw, dialect, "reasoning_details")


def _answer(fields: Fields, dialect: Dialect, parts: list[Part], names: Names) -> None:
    """What only an assistant's message has: a refusal, a sound, calls."""
    refusal = fields.take("refusal", str)
    if refusal:
        parts.append(trusted(TextPart, text=refusal, extra=frozen_mapping({f"{dialect.format}.key": "refusal"})))
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
        return opaque(raw, dialect, "tool_calls")
    call_id = fields.take("id", str)
    function = fields.take("function", dict)
    if function is not None:
        inner = Fields(function, f"{path}.function")
        name = inner.take("name", str)
        if name is None or not isinstance(inner.peek("arguments"), str | dict | None):
            return opaque(raw, dialect, "tool_calls")
        arguments, text, key = _arguments(inner)
        fields.leave("function", inner)
        fields.drop("type", "function")
    else:
        custom = fields.take("custom", dict)
        inner = Fields(custom or {}, f"{path}.custom")
        name, text_input = inner.take("name", str), inner.take("input", str)
        if name is None or text_input is None:
            return opaque(raw, dialect, "tool_calls")
        arguments, text, key = frozen_mapping({"input": text_input}), None, "custom"
        fields.leave("custom", inner)
        fields.drop("type", "custom")
    return trusted(
        ToolCallPart,
        tool_call_id=call_id,
        name=name,
        arguments=arguments,
        arguments_raw=text,
        extra=dialect.rest(fields, key),
    )


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
        return opaque(raw, dialect, "function_call")
    arguments, text, _ = _arguments(inner)
    extra = dialect.rest(inner, "function_call")
    return trusted(ToolCallPart, name=name, arguments=arguments, arguments_raw=text, extra=extra)


def listed_in(fields: Fields, key: str) -> list[Any]:
    """The list under `key`, empty where there is none; ShapeError where it is something else."""
    return fields.need(key, list) if key in fields else []
