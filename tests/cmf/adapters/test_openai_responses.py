"""The Responses format: the proofs over recorded traffic, and what its items mean.

Bodies written out here are as OpenAI's reference describes them, for what the recordings do not have.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.base import WireEvent
from cmf.adapters.loss import collecting
from cmf.adapters.openai_responses import OpenAIResponsesAdapter
from cmf.adapters.stream import (
    MessageComplete,
    StreamError,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    ToolUseEnd,
    ToolUseInputDelta,
    ToolUseStart,
)
from cmf.content import (
    AudioPart,
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    ResourceRefPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.decomposition import iter_views
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import LossyProjectionError, ShapeError, UnknownRoleError, UnsupportedError
from cmf.extensions import Extensions, MetaExtension, TokenUsage
from cmf.frozen import FrozenDict, same_spelling
from cmf.message import Message
from cmf.request import Choice, ErrorInfo, Request, Response, Sampling, ToolChoice
from cmf.tools import ToolDefinition
from cmf.value import replace
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.mediation import adapter_constants, unseen_strings
from tests.cmf.adapters.streams import unmarked
from tests.cmf.adapters.wiredata import CANARY, changed, planted, spots

FORMAT = "openai_responses"
ADAPTER = OpenAIResponsesAdapter()


class TestWire(Proof):
    format_name = FORMAT


# -- bodies -----------------------------------------------------------------------------------------------------------

ITEMS: dict[str, dict[str, Any]] = {
    "easy": {"role": "user", "content": "hello"},
    "easy list": {"role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    "typed": {"type": "message", "role": "developer", "content": "be brief"},
    "typed list": {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "be brief"}]},
    "two texts": {
        "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}],
    },
    "null type": {"type": None, "role": "user", "content": "hello"},
    "no content": {"type": "message", "role": "user", "content": []},
    "null content": {"role": "assistant", "content": None},
    "empty text": {"role": "user", "content": ""},
    "phase": {"role": "assistant", "content": "thinking aloud", "phase": "commentary"},
    "replayed": {
        "type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "phase": "final_answer",
        "content": [
            {
                "type": "output_text", "text": "see there", "logprobs": [],
                "annotations": [{"type": "url_citation", "url": "https://a.example", "title": "A", "start_index": 0,
                                 "end_index": 3}],
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
        "role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;q=1;base64,iVBORw0KGgo="}],
    },
    "image data in no base64": {
        "role": "user", "content": [{"type": "input_image", "image_url": "data:image/svg+xml,<svg/>"}],
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
        "role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}}],
    },
    "audio that does not fit": {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": 1}}]},
    "unknown part": {"role": "user", "content": [{"type": "input_hologram", "data": "x"}, {"type": "input_text"}]},
    "forged mark": {"role": "user", "content": [{"type": "input_text", "text": "x", "item": {"id": "y"}}]},
    "call": {
        "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": '{"a": 1,\n "b": 2.0}',
        "status": "completed",
    },
    "call in a namespace": {
        "type": "function_call", "call_id": "call_2", "name": "add", "namespace": "sums", "arguments": "{}",
        "caller": {"type": "direct"},
    },
    "broken call": {"type": "function_call", "call_id": "call_3", "name": "add", "arguments": '{"a":'},
    "empty call": {"type": "function_call", "call_id": "call_4", "name": "add", "arguments": ""},
    "call without arguments": {"type": "function_call", "call_id": "call_5", "name": "add"},
    "call without an id": {"type": "function_call", "name": "add", "arguments": "{}"},
    "call with an object": {"type": "function_call", "call_id": "call_6", "name": "add", "arguments": {"a": 1}},
    "result": {"type": "function_call_output", "call_id": "call_1", "output": "3", "status": "completed"},
    "result in parts": {
        "type": "function_call_output", "call_id": "call_1",
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
        "type": "reasoning", "id": "rs_1", "status": "completed", "encrypted_content": "gAAAAAB",
        "summary": [{"type": "summary_text", "text": "first"}, {"type": "summary_text", "text": "second"}],
    },
    "open reasoning": {
        "type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "aloud"}],
    },
    "both kinds of reasoning": {
        "type": "reasoning", "summary": [{"type": "summary_text", "text": "short", "extra": "kept"}],
        "content": [{"type": "reasoning_text", "text": "long"}], "encrypted_content": None,
    },
    "sealed reasoning": {"type": "reasoning", "id": "rs_3", "summary": [], "encrypted_content": "gAAAAAB"},
    "empty reasoning": {"type": "reasoning", "id": "rs_4", "summary": []},
    "reasoning of another shape": {"type": "reasoning", "summary": [{"type": "haiku", "text": "leaves fall"}]},
    "web search": {
        "type": "web_search_call", "id": "ws_1", "status": "completed",
        "action": {"type": "search", "query": "weather", "sources": [{"type": "url", "url": "https://a.example"}]},
    },
    "web search without an action": {"type": "web_search_call", "id": "ws_2", "status": "failed", "action": None},
    "file search": {
        "type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["who"],
        "results": [{"file_id": "file-1", "filename": "a.txt", "score": 0.9, "text": "me", "attributes": {}}],
    },
    "code": {
        "type": "code_interpreter_call", "id": "ci_1", "status": "completed", "code": "1+1", "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": "2"}],
    },
    "code without outputs": {
        "type": "code_interpreter_call", "id": "ci_2", "status": "completed", "code": None, "container_id": "cntr_1",
        "outputs": [],
    },
    "picture": {
        "type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo=",
        "output_format": "png", "revised_prompt": "a cat", "size": "auto",
    },
    "picture by reference": {"type": "image_generation_call", "id": "ig_2"},
    "shell": {
        "type": "shell_call", "id": "sh_1", "call_id": "call_8", "status": "completed",
        "action": {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": None},
    },
    "shell output": {
        "type": "shell_call_output", "call_id": "call_8", "max_output_length": 100,
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "local shell": {
        "type": "local_shell_call", "id": "ls_1", "call_id": "call_9", "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    "local shell output": {"type": "local_shell_call_output", "id": "call_9", "output": "{}"},
    "patch": {
        "type": "apply_patch_call", "id": "apc_1", "call_id": "call_10", "status": "completed",
        "operation": {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"},
    },
    "patch output": {"type": "apply_patch_call_output", "call_id": "call_10", "status": "failed", "output": "no file"},
    "computer": {
        "type": "computer_call", "id": "cu_1", "call_id": "call_11", "status": "completed",
        "action": {"type": "click", "x": 1, "y": 2, "button": "left"}, "pending_safety_checks": [],
    },
    "computer output": {
        "type": "computer_call_output", "call_id": "call_11",
        "output": {"type": "computer_screenshot", "image_url": "https://a.example/x.png"},
    },
    "mcp call": {
        "type": "mcp_call", "id": "mcp_1", "server_label": "docs", "name": "ask", "arguments": '{"q":"x"}',
        "output": "because", "error": None, "approval_request_id": None, "status": "completed",
    },
    "failed mcp call": {
        "type": "mcp_call", "id": "mcp_2", "server_label": "docs", "name": "ask", "arguments": "{}", "output": None,
        "error": {"type": "http_error", "code": 500, "message": "broken"},
    },
    "mcp tools": {
        "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "docs", "error": None,
        "tools": [{"name": "ask", "description": "ask", "input_schema": {"type": "object"}, "annotations": None}],
    },
    "mcp approval": {
        "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "docs", "name": "ask", "arguments": "{}",
    },
    "mcp approved": {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True, "reason": "ok"},
    "tool search": {
        "type": "tool_search_call", "id": "tsc_1", "call_id": None, "execution": "server", "status": "completed",
        "arguments": {"paths": ["a"]},
    },
    "tools found": {
        "type": "tool_search_output", "call_id": None, "execution": "server", "status": "completed",
        "tools": [{"type": "function", "name": "f", "description": "d", "parameters": {}}],
    },
    "more tools": {"type": "additional_tools", "role": "developer", "tools": [{"type": "function", "name": "g"}]},
    "compaction": {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAAAB"},
    "reference": {"type": "item_reference", "id": "msg_9"},
    "bare reference": {"id": "msg_9"},
    "something new": {"type": "hologram_call", "id": "h_1", "beam": {"colour": "red"}},
}  # fmt: skip

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


# -- every kind of item -----------------------------------------------------------------------------------------------


@pytest.mark.spec("RSP-1")
@pytest.mark.parametrize("name", ITEMS)
def test_each_item_is_one_message_and_comes_back_as_it_was(name: str) -> None:
    request = assert_lossless_request(request_body(ITEMS[name]))

    assert len(request.messages) == 1


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize("name", [name for name, item in ITEMS.items() if "role" not in item])
def test_each_item_of_an_answer_comes_back_as_it_was_whole_and_streamed(name: str) -> None:
    response = assert_lossless_answer(answer_body(said("before"), ITEMS[name], said("after", id="msg_2")))

    assert len(response.choices) == 1


@pytest.mark.spec("ADP-5")
@pytest.mark.parametrize("name", ITEMS)
def test_no_string_of_any_item_is_hidden_from_policy(name: str) -> None:
    body = request_body(ITEMS[name])

    for spot in spots(body):
        try:
            request = ADAPTER.from_wire_request(planted(body, spot))
        except ShapeError:
            continue
        hidden = unseen_strings({"at": CANARY}, request, frozenset({"at"}))
        assert hidden == [], f"{spot}"


def test_all_items_together_keep_their_order() -> None:
    request = assert_lossless_request(request_body(*ITEMS.values()))

    assert len(request.messages) == len(ITEMS)


# -- requests ---------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSP-1")
@pytest.mark.parametrize("given", ["hello", "", [], None])
def test_input_as_a_string_a_list_or_nothing_survives(given: Any) -> None:
    request = assert_lossless_request({"model": "m", "input": given})

    assert len(request.messages) == (1 if isinstance(given, str) else 0)


def test_a_request_without_input_has_none_either_way() -> None:
    assert_lossless_request({"model": "m", "prompt": {"id": "pmpt_1", "variables": {"city": "Paris"}}})


def test_string_input_that_was_edited_beyond_one_text_becomes_a_list() -> None:
    request = ADAPTER.from_wire_request({"model": "m", "input": "hello"})
    edited = replace(request.messages[0], content=(TextPart(text="a"), TextPart(text="b")))

    body = ADAPTER.to_wire(replace(request, messages=(edited,)))

    assert [part["text"] for part in body["input"][0]["content"]] == ["a", "b"]


@pytest.mark.spec("RSP-2")
def test_instructions_are_a_leading_system_message_and_not_an_item() -> None:
    body = request_body({"role": "system", "content": "second"}, instructions="first")

    request = assert_lossless_request(body)

    assert [one.role for one in request.messages] == [Role.SYSTEM, Role.SYSTEM]
    assert request.system == "first\n\nsecond"


@pytest.mark.spec("RSP-2")
@pytest.mark.parametrize("given", ["", None])
def test_empty_and_null_instructions_are_told_apart(given: str | None) -> None:
    request = assert_lossless_request(request_body(ITEMS["easy"], instructions=given))

    assert len(request.messages) == (1 if given is None else 2)


@pytest.mark.spec("RSP-2")
def test_instructions_that_no_longer_lead_become_an_item() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["easy"], instructions="first"))

    body = ADAPTER.to_wire(replace(request, messages=request.messages[::-1]))

    assert "instructions" not in body
    assert [item["role"] for item in body["input"]] == ["user", "system"]


@pytest.mark.spec("RSP-3")
@pytest.mark.parametrize("role", ["critic", "tool", ""])
def test_an_unknown_role_is_refused(role: str) -> None:
    with pytest.raises(UnknownRoleError) as caught:
        ADAPTER.from_wire_request(request_body({"role": role, "content": "x"}))

    assert caught.value.path == "$.input[0].role"


@pytest.mark.spec("RSP-3")
@pytest.mark.parametrize("item", [{"type": "message", "content": "x"}, {"role": 1, "content": "x"}, "x", None, [1]])
def test_a_message_without_a_role_and_an_item_that_is_none_are_refused(item: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_request(request_body(item))

    assert caught.value.path.startswith("$.input[0]")


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_request_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(ShapeError):
        ADAPTER.from_wire_request(body)


@pytest.mark.spec("RSP-3")
def test_the_facts_of_a_message_are_shown_with_its_first_part_and_leave_with_it() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["replayed"]))
    first, second = request.messages[0].content

    views = list(iter_views(request))
    edited = replace(request.messages[0], content=(first.edited(text="redacted"), second))
    item = ADAPTER.to_wire(replace(request, messages=(edited,)))["input"][0]

    assert views[1].properties["extra"][FORMAT]["item"]["phase"] == "final_answer"
    assert "id" not in item
    assert item["content"][0] == {"type": "output_text", "text": "redacted"}


@pytest.mark.spec("RSP-4")
def test_reasoning_becomes_thinking_with_its_seal_on_the_first_part() -> None:
    summary = parts_of(ITEMS["reasoning"])
    aloud = parts_of(ITEMS["open reasoning"])
    sealed = parts_of(ITEMS["sealed reasoning"])

    assert [(part.text, part.signature) for part in summary if isinstance(part, ThinkingPart)] == [
        ("first", "gAAAAAB"),
        ("second", None),
    ]
    assert isinstance(aloud[0], ThinkingPart)
    assert isinstance(sealed[0], RedactedThinkingPart)
    assert isinstance(parts_of(ITEMS["empty reasoning"])[0], OpaquePart)


@pytest.mark.spec("RSP-4")
def test_edited_and_foreign_reasoning_is_not_sent_but_recorded() -> None:
    own = parts_of(ITEMS["reasoning"])[0]
    thoughts = (
        own.edited(text="[redacted]"),
        ThinkingPart(text="theirs", signature="s"),
        RedactedThinkingPart(data="theirs"),
    )

    with collecting() as losses:
        items = written(message(Role.ASSISTANT, *thoughts, TextPart(text="answer")))

    assert items == [{"role": "assistant", "content": "answer"}]
    assert [loss.block_type for loss in losses] == ["thinking", "thinking", "redacted_thinking"]


@pytest.mark.spec("RSP-5")
@pytest.mark.parametrize(
    ("item", "uri", "arguments"),
    [
        ("call", "tool://_/add", {"a": 1, "b": 2.0}),
        ("call in a namespace", "tool://sums/add", {}),
        ("custom call", "tool://_/sql", {"input": "select 1"}),
        ("shell", "tool://_/shell", {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": None}),
        ("patch", "tool://_/apply_patch", {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}),
        ("mcp call", "tool://docs/ask", {"q": "x"}),
        ("mcp approval", "tool://docs/ask", {}),
        ("code", "tool://_/code_interpreter", {"code": "1+1", "container_id": "cntr_1"}),
    ],
)
def test_calls_are_shown_as_calls_of_their_tool(item: str, uri: str, arguments: dict[str, Any]) -> None:
    view = list(iter_views(ADAPTER.from_wire_request(request_body(ITEMS[item]))))[1]

    assert (view.kind, view.uri, view.arguments) == ("tool_call", uri, arguments)


@pytest.mark.spec("RSP-5")
@pytest.mark.parametrize("item", ["broken call", "empty call"])
def test_arguments_that_are_no_object_stay_raw(item: str) -> None:
    call = parts_of(ITEMS[item])[0]

    assert isinstance(call, ToolCallPart)
    assert (call.arguments, call.arguments_raw) == (None, ITEMS[item]["arguments"])


@pytest.mark.spec("RSP-6")
def test_what_a_provider_ran_is_a_call_and_its_result_in_one_item() -> None:
    call, result = parts_of(ITEMS["mcp call"])
    _, picture = parts_of(ITEMS["picture"])

    assert isinstance(call, ToolCallPart)
    assert isinstance(result, ToolResultPart)
    assert isinstance(picture, ToolResultPart)
    assert (call.executed_by, result.executed_by, result.content) == ("provider", "provider", "because")
    assert picture.content == (ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),)


@pytest.mark.spec("RSP-6")
def test_a_shell_that_the_answer_holds_the_output_of_was_run_by_the_provider() -> None:
    run = ADAPTER.from_wire_response(answer_body(ITEMS["shell"], ITEMS["shell output"]))
    asked = ADAPTER.from_wire_response(answer_body(ITEMS["shell"]))

    assert [part.executed_by for part in run.message.content] == ["provider", "provider"]
    assert asked.message.content[0].executed_by == "client"
    assert (run.choices[0].stop_reason, asked.choices[0].stop_reason) == (StopReason.END, StopReason.CALL)


@pytest.mark.spec("RSP-6")
def test_a_result_without_its_hosted_call_is_dropped_and_never_moved() -> None:
    parts = parts_of(ITEMS["mcp call"])

    with collecting() as losses:
        items = written(message(Role.ASSISTANT, parts[1], TextPart(text="so")))

    assert items == [{"role": "assistant", "content": "so"}]
    assert [loss.block_type for loss in losses] == ["tool_result"]


@pytest.mark.spec("RSP-7")
def test_a_result_takes_the_name_of_its_call_and_keeps_its_form() -> None:
    _, plain, listed = parts_of(ITEMS["call"], ITEMS["result"], ITEMS["result in parts"])

    assert isinstance(plain, ToolResultPart)
    assert isinstance(listed, ToolResultPart)
    assert (plain.tool_name, plain.content) == ("add", "3")
    assert [type(part) for part in listed.content] == [TextPart, ImagePart, DocumentPart, OpaquePart]


@pytest.mark.spec("RSP-8")
@pytest.mark.parametrize("name", ["compaction", "reference", "mcp tools", "mcp approved", "more tools", "tools found"])
def test_items_without_a_canonical_shape_are_opaque(name: str) -> None:
    (part,) = parts_of(ITEMS[name])

    assert isinstance(part, OpaquePart)
    assert part.value == ITEMS[name]


@pytest.mark.spec("RSP-9")
def test_tools_come_back_as_they_were_and_each_has_its_view() -> None:
    request = assert_lossless_request(request_body(ITEMS["easy"], tools=TOOLS))

    uris = [view.uri for view in iter_views(request) if view.kind == "tool_definition"]
    assert {"tool://_/add", "tool://_/web_search", "tool://docs/mcp", "tool://crm/find", "tool://crm/note"} <= set(uris)
    assert [tool.executed_by for tool in request.tools].count("provider") == 2  # web search and MCP


@pytest.mark.spec("RSP-9")
def test_a_tool_stripped_from_a_namespace_leaves_the_others() -> None:
    request = ADAPTER.from_wire_request(request_body(tools=[TOOLS[9]]))
    namespace, _, note = request.tools

    without_one = ADAPTER.to_wire(replace(request, tools=(namespace, note)))
    without_the_namespace = ADAPTER.to_wire(replace(request, tools=(note,)))

    assert without_one["tools"] == [{**TOOLS[9], "tools": [{"type": "custom", "name": "note"}]}]
    assert without_the_namespace["tools"][0]["name"] == "crm"


@pytest.mark.spec("RSP-9")
def test_a_tool_that_another_provider_runs_is_refused() -> None:
    tool = ToolDefinition(name="google_search", type="google_search", executed_by="provider")

    with pytest.raises(UnsupportedError):
        ADAPTER.to_wire(Request(tools=(tool,)))


@pytest.mark.spec("RSP-10")
def test_what_a_request_refers_to_is_shown() -> None:
    by_reference = {
        "previous_response_id": "resp_0",
        "conversation": {"id": "conv_1"},
        "prompt": {"id": "pmpt_1", "version": "2"},
        "background": True,
        "store": False,
    }

    request = assert_lossless_request(request_body(ITEMS["reference"], **by_reference))

    assert next(iter_views(request)).properties["extra"][FORMAT] == by_reference


def test_parameters_have_their_canonical_place() -> None:
    body = request_body(
        ITEMS["easy"],
        temperature=1,
        top_p=0.5,
        max_output_tokens=20,
        stream=True,
        reasoning={"effort": "low", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "out", "schema": {"type": "object"}, "strict": True},
            "verbosity": "low",
        },
        tool_choice={"type": "function", "name": "add"},
    )

    request = assert_lossless_request(body)

    assert request.sampling == Sampling(temperature=1, top_p=0.5, max_output_tokens=20)
    assert (request.reasoning_effort, request.stream) == ("low", True)
    assert (request.response_schema, request.response_schema_name) == ({"type": "object"}, "out")
    assert request.tool_choice == ToolChoice(mode="tool", name="add")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}},
        {"tool_choice": {"type": "web_search_preview"}},
        {"tool_choice": "whatever"},
        {"tool_choice": None},
        {"text": {"format": {"type": "json_object"}}},
        {"text": {}},
        {"text": {"format": {"type": "json_schema", "schema": {}}}},
        {"reasoning": {}},
        {"reasoning": None},
        {"temperature": True},
        {"temperature": 1.0, "max_output_tokens": None},
        {"tools": None},
        {"tools": []},
        {"tools": ["add"]},
        {"stream": None},
        {"metadata": {"k": "v"}, "include": ["reasoning.encrypted_content"]},
        {"instructions": [{"role": "system", "content": "x"}]},
        {"input": {"role": "user"}},
    ],
)
def test_odd_parameters_survive(fields: dict[str, Any]) -> None:
    assert_lossless_request(request_body(ITEMS["easy"]) | fields)


def test_a_schema_that_is_taken_away_takes_its_switches_with_it() -> None:
    shape = {"type": "json_schema", "name": "out", "schema": {}, "strict": True}
    request = ADAPTER.from_wire_request(request_body(text={"format": shape, "verbosity": "low"}))

    body = ADAPTER.to_wire(replace(request, response_schema=None, response_schema_name=None))

    assert body["text"] == {"verbosity": "low"}


def test_the_model_of_the_call_counts_where_the_body_names_none() -> None:
    request = ADAPTER.from_wire_request({"input": "x"}, model="gpt-5")

    assert request.model == "gpt-5"
    assert ADAPTER.to_wire(request) == {"input": "x"}
    assert ADAPTER.to_http(request).path == "/v1/responses"
    assert ADAPTER.estimate_input_tokens(request) > 0


@pytest.mark.spec("ADP-6")
def test_a_redaction_of_arguments_does_not_come_back_by_layout() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["call"]))
    call = request.messages[0].content[0]
    edited = replace(request.messages[0], content=(call.edited(arguments=FrozenDict({"a": "[masked]", "b": 2.0})),))

    (item,) = ADAPTER.to_wire(replace(request, messages=(edited,)))["input"]

    assert item == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "add",
        "arguments": '{"a":"[masked]","b":2.0}',
    }


# -- from other formats -----------------------------------------------------------------------------------------------


def test_a_foreign_turn_becomes_items_in_order_with_ids_paired() -> None:
    items = written(
        message(Role.SYSTEM, TextPart(text="be brief")),
        message(
            Role.ASSISTANT,
            TextPart(text="a"),
            TextPart(text="b"),
            ToolCallPart(name="add", arguments=FrozenDict({"n": 1})),
            ToolCallPart(name="sub", tool_call_id="toolu_1", arguments_raw="oops"),
            TextPart(text="c"),
        ),
        message(Role.TOOL, ToolResultPart(content=FrozenDict({"sum": 1}))),
        message(Role.TOOL, ToolResultPart(tool_call_id="toolu_1", content=(TextPart(text="x"),))),
        message(Role.TOOL, ToolResultPart(tool_call_id="toolu_2")),
    )

    assert items == [
        {"role": "system", "content": "be brief"},
        {
            "role": "assistant",
            "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}],
        },
        {"type": "function_call", "call_id": "call_0", "name": "add", "arguments": '{"n":1}'},
        {"type": "function_call", "call_id": "toolu_1", "name": "sub", "arguments": "oops"},
        {"role": "assistant", "content": "c"},
        {"type": "function_call_output", "call_id": "call_0", "output": '{"sum":1}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": [{"type": "input_text", "text": "x"}]},
        {"type": "function_call_output", "call_id": "toolu_2", "output": ""},
    ]


def test_foreign_media_is_written_in_this_formats_way() -> None:
    (item,) = written(
        message(
            Role.USER,
            ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),
            DocumentPart(type="url", data="https://a.example/x.pdf", title="x"),
            AudioPart(type="base64", data="UklGRg==", media_type="audio/mpeg"),
        )
    )

    assert item["content"] == [
        {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="},
        {"type": "input_file", "file_url": "https://a.example/x.pdf", "filename": "x"},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "mp3"}},
    ]


@pytest.mark.spec("ADP-10")
@pytest.mark.parametrize(
    "one",
    [
        message(Role.USER, VideoPart(type="url", data="https://a.example/x.mp4")),
        message(Role.USER, AudioPart(type="url", data="https://a.example/x.mp3")),
        message(Role.TOOL, TextPart(text="outside a result")),
    ],
)
def test_media_and_roles_that_cannot_be_said_are_refused(one: Message) -> None:
    with pytest.raises(UnsupportedError):
        written(one)


@pytest.mark.spec("ADP-10")
def test_what_cannot_be_said_is_dropped_with_a_record() -> None:
    with collecting() as losses:
        items = written(
            message(
                Role.ASSISTANT,
                OpaquePart(provider="anthropic_messages", type="x", value=FrozenDict({"a": 1})),
                ToolCallPart(name="web_search", executed_by="provider"),
                ToolResultPart(tool_name="web_search", executed_by="provider"),
                ResourceRefPart(uri="file:///x"),
            ),
            message(Role.TOOL, ToolResultPart(tool_call_id="c", content="failed", is_error=True)),
        )
        ADAPTER.to_wire(Request(sampling=Sampling(top_k=3, seed=1, stop=("x",))))

    assert [item["type"] for item in items] == ["function_call_output"]
    assert [loss.block_type for loss in losses] == [
        "opaque", "tool_call", "tool_result", "resource_ref", "is_error",
        "sampling.top_k", "sampling.stop", "sampling.seed",
    ]  # fmt: skip


@pytest.mark.spec("ADP-11")
def test_a_critical_message_is_refused_and_not_thinned() -> None:
    critical = Extensions(meta=MetaExtension(properties=FrozenDict({"critical": True})))

    with pytest.raises(LossyProjectionError):
        written(message(Role.ASSISTANT, ThinkingPart(text="theirs"), extensions=critical))


def test_a_foreign_schema_gets_the_name_that_the_format_demands() -> None:
    body = ADAPTER.to_wire(Request(response_schema=FrozenDict({"type": "object"})))

    assert body["text"]["format"] == {"type": "json_schema", "name": "response", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    "extra",
    [
        {"type": 1}, {"item": "x"}, {"item": {"content": "x", "type": "y"}}, {"inside": None}, {"text": "other"},
        {"name": "other"}, {"type": "no_such_call"},
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "part",
    [
        TextPart(text="x"), ThinkingPart(text="x"), ToolCallPart(name="x"), ToolResultPart(content="x"),
        OpaquePart(provider=FORMAT, type="x", value=FrozenDict({"type": "x"})),
    ],
)  # fmt: skip
def test_extra_that_was_not_made_here_cannot_contradict_the_part(part: Part, extra: dict[str, Any]) -> None:
    forged = message(Role.ASSISTANT, replace(part, extra=FrozenDict({FORMAT: extra})))

    items = written(forged)

    assert unseen_strings(items, Request(messages=(forged,)), adapter_constants(FORMAT)) == []
    assert "'x'" in str(items) or items == []


# -- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize(
    ("fields", "stop", "status"),
    [
        ({"status": "completed"}, StopReason.END, MessageStatus.COMPLETE),
        ({"status": "complete"}, StopReason.END, MessageStatus.COMPLETE),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            StopReason.MAX_TOKENS,
            MessageStatus.COMPLETE,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            StopReason.CONTENT_FILTER,
            MessageStatus.COMPLETE,
        ),
        ({"status": "incomplete", "incomplete_details": None}, StopReason.OTHER, MessageStatus.COMPLETE),
        ({"status": "failed", "error": {"code": "x", "message": "y"}}, StopReason.ERROR, MessageStatus.ERROR),
        ({"status": "cancelled"}, StopReason.OTHER, MessageStatus.CANCELLED),
        ({"status": "queued"}, None, MessageStatus.PARTIAL),
        ({"status": "in_progress"}, None, MessageStatus.PARTIAL),
        ({"status": "unheard of"}, StopReason.OTHER, MessageStatus.COMPLETE),
        ({"status": None}, StopReason.END, MessageStatus.COMPLETE),
    ],
)
def test_the_status_tells_why_an_answer_ended(
    fields: dict[str, Any], stop: StopReason | None, status: MessageStatus
) -> None:
    response = assert_lossless_answer(answer_body(said("x"), **fields))

    assert (response.choices[0].stop_reason, response.message.status) == (stop, status)


@pytest.mark.spec("RSP-11")
def test_calls_and_refusals_are_stop_reasons_of_their_own() -> None:
    refusal = said("", content=[{"type": "refusal", "refusal": "no"}])

    assert assert_lossless_answer(answer_body(ITEMS["call"])).choices[0].stop_reason is StopReason.CALL
    assert assert_lossless_answer(answer_body(refusal)).choices[0].stop_reason is StopReason.REFUSAL


@pytest.mark.spec("RSP-11")
def test_an_answer_edited_by_policy_is_written_with_a_status_that_fits() -> None:
    body = answer_body(said("x"), status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    response = ADAPTER.from_wire_response(body)
    choice = replace(response.choices[0], stop_reason=StopReason.CONTENT_FILTER)
    ended = replace(response.choices[0], stop_reason=StopReason.END)

    filtered = ADAPTER.to_wire_response(replace(response, choices=(choice,)))
    completed = ADAPTER.to_wire_response(replace(response, choices=(ended,)))

    assert (filtered["status"], filtered["incomplete_details"]) == ("incomplete", {"reason": "content_filter"})
    assert (completed["status"], completed["incomplete_details"]) == ("completed", None)


@pytest.mark.spec("RSP-12")
def test_the_summary_beside_the_items_follows_an_edit_of_them() -> None:
    response = assert_lossless_answer(answer_body(said("secret"), output_text="secret"))
    part = response.message.content[0]
    edited = replace(response.message, content=(part.edited(text="[masked]"),))

    body = ADAPTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert body["output_text"] == "[masked]"
    assert "secret" not in str(body)


def test_a_summary_that_says_something_else_is_shown() -> None:
    response = assert_lossless_answer(answer_body(said("this"), output_text="that"))

    assert next(iter_views(response)).properties["extra"][FORMAT]["output_text"] == "that"


def test_the_logprobs_and_citations_of_an_edited_text_do_not_leave() -> None:
    part = {
        "type": "output_text", "text": "secret",
        "annotations": [{"type": "url_citation", "title": "secret"}], "logprobs": [{"token": "secret"}],
    }  # fmt: skip
    response = assert_lossless_answer(answer_body(said("", content=[part])))
    edited = replace(response.message, content=(response.message.content[0].edited(text="[masked]"),))

    body = ADAPTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert "secret" not in str(body)


@pytest.mark.spec("RSP-12")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"error": {"message": "no", "type": "t", "param": None, "code": "c"}, "status": 401}, "no"),
        ({"error": {"message": "no", "code": 429}}, "no"),
        ({"error": "no", "code": "bad"}, "no"),
        ({"error": "no"}, "no"),
        ({"detail": "no"}, "no"),
        ({"message": "no"}, "no"),
        ({"detail": [{"loc": ["body"], "msg": "no"}]}, None),
        ({"error": {}}, None),
        ({}, None),
    ],
)
def test_every_shape_of_error_is_an_error_and_comes_back(body: dict[str, Any], text: str | None) -> None:
    response = assert_lossless_answer(body)

    assert response.error is not None
    assert (response.error.message, response.choices) == (text, ())


@pytest.mark.spec("RSP-12")
def test_a_page_of_text_is_an_error_too() -> None:
    response = ADAPTER.from_wire_response("Bad gateway")

    assert response.error == ErrorInfo(message="Bad gateway")
    assert ADAPTER.to_wire_response(response) == "Bad gateway"


@pytest.mark.parametrize("body", [None, [], 1, True])
def test_an_answer_that_is_nothing_readable_is_refused(body: Any) -> None:
    with pytest.raises(ShapeError):
        ADAPTER.from_wire_response(body)


def test_an_output_item_that_is_no_object_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_response(answer_body("x"))

    assert caught.value.path == "$.output[0]"


@pytest.mark.spec("RSP-12")
def test_the_echo_of_the_request_stays_and_is_shown() -> None:
    echo = {"instructions": "be brief", "tools": [TOOLS[0]], "metadata": {"k": "v"}, "text": {"verbosity": "low"}}

    response = assert_lossless_answer(answer_body(said("x"), **echo))

    assert next(iter_views(response)).properties["extra"][FORMAT].items() >= echo.items()


@pytest.mark.parametrize("output", [{"status": "queued"}, {"status": "completed", "output": []}, {"output": []}])
def test_answers_without_items_have_one_empty_message(output: dict[str, Any]) -> None:
    response = assert_lossless_answer({"id": "resp_1", "object": "response", **output})

    assert response.message.content == ()


def test_a_message_of_the_users_inside_an_answer_stays_opaque() -> None:
    """A compaction answers with the user's messages as well."""
    item = {"type": "message", "id": "msg_1", "role": "user", "content": [{"type": "input_text", "text": "x"}]}

    response = assert_lossless_answer(answer_body(item, object="response.compaction"))

    assert isinstance(response.message.content[0], OpaquePart)


def test_servers_that_leave_things_out_are_read() -> None:
    bare = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "x"}]}]}

    response = assert_lossless_answer(bare)

    assert response.message.content[0].text == "x"


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 2, "total_tokens": 12},
            TokenUsage(input_tokens=6, cached_input_tokens=4, output_tokens=2, total_tokens=12),
        ),
        (
            {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 2}},
            TokenUsage(input_tokens=7, cached_input_tokens=1, cache_creation_input_tokens=2),
        ),
        ({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 4}}, None),
        ({"input_tokens": -1, "output_tokens": "many", "cost": {"usd": 0.1}}, None),
        ({}, TokenUsage()),
        (None, None),
    ],
)
def test_usage_counts_cached_tokens_once(usage: Any, tokens: TokenUsage | None) -> None:
    assert assert_lossless_answer(answer_body(said("x"), usage=usage)).usage == tokens


def test_a_foreign_answer_is_written_as_clients_expect_it() -> None:
    response = foreign_answer(
        ThinkingPart(text="hm", signature="theirs"),
        TextPart(text="a"),
        ToolCallPart(name="add", tool_call_id="toolu_1"),
        ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),
        stop_reason=StopReason.MAX_TOKENS,
        raw_stop_reason="max_tokens",
    )

    body = ADAPTER.to_wire_response(replace(response, model="claude", usage=TokenUsage(input_tokens=1)))

    assert [item["type"] for item in body["output"]] == [
        "reasoning", "message", "function_call", "image_generation_call",
    ]  # fmt: skip
    assert all(item["id"] for item in body["output"])
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (body["object"], body["model"], body["usage"]["total_tokens"]) == ("response", "claude", 1)
    assert "theirs" not in str(body)


def test_of_several_foreign_choices_the_others_are_recorded_as_dropped() -> None:
    one = foreign_answer(TextPart(text="a")).choices[0]

    with collecting() as losses:
        body = ADAPTER.to_wire_response(Response(choices=(one, one)))

    assert len(body["output"]) == 1
    assert [loss.block_type for loss in losses] == ["choice"]


def test_a_foreign_error_has_what_clients_read() -> None:
    body = ADAPTER.to_wire_response(Response(error=ErrorInfo(message="no", code="c")))

    assert body == {"error": {"message": "no", "type": None, "param": None, "code": "c"}}


# -- streams ----------------------------------------------------------------------------------------------------------


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


def left_over(stream: Sequence[WireEvent]) -> list[Any]:
    body = ADAPTER.fold_events(stream)
    response = ADAPTER.from_wire_response(body)
    left: list[Any] = body.get("cmf_stream", {}).get("unfolded", [])
    assert unseen_strings(left, response, frozenset()) == []
    assert "cmf_" not in str(ADAPTER.to_wire_response(response))
    return left


@pytest.mark.spec("RSP-13")
def test_a_stream_folds_to_its_final_response_and_no_more() -> None:
    assert ADAPTER.fold_events(streamed("a", "b", final="ab")) == answer_body(said("ab"))


@pytest.mark.spec("RSP-13")
def test_streamed_items_are_the_output_where_the_final_response_has_none() -> None:
    stream = streamed("a", "b", final="ab")
    stream[-1]["data"]["response"]["output"] = []
    done = events({"type": "response.output_item.done", "output_index": 0, "item": said("ab")})

    body = ADAPTER.fold_events([*stream[:-1], *done, stream[-1]])

    assert body == answer_body(said("ab"))


@pytest.mark.spec("RSP-13")
def test_a_stream_without_an_end_folds_to_a_partial_answer() -> None:
    body = ADAPTER.fold_events(streamed("a", "b"))
    response = ADAPTER.from_wire_response(body)

    assert body["cmf_partial"] is True
    assert response.message.status is MessageStatus.PARTIAL
    assert response.message.content[0].text == "ab"
    assert "cmf_partial" not in ADAPTER.to_wire_response(response)
    assert isinstance(heard(streamed("a", "b"))[-1], StreamError)


@pytest.mark.spec("RSP-13")
@pytest.mark.parametrize("stream", [[], [{"comment": "x"}], [{"data": "[DONE]"}], [{"event": "x"}]])
def test_a_stream_that_says_nothing_is_partial(stream: list[WireEvent]) -> None:
    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))

    assert response.message.status is MessageStatus.PARTIAL


@pytest.mark.spec("RSP-13")
def test_pieces_of_every_kind_are_put_together() -> None:
    def piece(kind: str, at: int, *texts: str, **place: Any) -> list[dict[str, Any]]:
        return [{"type": f"response.{kind}.delta", "output_index": at, "delta": text, **place} for text in texts]

    body = ADAPTER.fold_events(
        events(
            *piece("reasoning_summary_text", 0, "hm", summary_index=0),
            *piece("reasoning_text", 1, "hm", "m", content_index=0),
            *piece("function_call_arguments", 2, "{", "}"),
            *piece("custom_tool_call_input", 3, "select"),
            *piece("code_interpreter_call_code", 4, "1+1"),
            *piece("apply_patch_call_operation_diff", 5, "@@"),
            *piece("shell_call_command", 6, "l", "s", command_index=0),
            *piece("refusal", 7, "no", content_index=0),
            *piece("output_text", 8, "yes", content_index=7),
        )
    )

    assert body["output"][0] == {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert body["output"][2] == {"type": "function_call", "arguments": "{}"}
    assert body["output"][3] == {"type": "custom_tool_call", "input": "select"}
    assert body["output"][4] == {"type": "code_interpreter_call", "code": "1+1"}
    assert body["output"][5]["operation"]["diff"] == "@@"
    assert body["output"][6]["action"]["commands"] == ["ls"]
    assert body["output"][7]["content"] == [{"type": "refusal", "refusal": "no"}]
    assert body["output"][8]["content"] == [{"type": "output_text", "text": "yes"}]


@pytest.mark.spec("RSP-14")
def test_text_that_was_streamed_and_is_not_in_the_final_response_is_shown() -> None:
    left = left_over(streamed("the secret", " plan", final="nothing to see"))

    assert left == [{"output_index": 0, "at": "/content/0/text", "delta": "the secret plan"}]


@pytest.mark.spec("RSP-14")
@pytest.mark.parametrize(
    "stray",
    [
        {"type": "response.hologram.delta", "delta": "x", "output_index": 0},
        {"type": "response.output_text.delta", "delta": {"not": "text"}},
        {"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "other"},
        {"type": "response.content_part.done", "output_index": 0, "content_index": 0, "part": "none"},
        {"type": "response.content_part.done", "output_index": 3, "content_index": 0, "part": {"type": "x"}},
        {"type": "response.output_item.done", "output_index": 0, "item": said("other")},
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {"url": "https://x"}},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_other"},
        {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "msg_1", "news": "x"},
        {"type": "response.in_progress", "response": answer_body(instructions="others")},
        {"type": "response.completed", "response": "none"},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "",
         "logprobs": [{"token": "other"}]},
        {"type": "response.image_generation_call.partial_image", "output_index": 0, "partial_image_b64": "iVBO"},
    ],
)  # fmt: skip
def test_whatever_else_a_stream_says_is_shown_and_not_emitted(stray: dict[str, Any]) -> None:
    stream = streamed("ab", final="ab")
    stream[-1:-1] = events(stray)

    assert left_over(stream) != []


@pytest.mark.spec("RSP-14")
@pytest.mark.parametrize("data", ["plain text", ["x"], {"no": "type"}])
def test_data_that_is_no_event_is_shown(data: Any) -> None:
    assert left_over([*streamed("ab", final="ab"), {"data": data}]) == [data]


@pytest.mark.spec("RSP-14")
def test_padding_is_shown_as_what_it_is() -> None:
    stream = streamed("ab", final="ab")
    stream[2]["data"]["obfuscation"] = "x7Kq"

    body = ADAPTER.fold_events(stream)

    assert body["cmf_stream"] == {"unfolded": [], "padding": "x7Kq"}


@pytest.mark.spec("RSP-14")
def test_other_ids_of_the_same_item_are_kept_once() -> None:
    left = left_over(streamed("a", "b", final="ab", item_id="msg_other"))

    assert left == [{"type": "response.output_text.delta", "item_id": "msg_other"}]


def test_an_event_that_is_no_object_and_data_too_deep_are_refused() -> None:
    deep: Any = "x"
    for _ in range(80):
        deep = [deep]

    for stream in ([1], [{"data": {"type": "x", "deep": deep}}]):
        with pytest.raises(ShapeError):
            ADAPTER.fold_events(stream)  # type: ignore[arg-type]  # hostile on purpose


@pytest.mark.spec("RSP-13")
def test_huge_indexes_do_not_blow_up_the_fold() -> None:
    stream = streamed("a")
    stream[-1]["data"] |= {"content_index": 2**70, "output_index": 2**70}

    assert len(ADAPTER.fold_events(stream)["output"]) == 2


@pytest.mark.spec("RSP-15")
@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "server_error", "message": "broke", "param": None},
        {"type": "error", "error": {"code": "server_error", "message": "broke"}},
    ],
)
@pytest.mark.parametrize("before", [0, 4])
def test_an_error_event_ends_the_stream_in_an_error(error: dict[str, Any], before: int) -> None:
    stream = [*streamed("a", "b")[:before], *events(error)]

    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))
    last = heard(stream)[-1]
    again = ADAPTER.fold_events(ADAPTER.to_wire_events(response))

    assert response.error is not None
    assert (response.error.message, response.error.code) == ("broke", "server_error")
    assert all(choice.message.status is MessageStatus.PARTIAL for choice in response.choices)
    assert isinstance(last, StreamError)
    assert unmarked(again) == ADAPTER.to_wire_response(response)
    assert ADAPTER.to_wire_events(response)[-1]["event"] == "error"


def test_a_second_error_and_what_stands_beside_one_are_shown() -> None:
    error = {"type": "error", "error": {"message": "one"}, "hint": "two"}

    left = left_over([*streamed("a"), *events(error, {"type": "error", "message": "three"})])

    assert [each.get("hint") or each.get("message") for each in left if each["type"] == "error"] == ["three", "two"]


@pytest.mark.spec("RSP-13")
def test_a_failed_response_is_an_error_and_no_message() -> None:
    failed = answer_body(status="failed", error={"code": "server_error", "message": "broke"})
    stream = events({"type": "response.failed", "response": failed})

    response = ADAPTER.from_wire_response(ADAPTER.fold_events(stream))

    assert response.error == ErrorInfo(code="server_error", message="broke")
    assert isinstance(heard(stream)[-1], StreamError)
    assert ADAPTER.to_wire_events(response)[-1]["event"] == "response.failed"


@pytest.mark.spec("RSP-15")
def test_an_answer_heard_live_gives_text_thinking_and_calls() -> None:
    body = answer_body(ITEMS["reasoning"], said("hello"), ITEMS["call"], ITEMS["custom call"])
    response = ADAPTER.from_wire_response(body)

    live = heard(ADAPTER.to_wire_events(response))

    assert "".join(event.text for event in live if isinstance(event, TextDelta)) == "hello"
    assert [event.text for event in live if isinstance(event, ThinkingDelta)] == ["first", "second"]
    starts = [(event.index, event.name, event.tool_call_id) for event in live if isinstance(event, ToolUseStart)]
    assert starts == [(0, "add", "call_1"), (1, "sql", "call_7")]
    assert [event.received_chars for event in live if isinstance(event, ToolUseInputDelta)] == [
        len(ITEMS["call"]["arguments"]),
        8,
    ]
    assert [event.call.name for event in live if isinstance(event, ToolUseEnd)] == ["add", "sql"]
    assert live[-1] == MessageComplete(response=response)


@pytest.mark.spec("RSP-15")
def test_text_that_comes_only_at_the_end_is_heard_then() -> None:
    terminal = events({"type": "response.completed", "response": answer_body(said("late"))})

    assert [event.text for event in heard(terminal) if isinstance(event, TextDelta)] == ["late"]


@pytest.mark.spec("RSP-15")
def test_a_partial_answer_streams_without_an_end() -> None:
    response = ADAPTER.from_wire_response(ADAPTER.fold_events(streamed("a", "b")))

    again = ADAPTER.to_wire_events(response)

    assert {event["event"] for event in again}.isdisjoint({"response.completed", "error"})
    assert unmarked(ADAPTER.fold_events(again)) == ADAPTER.to_wire_response(response)


def test_the_adapter_is_found_by_its_name() -> None:
    assert get(FORMAT).name == FORMAT
    assert get(FORMAT).capabilities("gpt-unheard-of").supports_tools is False


def test_changing_a_leaf_leaves_the_shared_bodies_alone() -> None:
    """The bodies of this file are shared by its tests, so no adapter may change what it is given."""
    body = request_body(*ITEMS.values(), tools=TOOLS)
    before = changed(body, (), lambda whole: str(whole))

    ADAPTER.to_wire(ADAPTER.from_wire_request(body))

    assert str(body) == before
