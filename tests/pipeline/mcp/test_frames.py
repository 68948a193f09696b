"""One message, read strictly."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.mcp.frames import (
    INVALID_REQUEST,
    MAX_BATCH,
    PARSE_ERROR,
    Batch,
    Frame,
    FrameError,
    Kind,
    error_body,
    frame_of,
    read,
)
from pipeline.mcp.stdio import Lines

CALL: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "read"}}


def refused(raw: bytes, **more: Any) -> FrameError:
    with pytest.raises(FrameError) as caught:
        read(raw, **more)
    return caught.value


@pytest.mark.spec("MCPX-1")
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"\xff{}",
        b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 2000 + b"]" * 2000 + b"}}",
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
    ],
)
def test_what_is_no_strict_json_is_not_read(raw: bytes) -> None:
    error = refused(raw)

    assert (error.number, error.code, error.id) == (PARSE_ERROR, "mcp.unreadable", None)
    body = error_body(error.id, error)
    assert (body["id"], body["error"]["code"], body["error"]["data"]) == (None, PARSE_ERROR, {"code": "mcp.unreadable"})


@pytest.mark.spec("MCPX-1")
def test_a_message_beyond_the_bound_is_not_read() -> None:
    assert refused(json.dumps(CALL).encode(), max_bytes=20).code == "mcp.unreadable"


@pytest.mark.spec("MCPX-1")
@pytest.mark.parametrize(
    "body",
    [
        1,
        "ping",
        None,
        {},
        CALL | {"jsonrpc": "1.0"},
        CALL | {"jsonrpc": 2.0},
        {key: CALL[key] for key in ("id", "method")},
        CALL | {"id": None},
        CALL | {"id": True},
        CALL | {"id": 1.0},
        CALL | {"id": 2**53},
        CALL | {"id": "x" * 257},
        CALL | {"id": [1]},
        CALL | {"method": 1},
        CALL | {"method": "m" * 257},
        CALL | {"Method": "tools/list"},
        CALL | {"result": {}},
        CALL | {"more": 1},
        CALL | {"params": []},
        CALL | {"params": None},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "result": []},
        {"jsonrpc": "2.0", "id": None, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "params": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": "1", "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": True, "message": ""}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": None}},
        [],
        [CALL] * (MAX_BATCH + 1),
        [CALL, 1],
        [[CALL]],
    ],
)
def test_what_is_no_message_of_json_rpc_is_not_read(body: Any) -> None:
    with pytest.raises(FrameError) as caught:
        frame_of(body)

    assert (caught.value.number, caught.value.code) == (INVALID_REQUEST, "mcp.invalid")


@pytest.mark.spec("MCPX-1")
@pytest.mark.parametrize(
    ("body", "id"),
    [(CALL | {"params": []}, 1), (CALL | {"more": 1}, None), ({"jsonrpc": "2.0", "id": 1, "result": []}, None)],
)
def test_an_error_has_the_id_of_a_call_of_which_only_the_params_are_wrong(body: Any, id: int | None) -> None:
    with pytest.raises(FrameError) as caught:
        frame_of(body)

    assert caught.value.id == id


@pytest.mark.spec("MCPX-1")
@pytest.mark.parametrize("id", ["x" * 256, "", 2**53 - 1, 1 - 2**53])
def test_ids_within_the_bounds_are_read(id: str | int) -> None:
    assert frame_of(CALL | {"id": id}) == Frame(Kind.CALL, CALL | {"id": id}, id, "tools/call")


@pytest.mark.spec("MCPX-3")
@pytest.mark.parametrize(
    ("params", "shown"),
    [
        ({"Name": "rm"}, "The key `Name`"),
        ({"name": "ls", "Name": "rm"}, "The key `Name`"),
        ({"messages": [{"content": {"tooluseid": "1"}}]}, "The key `tooluseid`"),
        ({"argument\u017f": {"path": "/"}}, "The key `argument\u017f`"),  # a long s, which folds to s
        ({"name": "ls", "arguments": {"path": "a", "Path": "b"}}, "The key `Path`"),
        ({"messages": [{"Role": "system"}]}, "The key `Role`"),
        ({"x" * 70: 1, "X" * 70: 1}, "A key"),
        ({"a\x1b": 1, "A\x1b": 1}, "A key"),
        ({"other": 1, "OTHER": 1}, "The key `OTHER`"),
    ],
)
def test_a_key_that_another_reader_takes_for_another_is_refused(params: dict[str, Any], shown: str) -> None:
    with pytest.raises(FrameError) as caught:
        frame_of(CALL | {"params": params})

    assert caught.value.code == "mcp.ambiguous-key"
    assert caught.value.id == 1
    assert caught.value.message.startswith(f"{shown} is")


@pytest.mark.spec("MCPX-3")
@pytest.mark.parametrize(
    "said",
    [
        {"params": {"name": "a", "arguments": {"Name": "x", "URI": 1}, "_meta": {"Name": 1, "name": 2}}},
        {"params": {"name": "a", "arguments": {"list": [{"Text": 1}]}}},
        {"params": {"level": "info", "data": {"Name": 1, "name": 2}, "metadata": {"URI": 1, "uri": 2}}},
        {"params": {"capabilities": {"Tools": 1, "tools": 2}}},
    ],
)
def test_names_of_a_tools_own_are_its_own(said: dict[str, Any]) -> None:
    assert isinstance(frame_of(CALL | said), Frame)


@pytest.mark.spec("MCPX-3")
def test_an_answer_with_an_ambiguous_key_is_refused_without_an_id_of_its_own() -> None:
    with pytest.raises(FrameError) as caught:
        frame_of({"jsonrpc": "2.0", "id": 1, "result": {"Content": []}})

    assert (caught.value.code, caught.value.id) == ("mcp.ambiguous-key", None)
    plain = {"structuredContent": {"a": 1, "A": 2}, "tools": [{"name": "t", "inputSchema": {"Type": "object"}}]}
    assert isinstance(frame_of({"jsonrpc": "2.0", "id": 1, "result": plain}), Frame)


@pytest.mark.spec("MCPX-1")
def test_each_kind_of_message_is_known() -> None:
    call = frame_of(CALL)
    notice = frame_of({"jsonrpc": "2.0", "method": "notifications/initialized"})
    answer = frame_of({"jsonrpc": "2.0", "id": "a", "result": {}})
    error = frame_of({"jsonrpc": "2.0", "id": 0, "error": {"code": -1, "message": "m", "data": {"Data": 1}}})
    both = frame_of([CALL, CALL])

    assert read(json.dumps(CALL).encode()) == call
    assert isinstance(call, Frame)
    assert (call.kind, call.id, call.method, call.params) == (Kind.CALL, 1, "tools/call", {"name": "read"})
    assert isinstance(notice, Frame)
    assert (notice.kind, notice.id, notice.params) == (Kind.NOTIFICATION, None, {})
    assert isinstance(answer, Frame)
    assert (answer.kind, answer.id) == (Kind.ANSWER, "a")
    assert isinstance(error, Frame)
    assert error.id == 0
    assert isinstance(both, Batch)
    assert len(both.frames) == 2


@pytest.mark.spec("MCPX-2")
@given(
    lines=st.lists(st.binary(min_size=1, max_size=20).filter(lambda one: b"\n" not in one and one.strip()), max_size=6),
    cuts=st.lists(st.integers(0, 120), max_size=6),
)
def test_lines_are_the_same_in_whatever_pieces_they_come(lines: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(line + b"\n" for line in lines)
    places = sorted({0, len(raw), *(cut for cut in cuts if cut < len(raw))})
    reader = Lines()

    found = [line for a, b in itertools.pairwise(places) for line in reader.feed(raw[a:b])]

    assert found == lines
    assert reader.rest() == b""


@pytest.mark.spec("MCPX-2")
@pytest.mark.parametrize(
    ("before", "chunk"),
    [(b"", b"x" * 11), (b"x" * 6, b"x" * 6), (b"", b"x" * 11 + b"\n"), (b"", b"a\n" + b"x" * 11 + b"\n")],
)
def test_a_line_beyond_the_bound_ends_the_reading(before: bytes, chunk: bytes) -> None:
    reader = Lines(10)
    reader.feed(before)

    with pytest.raises(FrameError) as caught:
        reader.feed(chunk)

    assert caught.value.code == "mcp.too-large"


@pytest.mark.spec("MCPX-2")
def test_blank_lines_say_nothing_and_what_has_no_end_is_the_rest() -> None:
    reader = Lines()

    assert reader.feed(b"\n  \r\na\n\nb") == [b"a"]
    assert reader.rest() == b"b"
