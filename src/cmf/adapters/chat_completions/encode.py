"""Canonical values as chat-completions bodies, plainly spelled. Spec: docs/spec/adapters/openai_chat.md [OAC-10] ff.

What came from the format itself goes back as it was; what comes from another one is said as far as the format can say
it, dropped with a record, or refused [C8].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cmf.adapters.chat_completions.blocks import wire_blocks
from cmf.adapters.chat_completions.dialect import (
    CHOICE_ERROR,
    FINISH_REASONS,
    JSON,
    THOUGHTS,
    Dialect,
    has_calls,
    stop_reason,
    tool_choice,
    usage_of,
    wire_tool_choice,
    wire_usage,
)
from cmf.adapters.wire import loss
from cmf.adapters.wire.call_ids import CallIds
from cmf.adapters.wire.fields import MARK, extra_of, merge, unmarked
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import DecodeError, UnsupportedError
from cmf.json.codec import dumps, loads
from cmf.json.frozen import thaw
from cmf.message.message import (
    AudioPart,
    MediaPart,
    Message,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition

NO_ID: Final = "chatcmpl-0"  # where a foreign response has no id: a constant, since nothing is minted here
_IN_CONTENT: Final = frozenset({"block", "refusal_block", "thinking", "thinking_text", "string", "url", "document_url"})


_NO_RESULT: Final = ToolResultPart()


# -- messages ----------------------------------------------------------------------------------------------------------


def wire_messages(message: Message, dialect: Dialect, ids: CallIds) -> list[dict[str, Any]]:
    """The wire messages of one message: its tool results, one each, then the rest if there is any."""
    if dialect.is_foreign(message):
        loss.drop(dialect.format, "message", "fields of another format", message=message)
    if message.role is Role.ASSISTANT:
        return [assistant(message, dialect, ids)]
    results = [part for part in message.content if isinstance(part, ToolResultPart)]
    written = [_tool_message(part, message, dialect, ids) for part in results if _is_ours(part, message, dialect)]
    rest = [part for part in message.content if not isinstance(part, ToolResultPart)]
    if rest or not results:
        body: dict[str, Any] = {"role": message.role.value, "content": _content(rest, dialect, message, empty="")}
        if message.role is Role.TOOL:
            body["tool_call_id"] = ids.of(_NO_RESULT)
        written.append(merge(body, extra_of(message, dialect.format)) if not results else body)
    return written


def _is_ours(part: ToolResultPart, message: Message, dialect: Dialect) -> bool:
    """Whether the client ran it: what another provider ran on its machines has no place in this format."""
    if part.executed_by == "provider":
        loss.drop(dialect.format, part.content_type, "run by another provider", message=message)
        return False
    return True


def _tool_message(part: ToolResultPart, message: Message, dialect: Dialect, ids: CallIds) -> dict[str, Any]:
    if part.is_error:
        loss.drop(dialect.format, part.content_type, "the format has no error flag", message=message)
    if dialect.is_foreign(part):
        loss.drop(dialect.format, part.content_type, "fields of another format", message=message)
    content: Any = part.content
    if isinstance(content, tuple):
        content = wire_blocks(content, dialect, message)
    elif content is None:
        content = ""
    elif not isinstance(content, str):
        content = dumps(content).decode()
    body = {"role": "tool", "tool_call_id": ids.of(part), "content": content}
    if dialect.key_of(message) == "function":
        del body["tool_call_id"]
        body |= {"role": "function", "name": part.tool_name or ""}
    return merge(body, extra_of(message, dialect.format))


def _content(parts: Sequence[Part], dialect: Dialect, message: Message, *, empty: str | None) -> Any:
    """A single text as a text, anything else as blocks."""
    if not parts:
        return empty
    first = parts[0]
    if len(parts) == 1 and dialect.key_of(first) == JSON:
        return _parsed(first)
    if len(parts) == 1 and isinstance(first, TextPart) and not first.extra:
        return first.text
    written = wire_blocks(list(parts), dialect, message)
    only = written[0] if len(written) == 1 and isinstance(first, TextPart) else None
    if only is not None and only.keys() == {"type", "text"}:
        return only["text"]
    return written or empty


def assistant(message: Message, dialect: Dialect, ids: CallIds, *, reply: bool = False) -> dict[str, Any]:
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
            body["audio"] = merge(given, extra_of(part, dialect.format))
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
    return merge(body, extra_of(message, dialect.format))


def _reply_content(parts: list[Part], dialect: Dialect, message: Message) -> Any:
    """One text, since that is what clients of a reply expect; a list only where the reply came as one.

    Raises:
        UnsupportedError: media of another format, for which a reply has no place.
    """
    if len(parts) == 1 and dialect.key_of(parts[0]) == JSON:
        return _parsed(parts[0])
    written = wire_blocks(parts, dialect, message)
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
    own = extra_of(part, dialect.format)
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
    if dialect.is_foreign(part):
        loss.drop(dialect.format, part.content_type, "fields of another format", message=message)
    own, key = extra_of(part, dialect.format), dialect.key_of(part)
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


# -- requests ----------------------------------------------------------------------------------------------------------


def wire_request(request: Request, dialect: Dialect) -> dict[str, Any]:
    """Everything of a request but its messages."""
    body: dict[str, Any] = {}
    extra = dict(extra_of(request, dialect.format))
    if dialect.is_foreign(request):
        loss.drop(dialect.format, "request", "fields of another format")
    if request.model is not None:
        body["model"] = request.model
    _sampling(request, body, extra)
    choice = _spelled_choice(request, extra)
    if not choice:
        request = loss.narrowed(dialect.format, request)
    for tool in request.tools:
        key, described = _tool(tool, dialect)
        body.setdefault(key, []).append(described)
    if choice:
        body |= choice
    elif request.tool_choice is not None:
        body["tool_choice"] = wire_tool_choice(request.tool_choice)
    if request.response_schema is not None:
        named = {"name": request.response_schema_name or "response", "schema": thaw(request.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    if request.reasoning_effort is not None:
        if dialect.nested_effort and "reasoning_effort" not in extra:
            body["reasoning"] = {"effort": request.reasoning_effort}
        else:
            body["reasoning_effort"] = request.reasoning_effort
    if request.stream is not None:
        body["stream"] = request.stream
    return merge(body, extra)


def _sampling(request: Request, body: dict[str, Any], extra: dict[str, Any]) -> None:
    sampling = request.sampling
    for name in ("temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty"):
        number = getattr(sampling, name)
        if number is not None:
            body[name] = number
    older = type(extra.get("max_tokens")) is int
    if older:
        del extra["max_tokens"]
    if sampling.max_output_tokens is not None:
        body["max_tokens" if older else "max_completion_tokens"] = sampling.max_output_tokens
    alone = extra.pop("stop") if isinstance(extra.get("stop"), str) else None
    if sampling.stop is not None:
        body["stop"] = alone if sampling.stop == (alone,) else list(sampling.stop)


def _tool(tool: ToolDefinition, dialect: Dialect) -> tuple[str, Any]:
    own = extra_of(tool, dialect.format)
    if dialect.is_foreign(tool):
        loss.drop(dialect.format, "tool_definition", "fields of another format")
    described: dict[str, Any] = {"name": tool.name}
    if dialect.key_of(tool) == "untyped":
        return "tools", own
    if tool.executed_by == "provider":
        if tool.type != tool.name or dialect.is_foreign(tool):
            raise UnsupportedError(
                f"{dialect.format} cannot offer a tool that another provider runs", about=tool, hint="strip the tool"
            )
        return "tools", merge({"type": tool.type}, own)
    loss.refuse_foreign_kind(dialect.format, tool)
    if tool.description is not None:
        described["description"] = tool.description
    if tool.input_schema is not None:
        described["parameters"] = thaw(tool.input_schema)
    if dialect.key_of(tool) == "functions":
        return "functions", merge(described, own)
    kind = "custom" if tool.type == "custom" else "function"
    return "tools", merge({"type": own.get("type", kind), kind: described}, own)


def _spelled_choice(request: Request, extra: dict[str, Any]) -> dict[str, Any]:
    """The choice as it was spelled, if that still means it; taken out of `extra` in any case."""
    spelt = {key: extra.pop(key) for key in ("tool_choice", "function_call") if tool_choice(extra.get(key)) is not None}
    return next(({key: raw} for key, raw in spelt.items() if tool_choice(raw) == request.tool_choice), {})


# -- responses ---------------------------------------------------------------------------------------------------------


def wire_response(response: Response, dialect: Dialect) -> Any:
    """A whole response, or an error body."""
    own = extra_of(response, dialect.format)
    if response.error is not None and f"{MARK}body" in own:
        return thaw(own[f"{MARK}body"])
    extra = unmarked(own)
    if dialect.is_foreign(response):
        loss.drop(dialect.format, "response", "fields of another format")
    body: dict[str, Any] = {}
    form = dialect.key_of(response)
    if response.error is not None and not (form == CHOICE_ERROR and response.choices):
        body |= _error(response.error, form)
    if response.error is None or response.choices:
        body |= {"id": NO_ID, "object": "chat.completion", "created": 0}
        ids = CallIds()
        body["choices"] = [_choice(choice, at, dialect, ids) for at, choice in enumerate(response.choices)]
        if not own:  # another format may leave open why an answer ended; clients of this one want a word
            for wire, choice in zip(body["choices"], response.choices, strict=True):
                _end(wire, choice, dialect)
    for key in ("id", "object", "created"):
        if key in extra:
            body[key] = extra[key]
    if response.model is not None:
        body["model"] = response.model
    if response.usage is not None:
        kept = extra.pop("usage", None)
        body["usage"] = kept if kept is not None and usage_of(kept) == response.usage else wire_usage(response.usage)
    return merge(body, extra)


def _choice(choice: Choice, index: int, dialect: Dialect, ids: CallIds) -> dict[str, Any]:
    body = {
        "index": index,
        "message": assistant(choice.message, dialect, ids, reply=True),
        "finish_reason": _finish_reason(choice, dialect),
    }
    own = extra_of(choice, dialect.format)
    if "index" in own:
        body["index"] = own["index"]
    return merge(body, own)


def _end(wire: dict[str, Any], choice: Choice, dialect: Dialect) -> None:
    """Give the choice of a whole answer that does not say how it ended the word for its end."""
    if wire["finish_reason"] is None and choice.message.status is not MessageStatus.PARTIAL:
        wire["finish_reason"] = "tool_calls" if has_calls(choice.message.content, dialect) else "stop"


def _finish_reason(choice: Choice, dialect: Dialect) -> str | None:
    """The raw reason where it is this format's and still true; else by the table, and by whether there are calls."""
    if choice.stop_reason is None:
        return None
    raw = choice.raw_stop_reason
    parts = choice.message.content
    refused = any(dialect.key_of(part) == "refusal" for part in parts)
    calls = has_calls(parts, dialect)
    own = choice.stop_reason is not StopReason.OTHER or dialect.format in (choice.extra or {})
    if raw is not None and own and stop_reason(raw, refused=refused, calls=calls) is choice.stop_reason:
        return raw
    reason = StopReason.END if choice.stop_reason is StopReason.CALL and not calls else choice.stop_reason
    if reason is StopReason.REFUSAL and not refused:
        reason = StopReason.CONTENT_FILTER  # without a `refusal`, "stop" would say that this is the answer
    return "tool_calls" if calls and reason is StopReason.END else FINISH_REASONS[reason]


def _error(error: ErrorInfo, form: str | None) -> dict[str, Any]:
    fields = {
        name: text
        for name, text in (("message", error.message), ("type", error.type), ("code", error.code))
        if text is not None
    }
    if form == "error_text":
        return {"error": error.message or ""}
    return fields if form == "error_flat" else {"error": fields}
