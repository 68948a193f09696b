"""What each dialect says for each kind of content: requests that hold it, and answers that hold it."""

from __future__ import annotations

import base64
from typing import Any, Final, Literal

Way = Literal["request", "reply"]
Row = tuple[str, Way]

DIALECTS: Final = ("openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama")
ROWS: Final[tuple[Row, ...]] = (
    ("text", "request"),
    ("thinking", "request"),
    ("tool_call", "request"),
    ("tool_result", "request"),
    ("media", "request"),
    ("opaque", "request"),
    ("tool_definition", "request"),
    ("text", "reply"),
    ("thinking", "reply"),
    ("tool_call", "reply"),
    ("media", "reply"),
    ("opaque", "reply"),
)
# What a dialect has no words for. A test looks whether it has them after all.
CANNOT: Final[dict[tuple[str, str, Way], str]] = {
    ("openai_chat", "media", "reply"): "an answer's only media is audio, with a transcript that is text",
    ("anthropic_messages", "media", "reply"): "an answer of this dialect holds no media",
    ("ollama", "opaque", "request"): "a message is text, thinking, images and calls: no blocks with types",
    ("ollama", "opaque", "reply"): "a message is text, thinking, images and calls: no blocks with types",
}
SCHEMA: Final = {"type": "object", "properties": {"note": {"type": "string"}}}


def picture(size: int) -> str:
    """The base64 of so many bytes that begin as a PNG does."""
    return base64.b64encode(b"\x89PNG\r\n\x1a\n".ljust(size, b"0")).decode()


def request(dialect: str, kind: str, marker: str, *, model: str, stream: bool) -> tuple[str, dict[str, Any]]:
    """Path and body of a request with `marker` in content of that kind (of media: its base64), and nowhere else."""
    body: dict[str, Any] = _REQUESTS[dialect](kind, marker)
    gemini = f"/v1beta/models/{model}:{'streamGenerateContent?alt=sse' if stream else 'generateContent'}"
    paths = {
        "openai_chat": "/v1/chat/completions",
        "openai_responses": "/v1/responses",
        "anthropic_messages": "/v1/messages",
        "gemini": gemini,
        "ollama": "/api/chat",
    }
    return paths[dialect], body if dialect == "gemini" else {"model": model, "stream": stream, **body}


def reply(dialect: str, kind: str, marker: str) -> dict[str, Any]:
    """A whole answer that holds it."""
    body: dict[str, Any] = _REPLIES[dialect](kind, marker)
    return body


def _chat_tool(kind: str, marker: str) -> dict[str, Any]:
    described = marker if kind == "tool_definition" else "Looks up."
    return {"type": "function", "function": {"name": "lookup", "description": described, "parameters": SCHEMA}}


def _note(kind: str, marker: str) -> dict[str, str]:
    return {"note": marker if kind == "tool_call" else "n"}


def _result(kind: str, marker: str) -> str:
    return marker if kind == "tool_result" else "fine"


def _chat(kind: str, marker: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": _json(_note(kind, marker))}}
    messages: list[dict[str, Any]] = {
        "text": [_user(marker)],
        "thinking": [_user("hi"), {"role": "assistant", "reasoning_content": marker, "content": "ok"}, _user("on")],
        "media": [_user([{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{marker}"}}])],
        "opaque": [_user([{"type": "text", "text": "hi"}, {"type": "zebra", "zebra": marker}])],
        "tool_definition": [_user("hi")],
    }.get(kind) or [
        _user("hi"),
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": _result(kind, marker)},
    ]
    return {"messages": messages, "tools": [_chat_tool(kind, marker)]}


def _responses(kind: str, marker: str) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "c1", "name": "lookup", "arguments": _json(_note(kind, marker))}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": marker}]}
    image = {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{marker}"}
    items: list[dict[str, Any]] = {
        "text": [_user(marker)],
        "thinking": [_user("hi"), thought, {"role": "assistant", "content": "ok"}, _user("on")],
        "media": [_user([image])],
        "opaque": [_user("hi"), {"type": "zebra", "zebra": marker}],
        "tool_definition": [_user("hi")],
    }.get(kind) or [
        _user("hi"),
        call,
        {"type": "function_call_output", "call_id": "c1", "output": _result(kind, marker)},
    ]
    tool = _chat_tool(kind, marker)["function"]
    return {"input": items, "tools": [{"type": "function", "strict": False, **tool}]}


def _messages(kind: str, marker: str) -> dict[str, Any]:
    call = {"type": "tool_use", "id": "c1", "name": "lookup", "input": _note(kind, marker)}
    thought = {"type": "thinking", "thinking": marker, "signature": "c2ln"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": marker}}
    messages: list[dict[str, Any]] = {
        "text": [_user(marker)],
        "thinking": [
            _user("hi"),
            {"role": "assistant", "content": [thought, {"type": "text", "text": "ok"}]},
            _user("on"),
        ],
        "media": [_user([image])],
        "opaque": [_user([{"type": "text", "text": "hi"}, {"type": "zebra", "zebra": marker}])],
        "tool_definition": [_user("hi")],
    }.get(kind) or [
        _user("hi"),
        {"role": "assistant", "content": [call]},
        _user([{"type": "tool_result", "tool_use_id": "c1", "content": _result(kind, marker)}]),
    ]
    described = _chat_tool(kind, marker)["function"]["description"]
    tools = [{"name": "lookup", "description": described, "input_schema": SCHEMA}]
    return {"max_tokens": 64, "messages": messages, "tools": tools}


def _gemini(kind: str, marker: str) -> dict[str, Any]:
    def turn(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"role": role, "parts": list(parts)}

    hi = turn("user", {"text": "hi"})
    contents: list[dict[str, Any]] = {
        "text": [turn("user", {"text": marker})],
        "thinking": [hi, turn("model", {"text": marker, "thought": True}, {"text": "ok"}), hi],
        "media": [turn("user", {"inlineData": {"mimeType": "image/png", "data": marker}})],
        "opaque": [turn("user", {"text": "hi"}, {"zebra": {"zebra": marker}})],
        "tool_definition": [hi],
    }.get(kind) or [
        hi,
        turn("model", {"functionCall": {"name": "lookup", "args": _note(kind, marker)}}),
        turn("user", {"functionResponse": {"name": "lookup", "response": {"output": _result(kind, marker)}}}),
    ]
    return {"contents": contents, "tools": [{"functionDeclarations": [_chat_tool(kind, marker)["function"]]}]}


def _ollama(kind: str, marker: str) -> dict[str, Any]:
    call = {"function": {"name": "lookup", "arguments": _note(kind, marker)}}
    messages: list[dict[str, Any]] = {
        "text": [_user(marker)],
        "thinking": [_user("hi"), {"role": "assistant", "thinking": marker, "content": "ok"}, _user("on")],
        "media": [{"role": "user", "content": "hi", "images": [marker]}],
        "tool_definition": [_user("hi")],
    }.get(kind) or [
        _user("hi"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "lookup", "content": _result(kind, marker)},
    ]
    return {"messages": messages, "tools": [_chat_tool(kind, marker)]}


def _user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _json(arguments: dict[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": "{value}"' for name, value in arguments.items()) + "}"


# -- answers -----------------------------------------------------------------------------------------------------------


def _chat_reply(kind: str, marker: str) -> dict[str, Any]:
    call = {"id": "c1", "type": "function", "function": {"name": "lookup", "arguments": _json(_note(kind, marker))}}
    message: dict[str, Any] = {
        "text": {"content": marker},
        "thinking": {"reasoning_content": marker, "content": "ok"},
        "tool_call": {"content": None, "tool_calls": [call]},
        "opaque": {"content": [{"type": "text", "text": "ok"}, {"type": "zebra", "zebra": marker}]},
    }[kind]
    choice = {"index": 0, "finish_reason": "tool_calls" if kind == "tool_call" else "stop"}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{**choice, "message": {"role": "assistant", **message}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def _responses_reply(kind: str, marker: str) -> dict[str, Any]:
    text = marker if kind == "text" else "ok"
    said = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "status": "completed", "name": "lookup"}
    image = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": marker}
    output: list[dict[str, Any]] = {
        "text": [said],
        "thinking": [{"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": marker}]}, said],
        "tool_call": [{**call, "arguments": _json(_note(kind, marker))}],
        "media": [image, said],
        "opaque": [{"type": "zebra", "id": "zb_1", "zebra": marker}, said],
    }[kind]
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m"} | {
        "output": output,
        "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
    }


def _messages_reply(kind: str, marker: str) -> dict[str, Any]:
    text = {"type": "text", "text": marker if kind == "text" else "ok"}
    content: list[dict[str, Any]] = {
        "text": [text],
        "thinking": [{"type": "thinking", "thinking": marker, "signature": "c2ln"}, text],
        "tool_call": [{"type": "tool_use", "id": "c1", "name": "lookup", "input": _note(kind, marker)}],
        "opaque": [{"type": "zebra", "zebra": marker}, text],
    }[kind]
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": "tool_use" if kind == "tool_call" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _gemini_reply(kind: str, marker: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = {
        "text": [{"text": marker}],
        "thinking": [{"text": marker, "thought": True}, {"text": "ok"}],
        "tool_call": [{"functionCall": {"name": "lookup", "args": _note(kind, marker)}}],
        "media": [{"text": "ok"}, {"inlineData": {"mimeType": "image/png", "data": marker}}],
        "opaque": [{"text": "ok"}, {"zebra": {"zebra": marker}}],
    }[kind]
    return {
        "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": parts}}],
        "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
        "modelVersion": "m",
    }


def _ollama_reply(kind: str, marker: str) -> dict[str, Any]:
    call = {"function": {"name": "lookup", "arguments": _note(kind, marker)}}
    message: dict[str, Any] = {
        "text": {"content": marker},
        "thinking": {"thinking": marker, "content": "ok"},
        "tool_call": {"content": "", "tool_calls": [call]},
        "media": {"content": "ok", "images": [marker]},
    }[kind]
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        "done": True,
        "done_reason": "stop",
        "prompt_eval_count": 1,
        "eval_count": 1,
    }


_REQUESTS: Final = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic_messages": _messages,
    "gemini": _gemini,
    "ollama": _ollama,
}
_REPLIES: Final = {
    "openai_chat": _chat_reply,
    "openai_responses": _responses_reply,
    "anthropic_messages": _messages_reply,
    "gemini": _gemini_reply,
    "ollama": _ollama_reply,
}
