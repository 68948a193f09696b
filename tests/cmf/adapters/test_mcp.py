"""MCP over recorded traffic, in batches, streams and HTTP. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import MessageComplete, StreamError
from cmf.enums import MessageStatus, Role
from cmf.errors import CmfError, ShapeError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.message.message import Message, TextPart, ToolResultPart
from cmf.message.request import Choice
from cmf.views.iterate import iter_views
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.mcp_bodies import MCP, answer, call, kinds


class TestWire(Proof):
    format_name = "mcp"


BATCH = [
    call("tools/call", {"name": "look", "arguments": {"a": 1}}, id=1),
    call("tools/call", {"name": "listen"}, id="1"),
    call("notifications/progress", {"progress": 1, "message": "half"}),
    call("sampling/createMessage", {"messages": [{"role": "user", "content": []}], "maxTokens": 3}, id=2),
    call("no/such/method", {"x": "y"}, id=3),
]


@pytest.mark.spec("MCP-9")
def test_a_batch_shows_every_entry_and_goes_back() -> None:
    request = MCP.from_wire_request(BATCH)

    assert kinds(request) == ["request", "tool_call", "tool_call", "text", "opaque", "opaque"]
    assert same_spelling(MCP.to_wire(request), BATCH)
    assert MCP.to_wire(MCP.from_wire_request([])) == []


@pytest.mark.spec("MCP-9")
def test_the_answers_of_a_batch_find_their_requests_by_id() -> None:
    body = [answer({"content": []}, id="1"), answer({"content": []}, id=1), answer({"content": []}, id=9)]

    response = MCP.from_wire_response(body, MCP.from_wire_request(BATCH))

    parts = [choice.message.content[0] for choice in response.choices]
    assert [part.tool_name for part in parts if isinstance(part, ToolResultPart)] == ["listen", "look", None]
    assert same_spelling(MCP.to_wire_response(response), body)


@pytest.mark.spec("MCP-9")
def test_a_batch_of_answers_can_lose_a_tool_but_not_gain_a_message() -> None:
    body = [answer({"tools": [{"name": "a", "inputSchema": {}}, {"name": "b", "inputSchema": {}}]}), answer({}, id=8)]
    response = MCP.from_wire_response(body)

    stripped = response.model_copy(update={"tools": response.tools[1:]})
    grown = response.model_copy(
        update={"choices": (Choice(message=Message(role=Role.TOOL, content=(TextPart(text="x"),))),)}
    )

    assert MCP.to_wire_response(stripped)[0]["result"]["tools"] == [{"name": "b", "inputSchema": {}}]
    with pytest.raises(UnsupportedError):
        MCP.to_wire_response(grown)


@pytest.mark.spec("MCP-9")
def test_the_mark_of_an_entry_cannot_come_from_the_wire() -> None:
    with pytest.raises(ShapeError):
        MCP.from_wire_response(answer({"tools": [{"name": "a", "cmf_entry": 1}]}))


PROGRESS: dict[str, Any] = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "at it"},
}
ANSWER = answer({"content": [{"type": "text", "text": "done"}]})


def events(*bodies: Any) -> list[WireEvent]:
    return [{"event": "message", "data": body} for body in bodies]


@pytest.mark.spec("MCP-10")
def test_a_stream_folds_to_its_answer_or_to_all_its_messages() -> None:
    assert MCP.fold_events([{"comment": "ping"}, {"id": "1", "data": ""}, *events(ANSWER)]) == ANSWER
    assert MCP.fold_events(events(PROGRESS, ANSWER)) == [PROGRESS, ANSWER]
    response = MCP.from_wire_response([PROGRESS, ANSWER])
    assert kinds(response) == ["response", "text", "tool_result", "text"]
    assert MCP.to_wire_events(response) == events(PROGRESS, ANSWER)


@pytest.mark.spec("MCP-10")
def test_a_stream_without_its_answer_is_partial_and_ends_in_an_error() -> None:
    for cut in ([], events(PROGRESS)):
        response = MCP.from_wire_response(MCP.fold_events(cut))

        assert [choice.message.status for choice in response.choices] == [MessageStatus.PARTIAL]
        assert MCP.to_wire_events(response) == cut
        assert isinstance(_last(cut), StreamError)


@pytest.mark.spec("MCP-10")
def test_an_answer_without_content_is_whole_too() -> None:
    assert isinstance(_last(events(answer({"tools": []}))), MessageComplete)
    assert isinstance(_last(events(answer({}))), MessageComplete)


@pytest.mark.spec("MCP-10")
def test_an_answer_of_text_or_calls_is_reported_with_its_end() -> None:
    content = [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c", "name": "t", "input": {}}]
    arriving = events(answer({"role": "assistant", "content": content, "model": "m"}))

    heard = _heard(arriving)

    assert [event.type for event in heard] == ["text_delta", "tool_use_end", "message_complete"]
    assert isinstance(_last(events({"id": 1, "error": {"code": 1, "message": "no"}})), StreamError)
    assert MCP.fold_events([{"data": [PROGRESS, ANSWER]}]) == [PROGRESS, ANSWER]


@pytest.mark.spec("MCP-10")
def test_an_event_that_is_no_message_is_refused() -> None:
    for wrong in ("hello", 5, [5]):
        with pytest.raises(CmfError):
            MCP.from_wire_response(MCP.fold_events(events(wrong, ANSWER)))
        assert isinstance(_last(events(wrong, ANSWER)), StreamError)


def _last(arriving: list[WireEvent]) -> Any:
    return _heard(arriving)[-1]


def _heard(arriving: list[WireEvent]) -> list[Any]:
    async def arrive() -> AsyncIterator[WireEvent]:
        for event in arriving:
            yield event

    async def collect() -> list[Any]:
        return [event async for event in MCP.stream_response(arrive())]

    return asyncio.run(collect())


META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}


@pytest.mark.spec("MCP-11")
def test_routing_headers_repeat_the_body() -> None:
    request = MCP.from_wire_request(call("tools/call", {"name": "grüße", "_meta": META}))

    http = MCP.to_http(request)

    assert (http.method, http.path) == ("POST", "/mcp")
    assert http.headers["Mcp-Method"] == "tools/call"
    assert http.headers["Mcp-Name"] == "=?base64?Z3LDvMOfZQ==?="
    assert http.headers["MCP-Protocol-Version"] == "2026-07-28"
    assert "text/event-stream" in http.headers["Accept"]


@pytest.mark.spec("MCP-11")
@pytest.mark.parametrize("name", ["a\r\nX-Evil: 1", " a", "=?base64?YQ==?=", "\x7f"])
def test_a_name_cannot_break_out_of_its_header(name: str) -> None:
    http = MCP.to_http(MCP.from_wire_request(call("tools/call", {"name": name, "_meta": META})))

    assert re.fullmatch(r"=\?base64\?[A-Za-z0-9+/=]+\?=", http.headers["Mcp-Name"])


@pytest.mark.spec("MCP-11")
def test_session_and_version_of_the_client_are_shown_and_sent_on() -> None:
    request = MCP.from_wire_request(
        call("ping"), headers={"MCP-Session-Id": "s1", "mcp-protocol-version": "2025-06-18", "Authorization": "x"}
    )

    headers = MCP.to_http(request).headers

    assert (headers["Mcp-Session-Id"], headers["MCP-Protocol-Version"]) == ("s1", "2025-06-18")
    assert "Authorization" not in headers
    assert "Mcp-Method" not in headers
    assert "s1" in str([view.to_opa_input() for view in iter_views(request)])
    assert MCP.to_wire(request) == call("ping")
