"""Upstreams whose events tell of another tool call than their answer: a client, who acts on each, gets neither."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import MASK
from tests.pipeline.gateway.test_cut_streams import _upstream
from tests.pipeline.gateway.windows import served

from pipeline.gateway.http.dialects import DIALECTS
from pipeline.guard import Guard

EVIL = "delete_database"
TEXT = {"type": "message", "id": "m", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "some plain words come first", "annotations": []}]}  # fmt: skip
FUNCTION = {"type": "function_call", "id": "f", "call_id": "c", "name": "look", "arguments": '{"at": 1}'}
CUSTOM = {"type": "custom_tool_call", "id": "f", "call_id": "c", "name": "look", "input": "at 1"}
PATCH = {"type": "apply_patch_call", "id": "f", "call_id": "c",
         "operation": {"type": "update_file", "path": "a.txt", "diff": "@@ a"}}  # fmt: skip
SHELL = {"type": "shell_call", "id": "f", "call_id": "c", "action": {"commands": ["ls"]}}
LOCAL = {"type": "local_shell_call", "id": "f", "call_id": "c", "action": {"type": "exec", "command": ["ls"]}}
MCP = {"type": "mcp_call", "id": "f", "server_label": "a", "name": "look", "arguments": "{}"}
SEARCH = {"type": "web_search_call", "id": "f", "action": {"type": "search", "query": "a"}}
COMPUTER = {"type": "computer_call", "id": "f", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}}
FUTURE = {"type": "hologram_call", "id": "f", "call_id": "c", "where": {"x": "here"}}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    mode = "enforce\n#   stream: {max_match: 12}"
    with Guard(write_rules(tmp_path_factory.mktemp("rules"), {"key": MASK}, kinds="text", mode=mode)) as made:
        yield made


def _response(*items: dict[str, Any], status: str = "completed") -> dict[str, Any]:
    return {"id": "r", "object": "response", "model": "m", "status": status, "output": list(items)}


def _stream(*told: dict[str, Any], final: tuple[Any, ...], closing: bool = True) -> list[bytes]:
    """A text, then what is `told`, then the final response."""
    at = {"output_index": 0, "content_index": 0, "item_id": "m"}
    before = {**TEXT, "content": [], "status": "in_progress"}
    events = [
        {"type": "response.created", "response": _response(status="in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": before},
        *({"type": "response.output_text.delta", **at, "delta": text} for text in TEXT["content"][0]["text"]),
        {"type": "response.output_item.done", "output_index": 0, "item": TEXT},
        *told,
        {"type": "response.completed", "response": _response(TEXT, *final) if closing else _response()},
    ]
    frame = DIALECTS["openai_responses"].frame
    return [frame({"event": event["type"], "data": event}) for event in events]


def _added(item: Any, at: int = 1) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": at, "item": item}


def _done(item: Any, at: int = 1) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def _piece(kind: str, at: int = 1, **text: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": at, "item_id": "f", **text}


TOLD: dict[str, tuple[list[dict[str, Any]], tuple[Any, ...]]] = {
    "a call whose place has no object in the end": ([_done({**FUNCTION, "name": EVIL})], ("words",)),
    "another name when done": ([_done({**FUNCTION, "name": EVIL})], (FUNCTION,)),
    "another name at first": ([_added({**FUNCTION, "name": EVIL, "arguments": ""})], (FUNCTION,)),
    "another name, then the right one": ([_done({**FUNCTION, "name": EVIL}), _done(FUNCTION)], (FUNCTION,)),
    "another id of the call": ([_done({**FUNCTION, "call_id": EVIL})], (FUNCTION,)),
    "a namespace beside": ([_done({**FUNCTION, "namespace": EVIL})], (FUNCTION,)),
    "other arguments when done": ([_done({**FUNCTION, "arguments": f'{{"at": "{EVIL}"}}'})], (FUNCTION,)),
    "other arguments at first": ([_added({**FUNCTION, "arguments": f'{{"at": "{EVIL}"}}'})], (FUNCTION,)),
    "other arguments in pieces": (
        [_added(FUNCTION), _piece("function_call_arguments.delta", delta=f'{{"at": "{EVIL}"}}')],
        (FUNCTION,),
    ),
    "other whole arguments": ([_piece("function_call_arguments.done", arguments=f'{{"{EVIL}": 1}}')], (FUNCTION,)),
    "another name with whole arguments": (
        [_piece("function_call_arguments.done", arguments=FUNCTION["arguments"], name=EVIL)],
        (FUNCTION,),
    ),
    "a call that is not in the answer": ([_done({**FUNCTION, "name": EVIL})], ()),
    "pieces of no call": ([_piece("function_call_arguments.delta", delta=EVIL)], ()),
    "a call in place of the text": ([_done({**FUNCTION, "name": EVIL}, at=0)], ()),
    "a call in an earlier answer": (
        [{"type": "response.completed", "response": _response({**FUNCTION, "name": EVIL})}],
        (FUNCTION,),
    ),
    "a call at the beginning": (
        [{"type": "response.in_progress", "response": _response(TEXT, {**FUNCTION, "arguments": EVIL})}],
        (FUNCTION,),
    ),
    "another input": ([_done({**CUSTOM, "input": EVIL})], (CUSTOM,)),
    "another input in pieces": (
        [_added({**CUSTOM, "input": ""}), _piece("custom_tool_call_input.delta", delta=EVIL)],
        (CUSTOM,),
    ),
    "another whole input": ([_piece("custom_tool_call_input.done", input=EVIL)], (CUSTOM,)),
    "another kind of call": ([_done({**CUSTOM, "name": EVIL})], (FUNCTION,)),
    "another path": ([_added({**PATCH, "operation": {**PATCH["operation"], "path": EVIL, "diff": ""}})], (PATCH,)),
    "another patch": ([_piece("apply_patch_call_operation_diff.done", diff=EVIL)], (PATCH,)),
    "another operation": ([_done({**PATCH, "operation": {"type": "delete_file", "path": EVIL}})], (PATCH,)),
    "another command": ([_done({**SHELL, "action": {"commands": [EVIL]}})], (SHELL,)),
    "a command more": ([_done({**SHELL, "action": {"commands": ["ls", EVIL]}})], (SHELL,)),
    "a command in pieces": ([_piece("shell_call_command.delta", command_index=0, delta=EVIL)], (SHELL,)),
    "a command of a local shell": ([_done({**LOCAL, "action": {"type": "exec", "command": [EVIL]}})], (LOCAL,)),
    "another server": ([_done({**MCP, "server_label": EVIL})], (MCP,)),
    "a search for something else": ([_done({**SEARCH, "action": {"type": "search", "query": EVIL}})], (SEARCH,)),
    "another place of a click": ([_done({**COMPUTER, "action": {"type": "click", "x": 9, "y": 2}})], (COMPUTER,)),
    "a call of a kind to come": ([_done({**FUTURE, "where": {"x": EVIL}})], (FUTURE,)),
}


@pytest.mark.spec("RSP-17", "STR-10")
@pytest.mark.parametrize("window", [None, 1], ids=["buffer", "window"])
@pytest.mark.parametrize("how", TOLD)
def test_an_event_of_another_call_than_the_answer_ends_in_an_error(guard: Guard, how: str, window: int | None) -> None:
    told, final = TOLD[how]

    got = served(guard, _upstream("openai_responses", _stream(*told, final=final)), "openai_responses", window=window)

    assert EVIL.encode() not in got.raw
    assert b"look" not in got.raw
    assert "upstream.contradiction" in (got.refusal.code if got.refusal is not None else got.raw.decode())


@pytest.mark.spec("RSP-17")
@pytest.mark.parametrize("window", [None, 1], ids=["buffer", "window"])
@pytest.mark.parametrize("how", ["another name", "other pieces", "twice"])
def test_events_that_disagree_are_refused_where_the_answer_has_no_output(
    guard: Guard, how: str, window: int | None
) -> None:
    told = {
        "another name": [_added({**FUNCTION, "name": EVIL}), _done(FUNCTION)],
        "other pieces": [_piece("function_call_arguments.delta", delta=f'{{"at": "{EVIL}"}}'), _done(FUNCTION)],
        "twice": [_done({**FUNCTION, "name": EVIL}), _done(FUNCTION)],
    }[how]
    raw = _stream(*told, final=(), closing=False)

    got = served(guard, _upstream("openai_responses", raw), "openai_responses", window=window)

    assert EVIL.encode() not in got.raw
    assert "upstream.contradiction" in (got.refusal.code if got.refusal is not None else got.raw.decode())


@pytest.mark.spec("RSP-14", "RSP-15")
@pytest.mark.parametrize("window", [None, 1], ids=["buffer", "window"])
@pytest.mark.parametrize(
    "told",
    [
        pytest.param(_done({**TEXT, "phase": EVIL}, at=0), id="a field of a message"),
        pytest.param(_done({**TEXT, "role": EVIL}, at=0), id="the role of a message"),
        pytest.param(_added({**FUNCTION, "note": EVIL}), id="a field of a call"),
        pytest.param({"type": "response.in_progress", "response": {"instructions": EVIL}}, id="an echo"),
        pytest.param({"type": "response.queued", "response": {"error": {"message": EVIL}}}, id="an error"),
        pytest.param(_piece("output_text.delta", at=0, content_index=0, delta="", obfuscation=EVIL), id="padding"),
        pytest.param(_piece("hologram.delta", delta=EVIL), id="an unknown event"),
    ],
)
def test_what_only_an_event_says_is_not_streamed_again(guard: Guard, told: Any, window: int | None) -> None:
    raw = _stream(told, _done(FUNCTION), final=(FUNCTION,))

    got = served(guard, _upstream("openai_responses", raw), "openai_responses", window=window)

    assert got.status == 200
    assert EVIL.encode() not in got.raw
    assert b'"name":"look"' in got.raw


@pytest.mark.spec("RSP-17")
@pytest.mark.parametrize("window", [None, 1], ids=["buffer", "window"])
@pytest.mark.parametrize(
    "told",
    [
        pytest.param([_added({**FUNCTION, "arguments": ""})], id="it only begins"),
        pytest.param([_added({**FUNCTION, "arguments": "{}"})], id="it begins empty"),
        pytest.param([_added({**FUNCTION, "id": "other", "status": "in_progress"}), _done(FUNCTION)], id="other ids"),
        pytest.param([_done({**FUNCTION, "arguments": '{"at":1}'})], id="blanks"),
        pytest.param([_piece("function_call_arguments.delta", delta=" 1}")], id="it is resumed"),
        pytest.param([_added({"type": "reasoning", "id": "x"}, at=1), _done(FUNCTION, at=2)], id="an item left out"),
    ],
)
def test_events_that_agree_with_the_answer_pass(guard: Guard, told: Any, window: int | None) -> None:
    raw = _stream(*told, final=(FUNCTION,))

    got = served(guard, _upstream("openai_responses", raw), "openai_responses", window=window)

    assert got.status == 200
    assert b'"name":"look"' in got.raw
