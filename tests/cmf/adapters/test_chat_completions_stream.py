"""Chunks of chat completions add up to the answer that they streamed, whole only when they came to their end."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.enums import MessageStatus
from cmf.json.frozen import same_spelling
from cmf.message.message import ToolCallPart
from cmf.message.request import Response
from tests.cmf.adapters.wiredata import records

CHAT = get("openai_chat")


def _chunk(delta: dict[str, Any], index: int = 0, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish}
    return {"data": {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], **more}}


DONE = {"data": "[DONE]"}


def _heard(*events: dict[str, Any]) -> Response:
    return CHAT.from_wire_response(CHAT.fold_events(list(events)))  # type: ignore[arg-type]


@pytest.mark.spec("OAC-20")
def test_a_finish_reason_without_content_does_not_complete_a_stream() -> None:
    chunks = [_chunk({"role": "assistant", "content": "hi"}), _chunk({}, finish="stop")]

    assert _heard(*chunks).message.status is MessageStatus.PARTIAL
    assert _heard(*chunks, DONE).message.status is MessageStatus.COMPLETE


@pytest.mark.spec("OAC-20")
def test_an_empty_stream_is_a_partial_answer() -> None:
    assert _heard().message.status is MessageStatus.PARTIAL
    assert _heard({"comment": "OPENROUTER PROCESSING"}).message.content == ()


def _call_chunk(index: int | None, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    call: dict[str, Any] = {"function": {"arguments": arguments}}
    for key, item in (("index", index), ("id", call_id)):
        if item is not None:
            call[key] = item
    if name is not None:
        call["function"]["name"] = name
    return _chunk({"tool_calls": [call]})


@pytest.mark.spec("OAC-21")
@pytest.mark.parametrize(
    "chunks",
    [
        [(0, "a", "f", ""), (1, "b", "g", ""), (0, None, None, '{"x"'), (1, None, None, "{}"), (0, None, None, ":1}")],
        [(0, "a", "f", '{"x"'), (0, "a", "f", ":1}"), (1, "b", "g", "{}")],
        [(0, "a", "f", '{"x":1}'), (0, "b", "g", "{}")],
        [(0, "a", "f", '{"x":1}'), (1, "b", None, ""), (1, "", "g", "{}")],
    ],
)
def test_calls_are_gathered_however_a_service_numbers_them(chunks: list[tuple[Any, Any, Any, Any]]) -> None:
    response = _heard(*(_call_chunk(*chunk) for chunk in chunks), DONE)

    calls = [part for part in response.message.content if isinstance(part, ToolCallPart)]

    assert [(call.tool_call_id, call.name, call.arguments) for call in calls] == [("a", "f", {"x": 1}), ("b", "g", {})]


@pytest.mark.spec("OAC-21")
def test_whole_calls_without_an_index_are_separated_by_position() -> None:
    calls = [{"id": name, "type": "function", "function": {"name": name, "arguments": "{}"}} for name in "ab"]

    response = _heard(_chunk({"role": "assistant", "tool_calls": calls}), DONE)

    assert [part.name for part in response.message.content if isinstance(part, ToolCallPart)] == ["a", "b"]


@pytest.mark.spec("OAC-22", "ADP-5")
def test_what_a_later_chunk_contradicts_is_shown_and_not_emitted() -> None:
    response = _heard(
        _chunk({"role": "assistant", "content": "a"}, model="hidden-text", obfuscation="pad-1"),
        {"data": "stray"},
        _chunk({"content": "b"}, obfuscation="pad-2"),
        DONE,
    )

    shown = str(response.extra)

    assert all(text in shown for text in ("hidden-text", "pad-1", "pad-2", "stray"))
    for out in (CHAT.to_wire_events(response), CHAT.to_wire_response(response)):
        assert not any(text in str(out) for text in ("hidden-text", "pad-1", "pad-2", "stray"))


@pytest.mark.spec("OAC-22", "STR-10")
def test_padding_and_other_ids_are_shown_and_not_streamed_again() -> None:
    events: list[Any] = [
        _chunk({"role": "assistant", "content": "a"}, id="one", obfuscation="pad-1"),
        _chunk({"content": "b"}, id="two", obfuscation="pad-2", p="x"),
        _chunk({}, id="two"),
        DONE,
    ]
    body = CHAT.fold_events(events)

    again = CHAT.to_wire_events(_heard(*events))

    assert body["cmf_stream"] == {"id": ["one"], "obfuscation": "pad-1 pad-2", "p": "x"}
    assert CHAT.fold_events(again) == {key: item for key, item in body.items() if key != "cmf_stream"}


@pytest.mark.spec("OAC-22")
@pytest.mark.parametrize("aside", [7, {"obfuscation": "a", "id": ["one"]}, {"audio": ["many"] * 9}])
def test_what_has_no_place_in_chunks_is_not_streamed_again(aside: Any) -> None:
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}}]}

    plain, marked = (CHAT.from_wire_response(said) for said in (body, {**body, "cmf_stream": aside}))

    assert CHAT.to_wire_events(marked) == CHAT.to_wire_events(plain)


@pytest.mark.spec("OAC-15", "STR-2")
def test_choices_without_a_number_are_streamed_as_several() -> None:
    said = [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}} for text in "ab"]

    again = CHAT.fold_events(CHAT.to_wire_events(CHAT.from_wire_response({"id": "c", "choices": said})))

    assert again["choices"] == [{"index": at, **choice} for at, choice in enumerate(said)]


@pytest.mark.spec("OAC-23", "STR-2")
def test_an_error_in_the_middle_keeps_what_had_arrived() -> None:
    response = _heard(_chunk({"role": "assistant", "content": "half"}), {"data": {"error": {"message": "overloaded"}}})

    assert response.error is not None
    assert response.error.message == "overloaded"
    assert response.message.status is MessageStatus.PARTIAL
    assert CHAT.to_wire_events(response)[-1] == {"data": {"error": {"message": "overloaded"}}}


LATE: dict[str, dict[str, Any]] = {
    "a signature": {"delta": {"reasoning_details": [{"type": "reasoning.text", "signature": "sig", "index": 0}]}},
    "sealed reasoning": {"delta": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "AAAA", "id": "c1"}]}},
    "annotations": {"delta": {"annotations": [{"type": "url_citation", "url_citation": {"url": "https://h.example"}}]}},
    "a field of the message": {"delta": {"aside": "x"}},
    "a field of the answer": {"delta": {}, "citations": ["https://h.example"]},
}


@pytest.mark.spec("OAC-26")
@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("name", ["openai_chat", "openrouter"])
def test_what_arrives_behind_the_text_does_not_change_how_the_stream_began(name: str, late: str) -> None:
    thought = {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]}
    begun = [_chunk({"role": "assistant", **thought}, created=1), _chunk({"content": "It rains"})]
    ended = [_chunk(**LATE[late]), _chunk({}, finish="stop"), DONE]
    reader = get(name)

    part, whole = (
        CHAT.to_wire_events(reader.from_wire_response(reader.fold_events(chunks)))  # type: ignore[arg-type]
        for chunks in (begun, [*begun, *ended])
    )

    texts = part[: next(at for at, event in enumerate(part) if "It rains" in str(event)) + 1]
    assert whole[: len(texts)] == texts
    assert CHAT.fold_events(whole) == CHAT.fold_events([*begun, *ended])  # type: ignore[list-item]


@pytest.mark.spec("OAC-24")
def test_a_chunk_cannot_mark_a_cut_stream_whole() -> None:
    response = _heard(_chunk({"content": "a"}, cmf_partial=False, cmf_stream={"x": "smuggled"}))

    assert response.message.status is MessageStatus.PARTIAL
    assert "smuggled" in str(response.extra)
    assert "smuggled" not in str(CHAT.to_wire_response(response))


@pytest.mark.spec("ADP-3")
def test_every_recorded_whole_reply_streams_and_folds_to_itself() -> None:
    for record in records("openai_chat"):
        if record.response is None or "delta" in str(record.response.get("choices")):
            continue  # one service puts an empty delta into whole bodies as well: chunks have their own
        response = CHAT.from_wire_response(record.response)

        again = CHAT.fold_events(CHAT.to_wire_events(response))

        again.pop("cmf_partial", None)
        assert same_spelling(_unnumbered(again), _unnumbered(CHAT.to_wire_response(response))), record.source


def _unnumbered(body: Any) -> Any:
    """Without the numbers of calls, which chunks need and whole bodies may leave out."""
    for choice in body.get("choices", ()):
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            call.pop("index", None)
    return body


def test_a_hundred_thousand_chunks_fold_in_linear_time() -> None:
    """A quadratic fold of this stream takes minutes."""
    chunk = _chunk({"content": "word ", "tool_calls": [{"index": 0, "function": {"arguments": "x"}}]})

    body = CHAT.fold_events([chunk] * 100_000)  # type: ignore[list-item]

    assert len(body["choices"][0]["message"]["content"]) == 500_000
