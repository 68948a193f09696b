"""Functions as models: requests and responses judged, canonical or in a wire format, whole or streamed."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import calls, used
from tests.pipeline.conversations import says as says_as

from cmf import Choice, ErrorInfo, Message, Request, Response, TextPart, ThinkingPart, ToolCallPart, adapters
from cmf.adapters.wire.stream import MessageComplete, StreamError, TextDelta, ThinkingDelta
from cmf.errors import CmfError, UnknownFormatError
from pipeline import Config, Context, Denied, EmissionError, Guard, as_stage, emit
from pipeline.decisions.errors import CallError
from pipeline.decisions.events import CallFailed
from pipeline.run.emit import emit_events

RULES = {
    "model": """
deny contains {"code": "test.no", "reason": "Not that."} if contains(input.content, "forbidden")

deny contains {"code": "test.model", "reason": "Not that model."} if {
	input.kind == "request"
	input.uri == "llm://openai/bad"
}

redact contains {"code": "test.mask", "reason": "x", "spans": [[at, at + 6]]} if {
	input.kind in {"text", "thinking"}
	at := indexof(input.content, "secret")
	at >= 0
}

label contains {"code": "l", "reason": "x", "label": "asked"} if {
	input.kind == "text"
	contains(input.content, "label")
}

deny contains {"code": "test.labelled", "reason": "x"} if {
	input.kind == "response"
	"asked" in input.extensions.security.labels
}
"""
}

SEEN = """\
deny contains {"code": "saw.origins", "reason": "Seen."} if {
	some origin in input.origins
	some source in origin.sources
	source.tool == "fetch"
}
"""
MALLORY = "mallory-7781@example.com"


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard(write_rules(tmp_path_factory.mktemp("rules"), RULES))


def asks(text: str) -> Request:
    return Request(model="openai:gpt-5", messages=[Message(role="user", content=[TextPart(text=text)])])


def says(*texts: str) -> Response:
    message = Message(role="assistant", content=[TextPart(text=text) for text in texts])
    return Response(choices=[Choice(message=message)], model="gpt-5")


def body(text: str) -> dict[str, Any]:
    return {"model": "gpt-5", "messages": [{"role": "user", "content": text}]}


def reply(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5", "choices": [choice]}


def chunks(*texts: str) -> list[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    deltas: list[tuple[dict[str, Any], str | None]] = [({"role": "assistant", "content": ""}, None)]
    deltas += [({"content": text}, None) for text in texts]
    deltas.append(({}, "stop"))
    return [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} for delta, reason in deltas]


def text_of(items: list[dict[str, Any]]) -> str:
    return "".join(item["choices"][0]["delta"].get("content") or "" for item in items if item["choices"])


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-12")
def test_a_request_that_is_refused_is_never_asked(guard: Guard) -> None:
    @guard.model
    def ask(request: Request) -> Response:
        raise AssertionError("asked")

    @guard.model(dialect="openai_chat")
    def ask_wire(body: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("asked")

    with pytest.raises(Denied):
        ask(asks("forbidden"))
    with pytest.raises(Denied):
        ask_wire(body("forbidden"))


@pytest.mark.spec("GRD-12")
async def test_a_response_that_is_refused_is_withheld_in_every_kind(guard: Guard) -> None:
    @guard.model(dialect="openai_chat")
    async def awaited(body: dict[str, Any]) -> dict[str, Any]:
        return reply("forbidden")

    @guard.model(dialect="openai_chat")
    def streamed(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from chunks("for", "bidden")

    @guard.model(dialect="openai_chat")
    async def streamed_awaited(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for chunk in chunks("forbid", "den"):
            yield chunk

    with pytest.raises(Denied):
        await awaited(body("hi"))
    with pytest.raises(Denied):
        next(iter(streamed(body("hi"))))
    with pytest.raises(Denied):
        await anext(aiter(streamed_awaited(body("hi"))))


@pytest.mark.spec("GRD-12")
@pytest.mark.parametrize("dialect", [None, "openai_chat"])
def test_a_call_in_a_response_has_its_origins_in_the_request(tmp_path: Path, dialect: str | None) -> None:
    """The call's argument comes from a tool result of the request; without history nobody could say so."""
    conversation = Request(
        model="openai:gpt-5", messages=[says_as("user", "do it"), *used("fetch", {}, f"write to {MALLORY}", "c1")]
    )
    answer = Response(choices=[Choice(message=calls("send", {"to": MALLORY}, "c2"))], model="gpt-5")
    config = Config(history="trusted")
    with Guard(write_rules(tmp_path, {"seen": SEEN}, kinds="tool_call"), config=config) as guard:

        @guard.model(dialect=dialect)
        def ask(body: Any) -> Any:
            return answer if dialect is None else adapters.get(dialect).to_wire_response(answer)

        with pytest.raises(Denied) as caught:
            ask(conversation if dialect is None else adapters.get(dialect).to_wire(conversation))

    assert caught.value.code == "saw.origins"


@pytest.mark.spec("GRD-12")
def test_the_model_that_is_asked_is_the_one_that_is_judged(guard: Guard) -> None:
    @guard.model(model="openai:bad")
    def ask(request: Request) -> Response:
        raise AssertionError("asked")

    @guard.model(model="openai:good", dialect="openai_chat")
    def ask_wire(body: dict[str, Any]) -> dict[str, Any]:
        return reply(body["model"])

    with pytest.raises(Denied) as caught:
        ask(asks("hi"))
    assert caught.value.code == "test.model"
    assert ask_wire(body("hi"))["choices"][0]["message"]["content"] == "good"


@pytest.mark.spec("GRD-12")
def test_what_goes_beside_the_request_would_not_be_judged_and_is_refused(guard: Guard) -> None:
    made = []

    @guard.model()
    def ask(*args: Any, **kwargs: Any) -> Response:
        made.append(1)
        return says("x")

    @guard.model(dialect="openai_chat")
    def ask_wire(*args: Any, **kwargs: Any) -> dict[str, Any]:
        made.append(1)
        return reply("x")

    for call in (
        lambda: ask(asks("hi"), 1),
        lambda: ask("hi"),
        lambda: ask(),
        lambda: ask_wire(body("hi"), note="forbidden"),
        lambda: ask_wire(body("hi"), "x"),
        lambda: ask_wire(),
    ):
        with pytest.raises(CallError) as caught:
            call()
        assert caught.value.code == "guard.not-a-request"
    assert made == []


@pytest.mark.parametrize("answer", ["text", None, Request()])
def test_what_is_no_response_is_withheld(guard: Guard, answer: Any) -> None:
    @guard.model()
    def ask(request: Request) -> Any:
        return answer

    @guard.model()
    def stream(request: Request) -> Iterator[Any]:
        yield answer

    @guard.model()
    def empty(request: Request) -> Iterator[Any]:
        yield from ()

    for call in (lambda: ask(asks("x")), lambda: list(stream(asks("x"))), lambda: list(empty(asks("x")))):
        with pytest.raises(CallError) as caught:
            call()
        assert caught.value.code == "guard.not-a-response"


def test_a_body_that_cannot_be_read_is_not_asked(guard: Guard) -> None:
    @guard.model(dialect="openai_chat")
    def ask(body: dict[str, Any]) -> Any:
        raise AssertionError("asked")

    with pytest.raises(CmfError):
        ask({"messages": 7})
    with pytest.raises(UnknownFormatError):
        guard.model(dialect="none")(ask)


def test_a_stage_can_make_nothing_else_of_a_request_or_response(guard: Guard) -> None:
    """It cannot in a run; a call that is handed another outcome stands on its own."""
    from pipeline.guarded.model import ModelCall, ModelFunction

    other = guard.check(Message(role="user", content=[TextPart(text="x")]))
    call = ModelCall(ModelFunction(says), Context(), guard.events, (asks("x"),), {})
    request = guard.check(asks("x"))

    with pytest.raises(CallError, match="replaced the request"):
        call.admitted(other)
    call.answered(says("x"))
    with pytest.raises(CallError, match="not a response"):
        call.released(request)

    def streamed(request: Request) -> Iterator[Any]:
        yield MessageComplete(response=says("x"))

    from pipeline.guarded.wrapping import Yielded

    call.answered(Yielded(list(streamed(asks("x")))))
    with pytest.raises(CallError, match="not a response"):
        call.released(other)


# -- what passes -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("GRD-12")
async def test_request_and_response_pass_as_policy_left_them(guard: Guard) -> None:
    @guard.model()
    def ask(request: Request) -> Response:
        assert request.messages[0].content[0].text == "my [MASKED]"  # type: ignore[attr-defined]
        return says("a secret")

    @guard.model()
    async def answer(*, request: Request) -> Message:
        return Message(role="assistant", content=[TextPart(text="a secret")])

    assert ask(asks("my secret")).message.content == (TextPart(text="a [MASKED]"),)
    assert (await answer(request=asks("x"))).content == (TextPart(text="a [MASKED]"),)
    assert inspect.iscoroutinefunction(answer)


class Reply(BaseModel):
    model_config = {"extra": "allow"}
    id: str


@pytest.mark.spec("GRD-12")
def test_a_wire_body_goes_in_and_comes_out_in_its_own_form(guard: Guard) -> None:
    got: list[Any] = []

    @guard.model(dialect="openai_chat")
    def one(body: dict[str, Any]) -> dict[str, Any]:
        got.append(body)
        return reply("a secret")

    @guard.model(dialect="openai_chat")
    def named(**fields: Any) -> Reply:
        got.append(fields)
        return Reply.model_validate(reply("a secret"))

    assert one(body("my secret")) == reply("a [MASKED]")
    answer = named(**body("my secret"))
    assert got == [body("my [MASKED]")] * 2
    assert isinstance(answer, Reply)
    assert answer.model_dump()["choices"][0]["message"]["content"] == "a [MASKED]"


def test_an_annotation_that_cannot_be_read_is_as_none(guard: Guard) -> None:
    @guard.model(dialect="openai_chat")
    def ask(body: dict[str, Any]) -> NoSuchType:  # type: ignore[name-defined]  # noqa: F821
        return reply("x")

    assert ask(body("hi")) == reply("x")


@pytest.mark.spec("GRD-13")
@pytest.mark.parametrize("framed", [False, True])
async def test_a_wire_stream_is_released_anew_once_the_whole_was_judged(guard: Guard, framed: bool) -> None:
    ended = []

    def items() -> list[dict[str, Any]]:
        made = chunks("a sec", "ret b")
        return [{"data": item} for item in made] + [{"data": "[DONE]"}] if framed else made  # type: ignore[operator]

    @guard.model(dialect="openai_chat")
    def stream(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from items()
        ended.append(1)

    @guard.model(dialect="openai_chat")
    async def awaited(body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        for item in items():
            yield item

    def plain(came: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [item["data"] for item in came if isinstance(item["data"], dict)] if framed else came

    running = iter(stream(body("hi")))
    first = next(running)

    assert ended == [1]
    assert text_of(plain([first, *running])) == "a [MASKED] b"
    assert text_of(plain([item async for item in awaited(body("hi"))])) == "a [MASKED] b"


@pytest.mark.spec("GRD-13")
def test_events_that_name_themselves_fold_in_their_own_format(guard: Guard) -> None:
    adapter = adapters.get("anthropic_messages")

    @guard.model(dialect="anthropic_messages")
    def stream(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield from (event["data"] for event in adapter.to_wire_events(says("a secret b")))

    came = list(stream({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}))

    assert came[0]["type"] == "message_start"
    assert "".join(item["delta"].get("text", "") for item in came if item["type"] == "content_block_delta") == (
        "a [MASKED] b"
    )


@pytest.mark.spec("GRD-13")
def test_canonical_events_are_made_anew_from_what_was_judged(guard: Guard) -> None:
    parts = [ThinkingPart(text="hm"), TextPart(text="a secret"), ToolCallPart(name="look", arguments={})]
    thought = Message(role="assistant", content=parts)
    response = Response(choices=[Choice(message=thought)])

    @guard.model()
    def stream(request: Request) -> Iterator[Any]:
        yield TextDelta(text="never judged")
        yield MessageComplete(response=response)

    @guard.model()
    def cut(request: Request) -> Iterator[Any]:
        partial = Response(error=ErrorInfo(message="cut"))
        yield StreamError(error=ErrorInfo(message="unjudged"), partial=partial)

    came = list(stream(asks("x")))
    assert came[:2] == [ThinkingDelta(text="hm"), TextDelta(text="a [MASKED]")]
    assert isinstance(came[-1], MessageComplete)
    assert [event.error for event in cut(asks("x"))] == [ErrorInfo(message="cut")]


@pytest.mark.spec("GRD-11")
def test_labels_that_a_request_brought_are_on_its_response(guard: Guard) -> None:
    ask = guard.model()(lambda request: says("x"))

    assert ask(asks("x")).message.content == says("x").message.content
    with pytest.raises(Denied) as caught:
        ask(asks("label"))
    assert caught.value.code == "test.labelled"


@pytest.mark.spec("GRD-10")
def test_what_the_model_raises_passes_as_it_is_and_is_an_event(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    unsubscribe = guard.events.subscribe(seen.append)
    error = ConnectionError("canary-31")

    @guard.model()
    def ask(request: Request) -> Response:
        raise error

    with caplog.at_level(logging.DEBUG), pytest.raises(ConnectionError) as caught:
        ask(asks("x"))
    with pytest.raises(ConnectionError):
        ask(Request())
    unsubscribe()

    assert caught.value is error
    assert seen == [CallFailed(called=name, error="ConnectionError") for name in ("openai:gpt-5", "")]
    assert "canary" not in caplog.text


# -- the door ----------------------------------------------------------------------------------------------------------


@pytest.mark.spec("PIPE-6")
def test_only_a_judged_response_goes_out_as_events_and_once(guard: Guard) -> None:
    outcome = guard.check(says("a secret"))

    events = emit_events(outcome, "openai_chat")

    assert text_of([event["data"] for event in events if isinstance(event["data"], dict)]) == "a [MASKED]"
    with pytest.raises(EmissionError) as spent:
        emit(outcome, "openai_chat")
    with pytest.raises(EmissionError) as request:
        emit_events(guard.check(asks("x")), "openai_chat")
    with pytest.raises(EmissionError) as refused:
        emit_events(guard.run(says("forbidden")), "openai_chat")
    codes = [caught.value.code for caught in (spent, request, refused)]
    assert codes == ["emit.spent-certificate", "emit.no-stream", "emit.refused"]


def test_stages_of_the_guard_see_requests_of_models(lenient: Any) -> None:
    seen: list[Any] = []
    guard = Guard(lenient, stages=[as_stage("see", mode="audit")(lambda value, _: seen.append(type(value)))])

    guard.model()(lambda request: says("x"))(asks("x"))

    assert seen == [Request, Response]
