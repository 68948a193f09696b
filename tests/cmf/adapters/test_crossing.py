"""From each wire format into each other: what is said arrives, what cannot be is told, and ids find their calls."""

from __future__ import annotations

import base64
import dataclasses
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from cmf.adapters import FORMATS, get
from cmf.adapters.wire.loss import Loss, collecting
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import CmfError, LossyProjectionError, ProjectionError, UnsupportedError
from cmf.json.frozen import FrozenDict, same_spelling
from cmf.json.value import replace, to_json
from cmf.message import binary
from cmf.message.ids import IdMap, Ids, stamp, unstamp
from cmf.message.message import (
    AudioPart,
    DocumentPart,
    Extensions,
    ImagePart,
    MediaPart,
    Message,
    MetaExtension,
    Part,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolResultPart,
    VideoPart,
)
from cmf.message.request import SAMPLING_FIELDS, Choice, ErrorInfo, Request, Response
from cmf.message.tools import ToolDefinition
from tests.cmf.adapters.tally import Tally
from tests.cmf.adapters.wiredata import first_difference, records, sampled, strings

MODELS = tuple(name for name in FORMATS if name != "mcp")
CRITICAL = Extensions(meta=MetaExtension(properties=FrozenDict({"critical": True})))


def named(request: Request) -> Request:
    """The request with an id on each message, so that a record of a loss says which one it was."""
    messages = tuple(replace(message, id=message.id or f"m{at}") for at, message in enumerate(request.messages))
    return replace(request, messages=messages)


def requests_of(format_name: str, scale: float, seed: int) -> Iterator[tuple[str, Request]]:
    for record in sampled(records(format_name), scale, seed):
        if record.request is not None:
            try:
                yield record.source, named(get(format_name).from_wire_request(record.request))
            except CmfError:
                continue  # what is refused on reading has nothing to cross


def said_by(part: Part) -> list[str]:
    """The strings of a part that have to arrive, whatever the format makes of them."""
    if isinstance(part, TextPart | ThinkingPart):
        return [part.text]
    if isinstance(part, ToolCallPart):
        return [part.name, *strings(part.arguments)] if part.arguments is not None else [part.name]
    if isinstance(part, ToolResultPart):
        if isinstance(part.content, tuple):
            return [text for inner in part.content for text in said_by(inner)]
        return list(strings(part.content))
    if isinstance(part, MediaPart):
        return [_text_of(part) or part.data]
    return []


def _text_of(part: ImagePart | AudioPart | VideoPart | DocumentPart) -> str | None:
    """What a text that was sent as base64 says: formats with text documents spell it so."""
    raw = binary.decoded(part.data) if part.type == "base64" else None
    return raw.decode() if raw is not None and binary.sniff(raw) == "text/plain" else None


def unsaid(request: Request, body: Any, losses: list[Loss]) -> str:
    """What of the request is neither in the body nor in a record; empty if there is nothing."""
    haystack = "\0".join(strings(body))
    gone = Counter(
        part.content_type.value
        for message in request.messages
        for part in message.content
        if not all(_within(text, haystack) for text in said_by(part))
    )
    told = Counter(loss.block_type for loss in losses)
    silent = {kind: count for kind, count in gone.items() if count > told[kind] + told["message"]}
    return f"dropped without a record: {silent}, records: {dict(told)}" if silent else ""


def unset(request: Request, again: Request, losses: list[Loss], body: Any = None) -> str:
    """The first option of the request that did not arrive and is in no record; empty if there is none."""
    told = {loss.block_type.removeprefix("sampling.") for loss in losses}
    for name, wanted, arrived in [
        *((name, getattr(request.sampling, name), getattr(again.sampling, name)) for name in SAMPLING_FIELDS),
        ("reasoning_effort", request.reasoning_effort, again.reasoning_effort),
        ("response_schema", request.response_schema, again.response_schema),
        ("tools", [tool.name for tool in request.tools] or None, [tool.name for tool in again.tools]),
        ("request", True, rides(request.extra, body)),
        ("tool_definition", True, "tools" in told or all(map(rides, *each_extra(request.tools, again.tools)))),
    ]:
        if wanted is not None and wanted != arrived and name not in told:
            return f"{name} is gone without a record"
    return ""


def rides(extra: Any, there: Any) -> bool:
    """Whether each further field is there again: in a body, or where a format of the same family keeps its own."""
    places = [own for own in (there or {}, *(there or {}).values()) if isinstance(own, dict)]
    kept = [own for own in (extra or {}).values() if isinstance(own, dict)]
    return all(any(holds(place, {name: own[name]}) for place in places) for own in kept for name in own)


def holds(whole: Any, part: Any) -> bool:
    """Whether the JSON is equal, or an object that has what the other has, and more."""
    if not isinstance(whole, dict) or not isinstance(part, dict):
        return bool(whole == part)
    return all(name in whole and holds(whole[name], field) for name, field in part.items())


def each_extra(tools: Sequence[ToolDefinition], again: Sequence[ToolDefinition]) -> tuple[list[Any], list[Any]]:
    """What the tools have beyond their fields; and what those of the same names have."""
    others = {tool.name: tool.extra for tool in again}
    return [tool.extra for tool in tools], [others.get(tool.name) for tool in tools]


def _within(text: str, haystack: str) -> bool:
    quoted = (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    coded = base64.b64encode(text.encode()).decode()
    return any(spelling in haystack for spelling in (text, text.strip(), *quoted, coded))


def crossing_problem(request: Request, target: str) -> str:
    adapter = get(target)
    with collecting() as losses:
        body = adapter.to_wire(request)
    again = adapter.from_wire_request(body)
    if silent := unsaid(request, body, losses) or unset(request, again, losses, body):
        return silent
    if not same_spelling(adapter.to_wire(again), body):
        return f"what was written is not what is read: {first_difference(adapter.to_wire(again), body)}"
    return _critical_problem(request, target, losses)


def _critical_problem(request: Request, target: str, losses: list[Loss]) -> str:
    """A mark on exactly the messages that lost something turns the loss into a refusal."""
    lossy = {loss.message_id for loss in losses} - {None}
    if not lossy:
        return ""
    marked = tuple(
        replace(message, extensions=CRITICAL) if message.id in lossy else message for message in request.messages
    )
    try:
        get(target).to_wire(replace(request, messages=marked))
    except LossyProjectionError:
        return ""
    return "a critical message lost a block"


@pytest.mark.spec("ADP-11")
@pytest.mark.parametrize("target", FORMATS)
def test_a_kind_that_the_request_calls_critical_is_carried_or_refused(target: str) -> None:
    """The reasoning has no sign of whose it is: the formats that have a place for it carry it, the others drop it."""
    said = Message(role=Role.ASSISTANT, content=[ThinkingPart(text="hm"), TextPart(text="so")])
    asked = Message(role=Role.USER, content=[TextPart(text="and?")])
    request = Request(model="m", messages=[asked, said, asked])
    with collecting() as losses:
        body = get(target).to_wire(request)

    lossy = request.with_options(critical_kinds=["thinking"])
    if any(loss.block_type == "thinking" for loss in losses):
        with pytest.raises(LossyProjectionError):
            get(target).to_wire(lossy)
    else:
        assert get(target).to_wire(lossy) == body
    assert get(target).to_wire(request.with_options(critical_kinds=["video"])) == body


@pytest.mark.spec("ADP-10")
@pytest.mark.spec("ADP-11")
@pytest.mark.proof
@pytest.mark.parametrize("source", FORMATS)
def test_every_request_crosses_into_every_format_or_is_refused(
    source: str, proof_scale: float, proof_seed: int, proof_row: Any
) -> None:
    tally = Tally("crossed")
    for where, request in requests_of(source, proof_scale, proof_seed):
        for target in FORMATS:
            if target == source:
                continue
            try:
                problem = crossing_problem(request, target)
                tally.count("crossed")
            except ProjectionError as error:
                problem = "" if error.path else f"refused without its place: {error}"
                tally.count("refused")
            except CmfError as error:
                problem = f"refused in the wrong words: {error}"
            tally.case(f"{where} -> {target}", problem)
    proof_row(f"{source}: crossing into the others", n=tally.checked, share=f"{tally.share:.2%}", **tally.counts)
    tally.require()


@pytest.mark.spec("ADP-10")
def test_the_proof_notices_what_is_dropped_in_silence() -> None:
    parts = (TextPart(text="hello"), ToolCallPart(name="look", arguments=FrozenDict({"at": "here"})))
    request = Request(messages=(Message(role=Role.ASSISTANT, content=parts),), reasoning_effort="low")
    loss = Loss(session_id=None, message_id=None, block_type="text", adapter="x", reason="r")

    assert "'text': 1, 'tool_call': 1" in unsaid(request, {}, [])
    assert "'tool_call': 1" in unsaid(request, {}, [loss])
    assert unsaid(request, {"a": ["hello", "look", '{"at": "here"}']}, []) == ""
    assert "reasoning_effort" in unset(request, Request(), [])


@pytest.mark.spec("ADP-10")
def test_a_loss_is_a_warn_record_that_says_where_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    message = Message(role=Role.ASSISTANT, content=(ThinkingPart(text="SECRET"), TextPart(text="hi")))
    request = Request(model="m", messages=(replace(message, id="m1", session_id="s1"),))

    with caplog.at_level(logging.WARNING, logger="cmf.adapters"):
        get("anthropic_messages").to_wire(request)

    (record,) = caplog.records
    told = {name: getattr(record, name) for name in ("session_id", "message_id", "block_type", "adapter")}
    assert told == {
        "session_id": "s1",
        "message_id": "m1",
        "block_type": "thinking",
        "adapter": "anthropic_messages",
    }
    assert record.levelno == logging.WARNING
    assert record.reason  # type: ignore[attr-defined]  # given to the logger as extra
    assert "SECRET" not in record.getMessage()


PICTURE = ImagePart(type="file_ref", data="file_1")
UNSAID: dict[str, tuple[Message | ToolDefinition, str]] = {
    "part": (Message(role=Role.USER, content=(TextPart(text="hi"), PICTURE)), "messages[1].content[1]"),
    "nested": (
        Message(role=Role.TOOL, content=(ToolResultPart(content=(PICTURE,)),)),
        "messages[1].content[0].content[0]",
    ),
    "message": (
        Message(role=Role.ASSISTANT, content=(ThinkingPart(text="hm"), TextPart(text="so")), extensions=CRITICAL),
        "messages[1]",
    ),
    "tool": (ToolDefinition(name="web", type="web_search", executed_by="provider"), "tools[0]"),
}


@pytest.mark.spec("ADP-10", "ADP-11")
@pytest.mark.parametrize("what", UNSAID)
def test_a_refusal_names_the_place_of_what_cannot_be_written(what: str) -> None:
    unsaid, path = UNSAID[what]
    hello = Message(role=Role.USER, content=(TextPart(text="hello"),))
    request = Request(model="m", messages=(hello,))
    if isinstance(unsaid, ToolDefinition):
        request = replace(request, tools=(unsaid,))
    else:
        request = replace(request, messages=(hello, unsaid))

    with pytest.raises(ProjectionError) as refused:
        get("openai_chat").to_wire(request)

    assert refused.value.path == path


@pytest.mark.spec("ADP-10")
def test_a_refusal_of_a_reply_has_its_place_and_one_of_what_was_made_on_the_way_has_none() -> None:
    painted = Message(role=Role.ASSISTANT, content=(TextPart(text="see"), PICTURE))

    for write in (get("anthropic_messages").to_wire_response, get("anthropic_messages").to_wire_events):
        with pytest.raises(UnsupportedError) as refused:
            write(Response(choices=(Choice(message=painted),)))
        assert refused.value.path == "choices[0].message.content[1]"

    def written(_request: Request) -> None:
        raise UnsupportedError("a copy", about=PICTURE, hint="none")

    with pytest.raises(UnsupportedError) as copied:
        dataclasses.replace(get("openai_chat"), write_request=written).to_wire(Request())
    assert copied.value.path == ""


@pytest.mark.spec("OAC-18")
@pytest.mark.parametrize("name", ["openai_chat", "openrouter"])
def test_the_picture_of_a_foreign_result_stays_in_its_tool_message(name: str) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    found = [{"type": "text", "text": "see"}, {"type": "image", "source": picture}]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": found}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    said = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    request = get("anthropic_messages").from_wire_request({"model": "m", "max_tokens": 9, "messages": said})

    with collecting() as losses:
        written = get(name).to_wire(request)["messages"][-1]

    assert losses == []
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert (written["role"], written["content"]) == ("tool", [{"type": "text", "text": "see"}, shown])


@pytest.mark.spec("OAC-19")
def test_a_chat_reply_with_a_picture_of_another_format_is_refused() -> None:
    parts = (TextPart(text="see"), ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"))
    painted = Response(choices=(Choice(message=Message(role=Role.ASSISTANT, content=parts)),))

    for name in ("openai_chat", "openrouter"):
        with pytest.raises(UnsupportedError):
            get(name).to_wire_response(painted)


SEVERAL = (ThinkingPart(text="h"), TextPart(text="a"), ThinkingPart(text="m"), TextPart(text="b"))


@pytest.mark.spec("OAC-19", "OLL-11")
@pytest.mark.parametrize("name", ["openai_chat", "openrouter", "ollama"])
def test_joining_the_blocks_of_a_reply_is_reported_as_a_loss(name: str) -> None:
    several, one = (
        Response(choices=(Choice(message=Message(role=Role.ASSISTANT, content=parts, id="m1")),))
        for parts in (SEVERAL, SEVERAL[:2])
    )

    with collecting() as losses:
        get(name).to_wire_response(several)
    with collecting() as none:
        get(name).to_wire_response(one)

    assert none == []
    assert sorted((loss.block_type, loss.message_id) for loss in losses) == [("text", "m1"), ("thinking", "m1")]
    assert all(loss.adapter == name and "joined" in loss.reason for loss in losses)


@pytest.mark.spec("OAC-19", "OLL-11")
@pytest.mark.parametrize("name", ["openai_chat", "openrouter", "ollama"])
def test_blocks_of_a_critical_reply_are_not_joined(name: str) -> None:
    message = Message(role=Role.ASSISTANT, content=SEVERAL[1::2], extensions=CRITICAL)

    with pytest.raises(LossyProjectionError):
        get(name).to_wire_response(Response(choices=(Choice(message=message),)))


PAINTED = ImagePart(
    type="base64",
    data="iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
)


@pytest.mark.spec("OAC-4", "RSP-3", "ANT-13", "GEM-8", "OLL-5")
@pytest.mark.parametrize("name", ["openai_chat", "openrouter", "openai_responses", "anthropic_messages", "gemini"])
def test_an_image_of_no_declared_type_is_sent_as_what_it_is(name: str) -> None:
    """Clients of Ollama declare none."""
    shown = {"role": "user", "content": "see", "images": [PAINTED.data]}
    request = get("ollama").from_wire_request({"model": "m", "messages": [shown]})

    again = get(name).from_wire_request(get(name).to_wire(request))

    images = [part for message in again.messages for part in message.content if isinstance(part, ImagePart)]
    assert [(image.media_type, image.data) for image in images] == [("image/png", PAINTED.data)]


@pytest.mark.spec("OAC-13", "OAC-17")
@pytest.mark.parametrize(
    "name", [name for name in MODELS if name != "aisdk"]
)  # its whole messages do not say how they end
def test_a_reply_whose_calls_the_provider_ran_does_not_end_in_a_call(name: str) -> None:
    """A client that reads that there are calls, and finds none, breaks."""
    ran = ToolCallPart(name="web_search", tool_call_id="ws_1", arguments=FrozenDict({}), executed_by="provider")
    found = ToolResultPart(tool_name="web_search", tool_call_id="ws_1", content="rain", executed_by="provider")
    message = Message(role=Role.ASSISTANT, content=(ran, found, TextPart(text="It rains.")))
    response = Response(choices=(Choice(message=message, stop_reason=StopReason.END),))

    again = get(name).from_wire_response(get(name).to_wire_response(response))
    streamed = get(name).from_wire_response(get(name).fold_events(get(name).to_wire_events(response)))

    assert again.choices[0].stop_reason is StopReason.END
    assert streamed.choices[0].stop_reason is StopReason.END


@pytest.mark.spec("OAC-13", "RSP-11")
@pytest.mark.parametrize("said", [(), (TextPart(text="I began to"),)], ids=["nothing said", "text said"])
@pytest.mark.parametrize("name", ["openai_chat", "openrouter", "openai_responses", "anthropic_messages", "gemini"])
def test_an_answer_that_was_refused_does_not_end_like_a_whole_one(name: str, said: tuple[Part, ...]) -> None:
    refused = Choice(message=Message(role=Role.ASSISTANT, content=said), stop_reason=StopReason.REFUSAL)
    response = Response(choices=(refused,))

    again = get(name).from_wire_response(get(name).to_wire_response(response))
    streamed = get(name).from_wire_response(get(name).fold_events(get(name).to_wire_events(response)))

    for one in (again, streamed):
        assert one.choices[0].stop_reason in (StopReason.REFUSAL, StopReason.CONTENT_FILTER)


@pytest.mark.spec("OLL-11", "OAC-19")
@pytest.mark.parametrize("name", ["openai_chat", "ollama"])
def test_a_text_without_words_leaves_nothing_behind(name: str) -> None:
    """Gemini puts a signature on one, at the end of an answer."""
    message = Message(role=Role.ASSISTANT, content=(TextPart(text="It rains."), TextPart(text="")), extensions=CRITICAL)
    with collecting() as losses:
        body = get(name).to_wire_response(Response(choices=(Choice(message=message),)))

    assert losses == []
    assert get(name).from_wire_response(body).message.content == (TextPart(text="It rains."),)


@pytest.mark.spec("ADP-10", "AISDK-6", "AISDK-8")
@pytest.mark.parametrize("stop", [None, StopReason.ERROR])
@pytest.mark.parametrize("status", [MessageStatus.PARTIAL, MessageStatus.ERROR])
@pytest.mark.parametrize("said", [(), (TextPart(text="hi"),)], ids=["nothing said", "text said"])
@pytest.mark.parametrize("name", MODELS)
def test_a_failed_answer_arrives_as_one_or_is_reported_as_a_loss(
    name: str, said: tuple[Part, ...], status: MessageStatus, stop: StopReason | None
) -> None:
    failed = Choice(message=Message(role=Role.ASSISTANT, content=said, status=status, id="m1"), stop_reason=stop)
    response = Response(choices=(failed,), error=ErrorInfo(message="boom"))
    adapter = get(name)

    with collecting() as losses:
        whole = adapter.from_wire_response(adapter.to_wire_response(response))
    streamed = adapter.from_wire_response(adapter.fold_events(adapter.to_wire_events(response)))

    told = [(loss.block_type, loss.message_id) for loss in losses]
    assert (whole.error is None) is (("error", "m1") in told)
    assert streamed.error is not None
    assert streamed.error.message == "boom"


@pytest.mark.spec("AISDK-8")
def test_an_error_that_was_edited_does_not_come_back() -> None:
    events = [{"data": {"type": "start"}}, {"data": {"type": "error", "errorText": "SECRET"}}]
    aisdk = get("aisdk")
    response = replace(
        aisdk.from_wire_response(aisdk.fold_events([*events, {"data": {"type": "text-start", "id": "1"}}])),
        error=ErrorInfo(message="***"),
    )

    assert "SECRET" not in json.dumps(aisdk.to_wire_events(response))
    assert "***" in json.dumps(aisdk.to_wire_events(response))


@pytest.mark.spec("MCP-12")
def test_structured_output_is_nothing_that_mcp_can_ask_for() -> None:
    request = Request(
        messages=(Message(role=Role.USER, content=(TextPart(text="hi"),)),), response_schema={"type": "object"}
    )

    with pytest.raises(UnsupportedError):
        get("mcp").to_wire(request)


EMPTY_RESULTS: dict[str, Any] = {
    "openai_chat": {"messages": [{"role": "tool", "tool_call_id": "c", "content": []}]},
    "openai_responses": {"input": [{"type": "function_call_output", "call_id": "c", "output": []}]},
    "anthropic_messages": {
        "max_tokens": 1,
        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": []}]}],
    },
}


@pytest.mark.spec("ADP-2")
@pytest.mark.parametrize("name", EMPTY_RESULTS)
def test_an_empty_result_is_what_its_own_json_says(name: str) -> None:
    """What was kept as JSON and is judged or sent again is the very value that was judged."""
    request = get(name).from_wire_request(EMPTY_RESULTS[name])

    assert Request.model_validate(to_json(request)) == request
    assert get(name).to_wire(request) == EMPTY_RESULTS[name]


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
CHAIN = ("anthropic_messages", "openai_chat", "gemini", "ollama", "openai_responses", "anthropic_messages")


def tool_parts(request: Request) -> list[ToolCallPart | ToolResultPart]:
    return [
        part
        for message in request.messages
        for part in message.content
        if isinstance(part, ToolCallPart | ToolResultPart)
    ]


@pytest.mark.spec("ID-3")
@pytest.mark.spec("ID-4")
def test_tool_ids_survive_a_chain_of_providers_with_and_without_ids() -> None:
    """Gemini and Ollama have no ids: there, calls and results are paired by order, and get their names back after."""
    calls = [
        {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {"at": at}}
        for at, name in enumerate(["look", "look", "tell"])
    ]
    results = [{"type": "tool_result", "tool_use_id": call["id"], "content": f"r{at}"} for at, call in enumerate(calls)]
    body = {
        "model": "claude",
        "max_tokens": 9,
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": results},
        ],
    }
    ids, id_map = Ids(lambda: NOW), IdMap()
    canonical = stamp(
        get(CHAIN[0]).from_wire_request(body), ids, lambda: NOW, id_map, provider=CHAIN[0], session_id="s"
    )
    first = [part.tool_call_id for part in tool_parts(canonical)]
    for provider in CHAIN[1:]:
        wire = get(provider).to_wire(unstamp(canonical, id_map, provider=provider))
        json.dumps(wire)
        model = {"model": "m"} if provider == "gemini" else {}
        returned = get(provider).from_wire_request(wire, **model)
        pairs = [part.tool_call_id for part in tool_parts(returned)]
        restored = stamp(returned, ids, lambda: NOW, IdMap.from_json(id_map.to_json()), provider=provider)

        assert pairs[:3] == pairs[3:]
        names = [part.tool_call_id for part in tool_parts(restored)]
        assert names[:3] == names[3:]
        if pairs[0] is not None:
            assert names == first

    assert first[:3] == first[3:]
    assert wire["messages"][1]["content"] == calls
    assert [block["tool_use_id"] for block in wire["messages"][2]["content"]] == [call["id"] for call in calls]


@pytest.mark.spec("OAC-13", "AISDK-8")
@pytest.mark.parametrize("word", ["OTHER", "NO_IMAGE", "NEVER_HEARD"])
def test_a_word_that_only_its_own_format_knows_is_not_said_elsewhere(word: str) -> None:
    body = {"candidates": [{"content": {"role": "model", "parts": [{"text": "hm"}]}, "finishReason": word}]}
    response = get("gemini").from_wire_response(body)

    assert get("openai_chat").to_wire_response(response)["choices"][0]["finish_reason"] == "stop"
    assert {"data": {"type": "finish", "finishReason": "other"}} in get("aisdk").to_wire_events(response)


@pytest.mark.spec("OAC-13", "ADP-2")
@pytest.mark.parametrize("beside", [{}, {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}])
def test_a_word_that_nobody_knows_goes_back_as_it_came(beside: dict[str, Any]) -> None:
    said = {"index": 0, "message": {"role": "assistant", "content": "hm"}, "finish_reason": "bored"}
    body = {**beside, "choices": [said]}

    assert get("openai_chat").to_wire_response(get("openai_chat").from_wire_response(body)) == body


@pytest.mark.spec("ANT-17")
def test_an_answer_without_choices_is_an_empty_message_and_no_count() -> None:
    body = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}
    usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}

    for beside in ({}, {"usage": usage}):
        message = get("anthropic_messages").to_wire_response(get("openai_chat").from_wire_response({**body, **beside}))

        assert (message["type"], message["content"], message["stop_reason"]) == ("message", [], "end_turn")
        assert get("anthropic_messages").from_wire_response(message).message.content == ()


COUNTED = ("openai_chat", "openrouter", "openai_responses", "anthropic_messages")


@pytest.mark.spec("OAC-12", "RSP-12", "ANT-19")
@pytest.mark.parametrize("target", COUNTED)
@pytest.mark.parametrize("source", COUNTED)
def test_each_count_of_tokens_arrives_whole_and_streamed(source: str, target: str) -> None:
    counted = TokenUsage(
        input_tokens=5, output_tokens=2, cached_input_tokens=70, cache_creation_input_tokens=300, total_tokens=377
    )
    said = Message(role=Role.ASSISTANT, content=(TextPart(text="hi"),))
    made = get(source).to_wire_response(
        Response(choices=(Choice(message=said, stop_reason=StopReason.END),), usage=counted)
    )
    reply = replace(get(source).from_wire_response(made), extra=None)

    whole = get(target).to_wire_response(reply)
    streamed = get(target).fold_events(get(target).to_wire_events(reply))

    assert [get(target).from_wire_response(body).usage for body in (whole, streamed)] == [counted, counted]


@pytest.mark.spec("ANT-13")
def test_the_result_of_a_tool_is_no_answer_of_a_model() -> None:
    result = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "9 kg"}]}}

    with pytest.raises(UnsupportedError):
        get("anthropic_messages").to_wire_response(get("mcp").from_wire_response(result))
