"""The UI message stream: what it folds to, and what is sent on. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.stream import (
    MessageComplete,
    StreamError,
    TextDelta,
    ThinkingDelta,
    ToolUseInputDelta,
    ToolUseStart,
)
from cmf.enums import MessageStatus, StopReason
from cmf.errors import CmfError, ShapeError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace
from cmf.message.message import TextPart, ToolResultPart
from cmf.message.request import ErrorInfo, Response
from pipeline.decisions.errors import Denied
from pipeline.guard import Guard
from pipeline.run.emit import emit_events
from tests.cmf.adapters.aisdk_bodies import AISDK, STEP, read, shown, text, tool, ui
from tests.cmf.adapters.streams import unmarked
from tests.cmf.adapters.wiredata import WIRE, first_difference, records
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import MASK


def events(*chunks: Any) -> list[WireEvent]:
    return [{"data": chunk} for chunk in chunks]


START: dict[str, Any] = {"type": "start", "messageId": "m1"}
FINISH: dict[str, Any] = {"type": "finish", "finishReason": "stop"}


def folded(*chunks: Any) -> Response:
    response = AISDK.from_wire_response(AISDK.fold_events(events(START, *chunks, FINISH, "[DONE]")))
    again = unmarked(AISDK.fold_events(AISDK.to_wire_events(response)))
    assert same_spelling(again, AISDK.to_wire_response(response))
    return response


@pytest.mark.spec("AISDK-7")
def test_a_stream_folds_to_what_the_sdk_itself_made_of_it() -> None:
    records("aisdk")  # skips where the recordings are not at hand
    with gzip.open(WIRE / "aisdk.jsonl.gz", "rt", encoding="utf-8") as lines:
        pairs = [line for line in map(json.loads, lines) if line["events"] and line["response"]]

    differing = [
        line["source"]
        for line in pairs
        if first_difference(unmarked(AISDK.fold_events(line["events"])), line["response"])
    ]

    # In one recording the SDK's own reader gave up in the middle of the stream.
    assert len(pairs) > 50
    assert len(differing) <= 1, differing


@pytest.mark.spec("AISDK-7")
def test_each_chunk_finds_its_place() -> None:
    source = {"type": "source-url", "sourceId": "s", "url": "https://a/b"}
    response = folded(
        {"type": "start-step"},
        {"type": "reasoning-start", "id": "r"},
        {"type": "reasoning-delta", "id": "r", "delta": "hm"},
        {"type": "reasoning-end", "id": "r", "providerMetadata": {"a": {"signature": "s"}}},
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "hel"},
        source,
        {"type": "text-delta", "id": "t", "delta": "lo"},
        {"type": "text-end", "id": "t"},
        {"type": "tool-input-start", "toolCallId": "c1", "toolName": "look", "title": "T"},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": '{"a"'},
        {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": ": 1}"},
        {"type": "tool-input-available", "toolCallId": "c1", "toolName": "look", "input": {"a": 1}},
        {"type": "tool-approval-request", "toolCallId": "c1", "approvalId": "p"},
        {"type": "tool-approval-response", "approvalId": "p", "approved": True},
        {"type": "tool-output-available", "toolCallId": "c1", "output": 1, "preliminary": True},
        {"type": "tool-output-available", "toolCallId": "c1", "output": 1},
        {"type": "tool-input-available", "toolCallId": "c2", "toolName": "dig", "dynamic": True, "input": None},
        {"type": "tool-approval-request", "toolCallId": "c2", "approvalId": "q"},
        {"type": "tool-output-denied", "toolCallId": "c2"},
        {"type": "finish-step"},
        {"type": "start-step"},
        {"type": "data-a", "id": "d", "data": 1},
        {"type": "data-a", "id": "d", "data": 2},
        {"type": "message-metadata", "messageMetadata": {"a": {"b": 1}}},
        {"type": "finish-step"},
        {"type": "message-metadata", "messageMetadata": {"a": {"c": 2}, "d": 3}},
    )

    assert AISDK.to_wire_response(response) == {
        "id": "m1",
        "role": "assistant",
        "metadata": {"a": {"b": 1, "c": 2}, "d": 3},
        "parts": [
            STEP,
            {"type": "reasoning", "id": "r", "text": "hm", "state": "done",
             "providerMetadata": {"a": {"signature": "s"}}},
            text("hello", state="done"),
            source,
            tool("output-available", input={"a": 1}, output=1, title="T", approval={"id": "p", "approved": True}),
            {"type": "dynamic-tool", "toolName": "dig", "toolCallId": "c2", "state": "output-denied", "input": None,
             "approval": {"id": "q"}},
            STEP,
            {"type": "data-a", "id": "d", "data": 2},
        ],
    }  # fmt: skip
    assert response.choices[0].stop_reason is StopReason.END


HIDDEN = "Hidden 4711"


@pytest.mark.spec("AISDK-4", "AISDK-7")
def test_a_call_id_that_is_used_again_in_another_step_is_another_call() -> None:
    first = {"type": "tool-input-available", "toolCallId": "call_0", "toolName": "weigh", "input": {"crate": 1}}
    chunks: list[dict[str, Any]] = [
        {"type": "start-step"}, first, {"type": "tool-output-available", "toolCallId": "call_0", "output": "9 kg"},
        {"type": "finish-step"},
        {"type": "start-step"}, {**first, "type": "tool-input-start", "input": None},
        {"type": "tool-input-delta", "toolCallId": "call_0", "inputTextDelta": '{"crate": 2}'},
        {**first, "input": {"crate": 2}}, {"type": "tool-output-available", "toolCallId": "call_0", "output": "7 kg"},
        {"type": "finish-step"},
    ]  # fmt: skip

    response = folded(*chunks)
    heard = _heard(events(START, *chunks, FINISH))

    body = AISDK.to_wire_response(response)
    assert body["parts"] == [
        STEP, tool("output-available", name="weigh", call_id="call_0", input={"crate": 1}, output="9 kg"),
        STEP, tool("output-available", name="weigh", call_id="call_0", input={"crate": 2}, output="7 kg"),
    ]  # fmt: skip
    assert [part.content_type for part in response.message.content] == ["tool_call", "tool_result"] * 2
    assert [event.index for event in heard if isinstance(event, ToolUseStart)] == [0, 1]
    asked = read({**body, "id": "m2"})
    assert [message.role for message in asked.messages] == ["assistant", "tool"] * 2
    assert AISDK.to_wire(asked)["messages"] == [{**body, "id": "m2"}]


@pytest.mark.spec("AISDK-7")
def test_what_an_unanswered_call_got_is_kept_when_its_id_is_used_again() -> None:
    start = {"type": "tool-input-start", "toolCallId": "call_0", "toolName": "weigh"}
    cut = {"type": "tool-input-delta", "toolCallId": "call_0", "inputTextDelta": HIDDEN}
    again = {"type": "tool-input-error", "toolCallId": "call_0", "toolName": "weigh", "input": 5, "errorText": "no"}

    response = folded({"type": "start-step"}, start, cut, {"type": "start-step"}, {**again, "dynamic": True})

    first, second = [part for part in AISDK.to_wire_response(response)["parts"] if part != STEP]
    assert (first["type"], second["type"]) == ("tool-weigh", "dynamic-tool")
    assert HIDDEN in shown(response)
    assert HIDDEN not in json.dumps(AISDK.to_wire_events(response))


@pytest.mark.spec("AISDK-7")
@pytest.mark.parametrize(
    ("chunk", "held"),
    [
        ({"approvalDescriptor": {"kind": "payment"}, "reason": "over 50", "isAutomatic": True, "signature": "x"},
         {"descriptor": {"kind": "payment"}, "requestReason": "over 50", "isAutomatic": True, "signature": "x"}),
        ({"approvalDescriptor": "a", "descriptor": "b"}, {"approvalDescriptor": "a", "descriptor": "b"}),
    ],
)  # fmt: skip
def test_why_a_call_waits_is_held_under_the_names_of_the_sdk(chunk: dict[str, Any], held: dict[str, Any]) -> None:
    asked = {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", **chunk}
    given = {"type": "tool-approval-response", "approvalId": "p", "approved": False, "reason": "too dear"}

    response = folded(CALL, asked, given)

    (part,) = AISDK.to_wire_response(response)["parts"]
    assert part["approval"] == {"id": "p", **held, "approved": False, "reason": "too dear"}
    assert {"data": asked} in AISDK.to_wire_events(response)


@pytest.mark.spec("AISDK-7")
def test_what_the_user_adds_meanwhile_and_what_a_text_cites_are_parts_of_the_message() -> None:
    added = {"type": "steering-message", "id": "s1", "parts": [text("in euros, please")]}
    cited = [{"type": "url", "url": "https://rates.example/eur"}]

    response = folded(
        added,
        {"type": "text-start", "id": "t"},
        {"type": "text-delta", "id": "t", "delta": "80 €"},
        {"type": "text-end", "id": "t", "citations": cited},
    )

    assert AISDK.to_wire_response(response)["parts"] == [added, text("80 €", state="done", citations=cited)]


@pytest.mark.spec("AISDK-7")
@pytest.mark.parametrize(
    "chunks",
    [
        [{"type": "data-a", "data": HIDDEN, "transient": True}],
        [{"type": "hologram", "data": HIDDEN}],
        [{"type": HIDDEN}],
        [{"type": "text-delta", "id": "none", "delta": HIDDEN}],
        [{"type": "text-end", "id": HIDDEN}],
        [{"type": "text-start", "id": HIDDEN}],
        [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": HIDDEN, "delta": "a"}],
        [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "a", "odd": HIDDEN}],
        [{"type": "text-start", "id": "t", "providerMetadata": {"a": {"b": HIDDEN}}},
         {"type": "text-end", "id": "t", "providerMetadata": {"a": {}}}],
        [{"type": "finish-step", "odd": HIDDEN}],
        [{"type": "start", "messageId": HIDDEN}, {"type": "start", "messageId": "m2"}],
        [{"type": "message-metadata", "messageMetadata": HIDDEN}, {"type": "message-metadata", "messageMetadata": "b"}],
        [{"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
         {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": HIDDEN}],
        [{"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
         {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"a":1}', "odd": HIDDEN},
         {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {"a": 1}}],
        [{"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
         {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": HIDDEN},
         {"type": "tool-input-error", "toolCallId": "c", "toolName": "t", "errorText": "no"}],
        [{"type": "tool-input-delta", "toolCallId": "none", "inputTextDelta": HIDDEN}],
        [{"type": "tool-input-error", "toolCallId": "c", "toolName": "t", "input": HIDDEN, "errorText": "no"},
         {"type": "tool-output-available", "toolCallId": "c", "output": 1}],
        [{"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
         {"type": "tool-output-available", "toolCallId": "c", "output": HIDDEN, "preliminary": True},
         {"type": "tool-output-available", "toolCallId": "c", "output": 1}],
        [{"type": "tool-input-start", "toolCallId": 5, "toolName": HIDDEN}],
        [{"type": "tool-output-available", "toolCallId": 5, "output": HIDDEN}],
        [{"type": "tool-output-error", "toolCallId": 5, "errorText": HIDDEN}],
        [{"type": "tool-output-denied", "toolCallId": None, "odd": HIDDEN}],
        [{"type": "tool-approval-request", "toolCallId": "none", "approvalId": HIDDEN}],
        [{"type": "tool-approval-response", "approvalId": HIDDEN}],
        [{"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "odd": HIDDEN}],
        [{"type": "data-a", "id": "d", "data": HIDDEN}, {"type": "data-a", "id": "d", "data": 2}],
        [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": HIDDEN}, {"type": "reset-step"}],
        [{"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
         {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": HIDDEN}, {"type": "reset-step"}],
        [{"type": "error", "errorText": HIDDEN}],
        [{"type": "abort", "reason": HIDDEN}],
    ],
)  # fmt: skip
def test_what_a_client_would_forget_is_shown_all_the_same(chunks: list[dict[str, Any]]) -> None:
    response = folded(*chunks)

    assert HIDDEN in shown(response).replace("\\", "")
    body = AISDK.to_wire_response(response)
    sent = json.dumps(AISDK.to_wire_events(response))
    assert (HIDDEN in sent) == (HIDDEN in json.dumps([body, response.error and response.error.message]))


@pytest.mark.spec("AISDK-7")
@pytest.mark.parametrize("step", [[], [{"type": "start-step"}]])
def test_what_a_step_takes_back_is_not_sent_on(step: list[Any]) -> None:
    wrong = [{"type": "text-delta", "id": "t", "delta": "wro"}, {**CALL, "type": "tool-input-start"}]
    right = [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "right"}, CALL]

    response = folded(*step, *wrong, {"type": "reset-step"}, *right)

    sent = [event["data"] for event in AISDK.to_wire_events(response)]
    assert sent == [event["data"] for event in AISDK.to_wire_events(folded(*step, *right))]


@pytest.mark.spec("AISDK-7")
def test_an_event_that_is_no_chunk_is_refused() -> None:
    for wrong in ("hello", 5, [5]):
        with pytest.raises(CmfError):
            AISDK.fold_events(events(START, wrong))


@pytest.mark.spec("AISDK-8")
def test_the_end_decides_what_the_message_is() -> None:
    spoken = [{"type": "text-start", "id": "t"}, {"type": "text-delta", "id": "t", "delta": "a"}]
    cut = AISDK.from_wire_response(AISDK.fold_events(events(START, *spoken)))
    aborted = AISDK.from_wire_response(AISDK.fold_events(events(START, *spoken, {"type": "abort"}, "[DONE]")))
    failed = folded(*spoken, {"type": "error", "errorText": "no"})

    assert cut.message.status is MessageStatus.PARTIAL
    assert aborted.message.status is MessageStatus.CANCELLED
    assert failed.message.status is MessageStatus.ERROR
    assert failed.error == ErrorInfo(message="no", type="error")
    assert events("[DONE]")[0] not in AISDK.to_wire_events(cut)
    assert {"data": {"type": "abort"}} in AISDK.to_wire_events(aborted)
    assert {"data": {"type": "error", "errorText": "no"}} in AISDK.to_wire_events(failed)
    assert folded(*spoken).message.status is MessageStatus.COMPLETE


@pytest.mark.spec("AISDK-8")
def test_a_stream_that_is_nothing_but_an_error_is_an_error_body() -> None:
    body = AISDK.fold_events(events({"type": "error", "errorText": "no"}, "[DONE]"))

    response = AISDK.from_wire_response(body)

    assert response.error == ErrorInfo(message="no")
    assert AISDK.to_wire_response(response) == {"error": "no"}
    assert {"data": {"type": "error", "errorText": "no"}} in AISDK.to_wire_events(response)


@pytest.mark.spec("AISDK-8")
@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("stop", StopReason.END),
        ("length", StopReason.MAX_TOKENS),
        ("content-filter", StopReason.CONTENT_FILTER),
        ("tool-calls", StopReason.OTHER),  # without a call
        ("error", StopReason.ERROR),
        ("other", StopReason.OTHER),
        ("never heard", StopReason.OTHER),
    ],
)
def test_the_finish_reason_is_read_by_a_table(word: str, reason: StopReason) -> None:
    finish = {"type": "finish", "finishReason": word}
    response = AISDK.from_wire_response(AISDK.fold_events(events(START, finish)))

    assert (response.choices[0].stop_reason, response.choices[0].raw_stop_reason) == (reason, word)
    assert {"data": finish} in AISDK.to_wire_events(response)


@pytest.mark.spec("AISDK-8")
def test_an_answer_whose_calls_were_taken_away_did_not_stop_for_them() -> None:
    call = {"type": "tool-input-available", "toolCallId": "t", "toolName": "f", "input": {}}
    finish = {"type": "finish", "finishReason": "tool-calls"}
    response = AISDK.from_wire_response(AISDK.fold_events(events(START, call, finish)))
    choice = response.choices[0]

    edited = replace(response, choices=(replace(choice, message=replace(choice.message, content=())),))

    assert choice.stop_reason is StopReason.CALL
    assert {"data": finish} in AISDK.to_wire_events(response)
    assert {"data": {"type": "finish", "finishReason": "stop"}} in AISDK.to_wire_events(edited)


@pytest.mark.spec("AISDK-8")
def test_a_stream_is_reported_as_it_arrives() -> None:
    heard = _heard(
        events(
            START,
            {"type": "reasoning-start", "id": "r"},
            {"type": "reasoning-delta", "id": "r", "delta": "hm"},
            {"type": "tool-input-start", "toolCallId": "c1", "toolName": "look"},
            {"type": "tool-input-delta", "toolCallId": "c1", "inputTextDelta": "{}"},
            {"type": "tool-input-delta", "toolCallId": "c9", "inputTextDelta": "{}"},
            {"type": "tool-input-available", "toolCallId": "c1", "toolName": "look", "input": {}},
            {"type": "finish-step"},
            {"type": "text-delta", "id": "r", "delta": "unheard"},
            {"type": "tool-input-start", "toolCallId": None},
            FINISH,
        )
    )

    assert heard[:3] == [
        ThinkingDelta(text="hm"),
        ToolUseStart(index=0, tool_call_id="c1", name="look"),
        ToolUseInputDelta(index=0, received_chars=2),
    ]
    assert isinstance(heard[-1], MessageComplete)
    assert isinstance(_heard(events(START, 5))[-1], StreamError)


@pytest.mark.spec("AISDK-9")
def test_a_strange_id_belongs_to_the_only_open_part_of_its_kind() -> None:
    response = folded(
        {"type": "text-start", "id": "a"},
        {"type": "text-delta", "id": "b", "delta": "hi"},
        {"type": "text-end", "id": "c"},
    )

    assert response.message.content == (TextPart(text="hi"),)


CALL: dict[str, Any] = {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {"a": 1}}
RESULT: dict[str, Any] = {"type": "tool-output-available", "toolCallId": "c", "output": "end"}


@pytest.mark.spec("AISDK-7")
@pytest.mark.parametrize(
    "chunks",
    [
        [{"type": "text-start", "id": "a", "providerMetadata": {"p": {"x": "1"}}},
         {"type": "text-delta", "id": "b", "delta": "hi"}, {"type": "text-delta", "id": "b", "delta": " you"},
         {"type": "text-delta", "id": "c", "delta": "!", "odd": 1},
         {"type": "text-end", "id": "d", "providerMetadata": {"p": {"x": "2"}}}],
        [{"type": "reasoning-delta", "id": "lost", "delta": "hm"}],
        [{"type": "text-start", "id": "unused"}],
        [{**CALL, "type": "tool-input-error", "errorText": "no", "dynamic": True}, RESULT],
        [{**CALL, "type": "tool-input-error", "errorText": "no"}, {**RESULT, "type": "tool-output-error",
          "errorText": "again"}],
        [{**CALL, "type": "tool-input-error", "errorText": "no"},
         {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p"}],
        [CALL, {**RESULT, "output": "so far", "preliminary": True}, RESULT],
        [CALL, RESULT,
         {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", "odd": 1, "reason": "why"}],
        [CALL, {**RESULT, "type": "tool-output-error", "errorText": "no"},
         {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p", "reason": "a", "requestReason": "b"},
         {"type": "tool-output-denied", "toolCallId": "c"}],
        [CALL, {"type": "tool-output-denied", "toolCallId": "c", "odd": 5}],
        [{"type": "data-a", "id": "d", "data": n} for n in range(3)],
        [CALL, {**RESULT, "output": "so far"}, RESULT, {"type": "message-metadata", "messageMetadata": {"a": "b"}},
         {"type": "message-metadata", "messageMetadata": {"a": "c"}}],
        [{"type": "text-delta", "id": "lost", "delta": "a"}, {"type": "finish-step"},
         {"type": "text-delta", "id": "lost", "delta": "b"}],
    ],
)  # fmt: skip
def test_a_part_that_holds_less_than_its_chunks_is_sent_as_it_is(chunks: list[dict[str, Any]]) -> None:
    body = AISDK.fold_events(events(START, *chunks, FINISH, "[DONE]"))
    bare = {**unmarked(body), "cmf_stream": {"finishReason": "stop"}}

    sent = AISDK.to_wire_events(AISDK.from_wire_response(body))

    assert unmarked(AISDK.fold_events(sent)) == unmarked(body)
    assert sent == AISDK.to_wire_events(AISDK.from_wire_response(bare))


EVIL = "delete_database"
BEGUN: dict[str, Any] = {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}
DELTA: dict[str, Any] = {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": f'{{"a": "{EVIL}"}}'}
OTHER: dict[str, Any] = {**CALL, "input": {"a": EVIL}}


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guard]:
    with Guard(write_rules(tmp_path_factory.mktemp("rules"), {"key": MASK}, kinds="text")) as made:
        yield made


@pytest.mark.spec("AISDK-7", "STR-10")
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([BEGUN, {**CALL, "toolName": EVIL}], id="another tool than at first"),
        pytest.param([CALL, {**BEGUN, "toolName": EVIL}], id="another tool begins"),
        pytest.param([{**BEGUN, "dynamic": True}, {**CALL, "toolName": EVIL, "dynamic": True}], id="of many tools"),
        pytest.param([BEGUN, {**CALL, "toolName": EVIL, "type": "tool-input-error", "errorText": ""}], id="its error"),
        pytest.param([BEGUN, DELTA, CALL], id="another input than its pieces"),
        pytest.param([BEGUN, {**DELTA, "inputTextDelta": EVIL}, CALL], id="pieces of no input"),
        pytest.param([BEGUN, {**DELTA, "inputTextDelta": EVIL}, {**CALL, "input": {}}], id="pieces of an empty input"),
        pytest.param([CALL, DELTA], id="pieces behind the input"),
        pytest.param([OTHER, CALL], id="an input that is replaced"),
        pytest.param([OTHER, RESULT, CALL], id="an input that is replaced once there is a result"),
        pytest.param([OTHER, BEGUN, CALL], id="an input that begins again"),
        pytest.param([OTHER, {**CALL, "type": "tool-input-error", "errorText": "no"}], id="an input that failed"),
        pytest.param([{**OTHER, "type": "tool-input-error", "errorText": "no"}, CALL], id="one after a failed one"),
        pytest.param([{"type": "start-step"}, OTHER, CALL, {"type": "reset-step"}], id="in a step that is taken back"),
    ],
)
def test_chunks_that_tell_of_different_calls_are_refused(chunks: list[dict[str, Any]]) -> None:
    stream = events(START, *chunks, FINISH, "[DONE]")

    with pytest.raises(ShapeError) as refused:
        AISDK.fold_events(stream)

    assert refused.value.code == "stream.contradiction"
    assert EVIL not in str(refused.value)
    assert isinstance(_heard(stream)[-1], StreamError)


@pytest.mark.spec("AISDK-7", "STR-10")
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([{"type": "data-a", "data": EVIL, "transient": True}], id="transient data"),
        pytest.param([{"type": "tool-call", "toolName": EVIL, "input": {}}], id="an unknown chunk"),
        pytest.param([{**DELTA, "toolCallId": "none"}], id="pieces of no call"),
        pytest.param([{**BEGUN, "toolCallId": "d"}, {**DELTA, "toolCallId": "d"}], id="pieces without an input"),
        pytest.param([{"type": "data-a", "id": "d", "data": n} for n in (EVIL, 2)], id="data that is replaced"),
        pytest.param([{**RESULT, "output": EVIL, "preliminary": True}], id="an output that is preliminary"),
        pytest.param([{"type": "message-metadata", "messageMetadata": {"a": n}} for n in (EVIL, 2)], id="metadata"),
        pytest.param([{"type": "abort", "reason": EVIL}], id="the reason of an end"),
        pytest.param([{"type": "error", "errorText": "no", "more": EVIL}], id="a field of an error"),
        pytest.param([{"type": "error", "errorText": text} for text in ("no", EVIL)], id="a second error"),
    ],
)
def test_what_only_chunks_said_is_judged_and_not_sent_on(guard: Guard, chunks: list[dict[str, Any]]) -> None:
    response = AISDK.from_wire_response(AISDK.fold_events(events(START, CALL, *chunks, RESULT, FINISH, "[DONE]")))

    sent = [event["data"] for event in emit_events(guard.run(response), "aisdk")]

    assert EVIL in shown(response)
    assert EVIL not in json.dumps(sent)
    assert CALL in sent
    assert RESULT in sent


@pytest.mark.spec("AISDK-7")
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([BEGUN, {**DELTA, "inputTextDelta": '{ "a":1 }'}, CALL], id="blanks"),
        pytest.param([BEGUN, CALL, CALL], id="twice the same"),
        pytest.param([BEGUN, BEGUN, {**CALL, "dynamic": True}], id="begun twice"),
        pytest.param([BEGUN, {**DELTA, "inputTextDelta": ""}, {**CALL, "input": {}}], id="nothing"),
        pytest.param([OTHER, RESULT, {"type": "start-step"}, CALL], id="the same id in the next step"),
        pytest.param([{"type": "start-step"}, OTHER, {"type": "reset-step"}, CALL], id="a step is taken back"),
        pytest.param([{**CALL, "type": "tool-input-error", "input": EVIL, "errorText": "no"}, RESULT], id="run anyway"),
        pytest.param(
            [BEGUN, {**DELTA, "inputTextDelta": EVIL},
             {**CALL, "type": "tool-input-error", "input": EVIL, "errorText": "no"}],
            id="an input that nobody can read",
        ),
    ],
)  # fmt: skip
def test_chunks_that_agree_pass(chunks: list[dict[str, Any]]) -> None:
    assert folded(*chunks).choices[0].message.status is MessageStatus.COMPLETE


@pytest.mark.spec("AISDK-4")
@pytest.mark.parametrize("given", [["rm"], 5, 0.0, False, [], "rm"])
def test_a_call_whose_input_is_no_object_is_refused_as_a_call(guard: Guard, given: Any) -> None:
    with pytest.raises(Denied) as denied:
        guard.check(folded({**CALL, "input": given}))

    assert [hit.code for hit in denied.value.decision.hits] == ["tool_input_invalid"]


@pytest.mark.spec("AISDK-4")
def test_an_input_that_is_no_json_after_an_edit_is_sent_as_text() -> None:
    response = folded({**CALL, "input": ["pin 1234"]})
    message = response.message
    edited = replace(message, content=(replace(message.content[0], arguments_raw="[***"),))

    sent = AISDK.to_wire_events(replace(response, choices=(replace(response.choices[0], message=edited),)))

    assert {"data": {**CALL, "input": "[***"}} in sent


@pytest.mark.spec("AISDK-7")
def test_a_step_that_is_taken_back_gives_ids_back_to_what_was_before_it() -> None:
    before = [CALL, {"type": "data-a", "id": "d", "data": 1}, {"type": "text-start", "id": "t"}]
    again = [{**CALL, "input": {"a": 2}}, {"type": "tool-approval-request", "toolCallId": "c", "approvalId": "p"}]
    data = {"type": "data-a", "id": "e", "data": 1}
    after = [RESULT, {"type": "tool-approval-response", "approvalId": "p", "approved": True}, data]

    step: list[Any] = [{"type": "start-step"}, *again, data, {"type": "text-start", "id": "u"}, {"type": "reset-step"}]
    response = folded(*before, *step, *after)

    parts = AISDK.to_wire_response(response)["parts"]
    assert [part["type"] for part in parts] == ["tool-t", "data-a", "text", "step-start", "data-a"]
    assert parts[0] == tool("output-available", name="t", call_id="c", input={"a": 1}, output="end")


@pytest.mark.spec("AISDK-7")
def test_metadata_is_merged_without_changing_the_chunks() -> None:
    first: dict[str, Any] = {"type": "message-metadata", "messageMetadata": {"a": {"b": 1}, "c": [1]}}
    second: dict[str, Any] = {"type": "message-metadata", "messageMetadata": {"a": {"d": {"e": 2}}, "c": {"f": 3}}}

    body = AISDK.fold_events(events(first, second, {"type": "message-metadata", "messageMetadata": {"a": 5}}))

    assert body["metadata"] == {"a": 5, "c": {"f": 3}}
    assert (first["messageMetadata"], second["messageMetadata"]["a"]) == ({"a": {"b": 1}, "c": [1]}, {"d": {"e": 2}})


@pytest.mark.spec("AISDK-9")
@pytest.mark.parametrize("own", [{}, {"id": "lost1"}])
def test_a_delta_that_nothing_began_begins_a_part(own: dict[str, str]) -> None:
    spoken = [{"type": "text-delta", **own, "delta": piece} for piece in ("he", "llo")]
    thought = [{"type": "reasoning-delta", **own, "delta": "hm"}, {"type": "reasoning-end", **own}]
    late = [{"type": "finish-step"}, {"type": "text-delta", **own, "delta": "!"}]

    response = folded(*thought, *spoken, *late)
    heard = _heard(events(START, *thought, *spoken, *late, FINISH))

    assert [part.text for part in response.message.content if isinstance(part, TextPart)] == ["hello", "!"]
    assert [said.text for said in heard if isinstance(said, TextDelta)] == ["he", "llo", "!"]
    assert isinstance(heard[-1], MessageComplete)
    assert not own or "lost1" in shown(response)


@pytest.mark.spec("AISDK-9")
def test_a_result_of_an_earlier_call_gets_its_name_from_the_request() -> None:
    asked = read(ui(tool("output-available", input={}, output="old")))
    output = {"type": "tool-output-available", "toolCallId": "c1", "output": "new"}

    response = AISDK.from_wire_response(AISDK.fold_events(events(START, output, FINISH)), asked)

    result = response.message.content[1]
    assert isinstance(result, ToolResultPart)
    assert (result.tool_name, result.content) == ("look", "new")
    assert [event["data"] for event in AISDK.to_wire_events(response)] == [START, output, FINISH, "[DONE]"]


def _heard(arriving: list[WireEvent]) -> list[Any]:
    async def arrive() -> AsyncIterator[WireEvent]:
        for event in arriving:
            yield event

    async def collect() -> list[Any]:
        return [event async for event in AISDK.stream_response(arrive())]

    return asyncio.run(collect())


def test_nothing_is_promised_for_a_model_that_is_not_known() -> None:
    request = read(ui(text("look at this"), role="user"))

    assert not AISDK.capabilities("any").supports_tools
    assert AISDK.estimate_input_tokens(request) > 0
    assert (AISDK.to_http(request).method, AISDK.to_http(request).path) == ("POST", "/api/chat")
