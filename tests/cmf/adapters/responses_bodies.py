"""Bodies of the Responses format as OpenAI's reference describes them, for what the recordings do not have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from cmf.adapters import get
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import StreamEvent
from cmf.enums import Role
from cmf.json.frozen import same_spelling
from cmf.message.message import Message, Part
from cmf.message.request import Choice, Request, Response
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings
from tests.cmf.adapters.streams import unmarked

FORMAT = "openai_responses"
ADAPTER = get("openai_responses")

# fmt: off  (an item a line reads better)
ITEMS: dict[str, dict[str, Any]] = {
    "easy": {"role": "user", "content": "hello"},
    "easy list": {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    "typed": {"type": "message", "role": "developer", "content": "be brief"},
    "typed list": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]},
    "two texts": {
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
    },
    "null type": {"type": None, "role": "user", "content": "hello"},
    "no content": {"type": "message", "role": "user", "content": []},
    "null content": {"role": "assistant", "content": None},
    "empty text": {"role": "user", "content": ""},
    "phase": {"role": "assistant", "content": "thinking aloud", "phase": "commentary"},
    "replayed": {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "phase": "final_answer",
        "content": [
            {
                "type": "output_text",
                "text": "see there",
                "logprobs": [],
                "annotations": [
                    {"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0, "end_index": 3}
                ],
            },
            {"type": "refusal", "refusal": "not that"},
        ],
    },
    "cache mark": {
        "role": "user",
        "content": [{"type": "input_text", "text": "x", "prompt_cache_breakpoint": {"ttl": "1h"}}],
    },
    "image url": {"role": "user", "content": [{"type": "input_image", "image_url": "https://a.example/x.png"}]},
    "image data": {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}],
    },
    "image data with a parameter": {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;q=1;base64,iVBORw0KGgo="}],
    },
    "image data in no base64": {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/svg+xml,<svg/>"}],
    },
    "image file": {"role": "user", "content": [{"type": "input_image", "file_id": "file-1", "image_url": None}]},
    "file url": {"role": "user", "content": [{"type": "input_file", "file_url": "https://a.example/x.pdf"}]},
    "file data": {
        "role": "user",
        "content": [{"type": "input_file", "filename": "x.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}],
    },
    "bare file data": {"role": "user", "content": [{"type": "input_file", "file_data": "JVBERi0="}]},
    "file id": {"role": "user", "content": [{"type": "input_file", "file_id": "file-1"}]},
    "file of nothing": {"role": "user", "content": [{"type": "input_file"}]},
    "audio": {
        "role": "user",
        "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}],
    },
    "audio that does not fit": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": 1}}]},
    "unknown part": {"role": "user", "content": [{"type": "input_hologram", "data": "x"}, {"type": "input_text"}]},
    "forged mark": {"role": "user", "content": [{"type": "input_text", "text": "x", "item": {"id": "y"}}]},
    "call": {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "add",
        "arguments": '{"a": 1,\n "b": 2.0}',
        "status": "completed",
    },
    "call in a namespace": {
        "type": "function_call",
        "call_id": "call_2",
        "name": "add",
        "namespace": "sums",
        "arguments": "{}",
        "caller": {"type": "direct"},
    },
    "broken call": {"type": "function_call", "call_id": "call_3", "name": "add", "arguments": '{"a":'},
    "empty call": {"type": "function_call", "call_id": "call_4", "name": "add", "arguments": ""},
    "call without arguments": {"type": "function_call", "call_id": "call_5", "name": "add"},
    "call without an id": {"type": "function_call", "name": "add", "arguments": "{}"},
    "call with an object": {"type": "function_call", "call_id": "call_6", "name": "add", "arguments": {"a": 1}},
    "result": {"type": "function_call_output", "call_id": "call_1", "output": "3", "status": "completed"},
    "result in parts": {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": [
            {"type": "input_text", "text": "here"},
            {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"},
            {"type": "input_file", "file_id": "file-9"},
            {"type": "input_smell", "strength": "strong"},
        ],
    },
    "result of nothing": {"type": "function_call_output", "call_id": "call_1", "output": None},
    "result of an empty list": {"type": "function_call_output", "call_id": "call_1", "output": []},
    "result as an object": {"type": "function_call_output", "call_id": "call_1", "output": {"sum": 3}},
    "result as a list of texts": {"type": "function_call_output", "call_id": "call_1", "output": ["3"]},
    "custom call": {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_7", "name": "sql", "input": "select 1"},
    "custom result": {"type": "custom_tool_call_output", "call_id": "call_7", "output": "1"},
    "reasoning": {
        "type": "reasoning",
        "id": "rs_1",
        "status": "completed",
        "encrypted_content": "gAAAAAB",
        "summary": [{"type": "summary_text", "text": "first"}, {"type": "summary_text", "text": "second"}],
    },
    "open reasoning": {
        "type": "reasoning",
        "id": "rs_2",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "aloud"}],
    },
    "both kinds of reasoning": {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "short", "extra": "kept"}],
        "content": [{"type": "reasoning_text", "text": "long"}],
        "encrypted_content": None,
    },
    "sealed reasoning": {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gAAAAAB"},
    "empty reasoning": {"type": "reasoning", "id": "rs_4", "summary": []},
    "reasoning of another shape": {"type": "reasoning", "summary": [{"type": "haiku", "text": "leaves fall"}]},
    "web search": {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "weather", "sources": [{"type": "url", "url": "https://a.example"}]},
    },
    "web search without an action": {"type": "web_search_call", "id": "ws_2", "status": "failed", "action": None},
    "file search": {
        "type": "file_search_call",
        "id": "fs_1",
        "status": "completed",
        "queries": ["who"],
        "results": [{"file_id": "file-1", "filename": "a.txt", "score": 0.9, "text": "me", "attributes": {}}],
    },
    "code": {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "status": "completed",
        "code": "1+1",
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    "code without outputs": {
        "type": "code_interpreter_call",
        "id": "ci_2",
        "status": "completed",
        "code": None,
        "container_id": "cntr_1",
        "outputs": [],
    },
    "picture": {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "iVBORw0KGgo=",
        "output_format": "png",
        "revised_prompt": "a cat",
        "size": "auto",
    },
    "picture by reference": {"type": "image_generation_call", "id": "ig_2"},
    "shell": {
        "type": "shell_call",
        "id": "sh_1",
        "call_id": "call_8",
        "status": "completed",
        "action": {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": None},
    },
    "shell output": {
        "type": "shell_call_output",
        "call_id": "call_8",
        "max_output_length": 100,
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "local shell": {
        "type": "local_shell_call",
        "id": "ls_1",
        "call_id": "call_9",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "local shell output": {"type": "local_shell_call_output", "id": "call_9", "output": "{}"},
    "patch": {
        "type": "apply_patch_call",
        "id": "apc_1",
        "call_id": "call_10",
        "status": "completed",
        "operation": {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"},
    },
    "patch output": {"type": "apply_patch_call_output", "call_id": "call_10", "status": "failed", "output": "no file"},
    "computer": {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_11",
        "status": "completed",
        "action": {"type": "click", "x": 1, "y": 2, "button": "left"},
        "pending_safety_checks": [],
    },
    "computer in steps": {
        "type": "computer_call",
        "id": "cu_2",
        "call_id": "call_12",
        "actions": [{"type": "screenshot"}],
    },
    "program": {"type": "program", "id": "pr_1", "call_id": "call_13", "code": "print(1)", "fingerprint": "f"},
    "program output": {
        "type": "program_output",
        "id": "po_1",
        "call_id": "call_13",
        "result": "1",
        "status": "completed",
    },
    "computer output": {
        "type": "computer_call_output",
        "call_id": "call_11",
        "output": {"type": "computer_screenshot", "image_url": "https://a.example/x.png"},
    },
    "mcp call": {
        "type": "mcp_call",
        "id": "mcp_1",
        "server_label": "docs",
        "name": "ask",
        "arguments": '{"q":"x"}',
        "output": "because",
        "error": None,
        "approval_request_id": None,
        "status": "completed",
    },
    "failed mcp call": {
        "type": "mcp_call",
        "id": "mcp_2",
        "server_label": "docs",
        "name": "ask",
        "arguments": "{}",
        "output": None,
        "error": {"type": "http_error", "code": 500, "message": "broken"},
    },
    "mcp tools": {
        "type": "mcp_list_tools",
        "id": "mcpl_1",
        "server_label": "docs",
        "error": None,
        "tools": [{"name": "ask", "description": "ask", "input_schema": {"type": "object"}, "annotations": None}],
    },
    "mcp approval": {
        "type": "mcp_approval_request",
        "id": "mcpr_1",
        "server_label": "docs",
        "name": "ask",
        "arguments": "{}",
    },
    "mcp approved": {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "reason": "ok"},
    "tool search": {
        "type": "tool_search_call",
        "id": "tsc_1",
        "call_id": None,
        "execution": "server",
        "status": "completed",
        "arguments": {"paths": ["a"]},
    },
    "tools found": {
        "type": "tool_search_output",
        "call_id": None,
        "execution": "server",
        "status": "completed",
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}}],
    },
    "more tools": {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "g"}]},
    "compaction": {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB"},
    "reference": {"type": "item_reference", "id": "msg_9"},
    "bare reference": {"id": "msg_9"},
    "something new": {"type": "hologram_call", "id": "h_1", "beam": {"colour": "red"}},
}
# fmt: on

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "add", "description": None, "parameters": {"type": "object"}, "strict": True},
    {"type": "function", "name": "bare"},
    {"type": "function", "function": {"name": "nested", "description": "as chat completions spell it"}},
    {"name": "typeless", "parameters": None},
    {"type": "custom", "name": "sql", "description": "runs", "format": {"type": "grammar", "definition": "x"}},
    {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}},
    {"type": "mcp", "server_label": "docs", "server_url": "https://a.example", "require_approval": "never"},
    {"type": "shell", "environment": {"type": "container_auto"}},
    {"type": "apply_patch"},
    {
        "type": "namespace",
        "name": "crm",
        "description": "customers",
        "tools": [{"type": "function", "name": "find", "description": "one"}, {"type": "custom", "name": "note"}],
    },
    {"type": "namespace", "name": "none", "description": "empty", "tools": []},
    {"type": "namespace", "name": "odd", "tools": [{"type": "web_search"}]},
    {"type": "unheard_of"},
]


def request_body(*items: Any, **fields: Any) -> dict[str, Any]:
    return {"model": "gpt-5", "input": list(items), **fields}


def answer_body(*items: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "error": None,
        "model": "gpt-5",
        "output": list(items),
        **fields,
    }


def said(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content, **fields}


def parts_of(*items: Any) -> list[Part]:
    return [part for one in ADAPTER.from_wire_request(request_body(*items)).messages for part in one.content]


def assert_lossless_request(body: Any) -> Request:
    request = ADAPTER.from_wire_request(body)
    assert same_spelling(ADAPTER.to_wire(request), body)
    assert unseen_strings(body, request, adapter_constants(FORMAT)) == []
    return request


def assert_lossless_answer(body: Any) -> Response:
    response = ADAPTER.from_wire_response(body)
    assert same_spelling(ADAPTER.to_wire_response(response), body)
    assert unseen_strings(body, response, adapter_constants(FORMAT)) == []
    folded = ADAPTER.fold_events(ADAPTER.to_wire_events(response))
    assert same_spelling(unmarked(folded), body)
    return response


def message(role: Role, *parts: Part, **fields: Any) -> Message:
    return Message(role=role, content=parts, **fields)


def written(*messages: Message) -> list[Any]:
    items: list[Any] = ADAPTER.to_wire(Request(messages=messages)).get("input", [])
    return items


def foreign_answer(*parts: Part, **fields: Any) -> Response:
    return Response(choices=(Choice(message=message(Role.ASSISTANT, *parts), **fields),))


def events(*data: dict[str, Any]) -> list[WireEvent]:
    return [{"event": one["type"], "data": {**one, "sequence_number": at}} for at, one in enumerate(data)]


def streamed(*pieces: str, final: str | None = None, item_id: str = "msg_1", **fields: Any) -> list[WireEvent]:
    """A stream of one text; `final` is the text of the terminal response, None for a stream without one."""
    opening = answer_body(status="in_progress")
    place = {"item_id": item_id, "output_index": 0, "content_index": 0}
    data: list[dict[str, Any]] = [
        {"type": "response.created", "response": opening},
        {"type": "response.output_item.added", "output_index": 0, "item": said("", content=[], status="in_progress")},
        *({"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces),
    ]
    if final is not None:
        data.append({"type": "response.completed", "response": answer_body(said(final), **fields)})
    return events(*data)


def heard(stream: Sequence[WireEvent]) -> list[StreamEvent]:
    async def arriving() -> AsyncIterator[WireEvent]:
        for event in stream:
            yield event

    async def collect() -> list[StreamEvent]:
        return [event async for event in ADAPTER.stream_response(arriving())]

    return asyncio.run(collect())
