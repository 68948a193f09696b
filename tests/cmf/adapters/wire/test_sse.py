"""Bytes become the events that they spell, however they are split, and no text of an event becomes another event."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.sse import NdjsonReader, SseReader, ndjson_bytes, sse_bytes
from cmf.errors import DecodeError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def _read(*pieces: bytes, **limits: int) -> list[WireEvent]:
    reader = SseReader(**limits)
    return [event for piece in pieces for event in reader.feed(piece)] + reader.close()


@pytest.mark.spec("STR-6")
def test_an_event_beyond_the_limit_is_refused_before_it_is_held() -> None:
    with pytest.raises(DecodeError, match="event has more than 100 bytes") as caught:
        _read(b"data: " + b"x" * 60, b"x" * 60, max_event_bytes=100)
    assert caught.value.code == "stream.too-large"


@pytest.mark.spec("STR-6")
def test_many_short_lines_of_one_event_count_together() -> None:
    with pytest.raises(DecodeError, match="event has more than 100 bytes"):
        _read(b"data: 1\n" * 20, max_event_bytes=100)


@pytest.mark.spec("STR-6")
def test_a_stream_beyond_the_limit_is_refused() -> None:
    with pytest.raises(DecodeError, match="stream has more than 100 bytes"):
        _read(*[b"data: 1\n\n"] * 20, max_stream_bytes=100)


@pytest.mark.spec("STR-7")
def test_a_line_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError) as caught:
        _read(b"data: \xff\xfe\n\n")
    assert caught.value.code == "json.not-utf8"


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a":1,"a":2}', "json.duplicate-key"),
        (b'{"a":NaN}', "json.not-finite"),
        (b'"\\ud800"', "json.lone-surrogate"),
    ],
)
def test_data_that_two_parsers_would_read_differently_is_refused(data: bytes, code: str) -> None:
    with pytest.raises(DecodeError) as caught:
        _read(b"data: " + data + b"\n\n")
    assert caught.value.code == code


@pytest.mark.spec("STR-8")
@pytest.mark.parametrize("name", ["event", "id"])
@pytest.mark.parametrize("value", ["a\nb", "a\rdata: x", "a\r\n\r\ndata: x", "a\0b"])
def test_a_field_that_would_break_its_line_is_refused(name: Any, value: str) -> None:
    with pytest.raises(DecodeError) as caught:
        sse_bytes({"data": "x", name: value})
    assert caught.value.code == "stream.bad-field"


@pytest.mark.spec("STR-8")
@given(st.text(st.sampled_from("a:\r\n \u2028\u0085") | st.characters(codec="utf-8")))
def test_text_stays_inside_its_event(text: str) -> None:
    events = _read(sse_bytes({"data": f"not json {text}"}), sse_bytes({"comment": text}))

    assert [tuple(event) for event in events] == [("data",)] + [("comment",)] * (len(events) - 1)
    assert events[0]["data"].split("\n") == f"not json {text}".replace("\r\n", "\n").replace("\r", "\n").split("\n")


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
@given(data=st.data(), values=st.lists(JSON.filter(lambda value: not isinstance(value, str)), min_size=1, max_size=4))
def test_any_split_of_the_bytes_gives_the_same_events(end: bytes, data: st.DataObject, values: list[Any]) -> None:
    events: list[WireEvent] = [{"data": value, "event": "delta", "id": "7"} for value in values]
    spelt = b"\xef\xbb\xbf" + b"".join(map(sse_bytes, events)).replace(b"\n", end)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(spelt)), max_size=8)))

    pieces = [spelt[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(spelt)], strict=True)]

    assert _read(*pieces) == events


@pytest.mark.spec("STR-7")
@pytest.mark.parametrize(
    ("raw", "events"),
    [
        (b": OPENROUTER PROCESSING\n\ndata: [DONE]\n\n", [{"comment": "OPENROUTER PROCESSING"}, {"data": "[DONE]"}]),
        (b'data:{"a":1}\n\n', [{"data": {"a": 1}}]),
        (b'data: {"a":\ndata: 1}\n\n', [{"data": {"a": 1}}]),
        (b"event: ping\n\ndata: 1\n\n", [{"data": 1}]),
        (b"retry: 10\nunknown: x\ndata\n\n", [{"data": ""}]),
        (b'data: {"a":1}', [{"data": {"a": 1}}]),
        (b'data: {"a":', [{"data": '{"a":'}]),
        (b"", []),
    ],
)
def test_the_shapes_that_servers_send_are_read(raw: bytes, events: list[WireEvent]) -> None:
    assert _read(raw) == events


@pytest.mark.spec("STR-9")
def test_a_line_that_is_no_json_is_refused() -> None:
    with pytest.raises(DecodeError):
        NdjsonReader().feed(b'{"a":1}\n{"a":\n')


@pytest.mark.spec("STR-9")
@given(values=st.lists(JSON, max_size=5), cut=st.integers(0, 40))
def test_json_lines_come_back_whatever_the_split(values: list[Any], cut: int) -> None:
    spelt = b"".join(ndjson_bytes({"data": value}) for value in values)
    reader = NdjsonReader()

    events = reader.feed(spelt[:cut]) + reader.feed(spelt[cut:].rstrip(b"\n")) + reader.close()

    assert [event["data"] for event in events] == values


@pytest.mark.spec("STR-9")
def test_an_event_without_data_is_no_json_line() -> None:
    assert ndjson_bytes({"comment": "processing"}) == b""
