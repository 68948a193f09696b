"""What windows do at their edges: answers of other shapes, policies that change, clients that take nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.proxy.test_window import MASK, guard_of
from tests.pipeline.gateway.test_crossing import CLIENTS
from tests.pipeline.gateway.windows import Client, Pieces, answer, aserved, events, served, spoken
from ulid import ULID

from cmf.adapters import get
from cmf.enums import MessageStatus, StopReason
from cmf.message.message import Part, ResourcePart, TextPart, ThinkingPart, ToolCallPart
from cmf.message.request import Choice, ErrorInfo, Response
from pipeline.decisions.errors import StoreError
from pipeline.gateway.config.settings import Limits
from pipeline.gateway.http.client_response import Answer, Reply
from pipeline.gateway.http.dialects import DIALECTS
from pipeline.gateway.http.endpoints import endpoint_of
from pipeline.gateway.http.incoming import ClientDisconnected, SharedTimeout, body_of, check_query, until_disconnect
from pipeline.gateway.http.refusal import Refusal
from pipeline.gateway.proxy.response_sessions import Links, identified
from pipeline.gateway.proxy.window import Diverged, Sent
from pipeline.guard import Guard
from pipeline.policy.policy_set import PolicySet
from pipeline.run.outcome import Outcome

NONE = 'deny contains {"code": "x", "reason": "x"} if false'


@pytest.fixture
def guard(tmp_path: Path) -> Guard:
    return guard_of(tmp_path, {"key": MASK})


class _Odd(Guard):
    """A guard whose outcomes come to something else."""

    change: Callable[[Outcome], Outcome]

    async def arun(self, *args: Any, **more: Any) -> Outcome:
        return self.change(await super().arun(*args, **more))


def odd(home: Path, change: Callable[[Outcome], Outcome]) -> _Odd:
    made = _Odd(write_rules(home / "odd", {"none": NONE}, mode="enforce\n#   stream: {max_match: 4}"))
    made.change = change
    return made


# -- what is judged is what goes out, or nothing does ------------------------------------------------------------------


@pytest.mark.spec("GW-33")
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda one: dataclasses.replace(one, value=None), "pipeline.no-request"),
        (lambda one: dataclasses.replace(one, value=None) if one.response else one, "pipeline.no-response"),
        (lambda one: dataclasses.replace(one, certificate=None) if one.response else one, "emit.no-certificate"),
    ],
)
def test_what_was_not_judged_as_it_stands_does_not_go_out(
    tmp_path: Path, change: Callable[[Outcome], Outcome], code: str
) -> None:
    got = served(odd(tmp_path, change), Pieces(["some words"]), window=None)

    assert got.refusal is not None
    assert (got.refusal.status, got.refusal.code, got.raw) == (503, code, b"")


@pytest.mark.spec("GW-18")
@pytest.mark.parametrize("window", [None, 1])
def test_texts_that_edits_join_are_judged_again(guard: Guard, window: int | None) -> None:
    """The blocks of a list lose their places by edits; what they then make together is masked too."""
    content = [{"type": "text", "text": text} for text in ("sk-abcd sk-a", "bcd sk-abcd")]
    message = {"role": "assistant", "content": content}
    listed = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    got = served(guard, Pieces([], ends=get("openai_chat").from_wire_response(listed)), window=window)

    assert spoken("openai_chat", got) == "[MASKED] [MASKED] [MASKED]"


@pytest.mark.spec("GW-18")
def test_texts_that_were_judged_apart_are_not_sent_as_one(tmp_path: Path) -> None:
    """As in a reply that waited for approval, for a client of another dialect than the one that releases it."""
    apart = answer([TextPart(text="some "), TextPart(text="words")], MessageStatus.COMPLETE)
    with Guard() as guard:
        got = served(
            odd(tmp_path, lambda one: guard.run(apart) if one.response else one), Pieces(["some words"]), window=None
        )

    assert got.refusal is not None
    assert (got.refusal.status, got.refusal.code, got.raw) == (502, "emit.joined-texts", b"")


@pytest.mark.spec("GW-72")
@pytest.mark.parametrize(
    "change",
    [
        lambda one: dataclasses.replace(one, certificate=None),
        lambda one: dataclasses.replace(one, value=None),
        lambda one: dataclasses.replace(one, decision=dataclasses.replace(one.decision, revision="another")),
        lambda one: dataclasses.replace(one, value=answer([ThinkingPart(text="x")], MessageStatus.COMPLETE)),
    ],
)
def test_nothing_goes_out_of_a_window_that_came_to_something_else(
    tmp_path: Path, change: Callable[[Outcome], Outcome]
) -> None:
    client, out, windows = Client(), [], iter([True])

    def changed(one: Outcome) -> Outcome:
        return change(one) if one.response is not None and next(windows, False) else one

    upstream = Pieces(["some words", " and more words"], then=lambda _: out.append(client.raw))
    asyncio.run(aserved(odd(tmp_path, changed), upstream, client=client, window=1))

    assert out[0] == b""
    assert spoken("openai_chat", client) == "some words and more words"


@pytest.mark.spec("GW-73")
def test_a_last_judgement_that_comes_to_nothing_is_the_last_event(tmp_path: Path) -> None:
    seen: list[Outcome] = []

    def changed(one: Outcome) -> Outcome:
        seen.append(one)
        return dataclasses.replace(one, value=None) if len(seen) == 3 else one

    got = served(odd(tmp_path, changed), Pieces(["some words"]))

    assert spoken("openai_chat", got) == "some w"
    assert "upstream.error" in str(events(got)[-1])


def test_what_the_clients_format_cannot_say_is_502_or_the_last_event(guard: Guard) -> None:
    part = ResourcePart(uri="file:///x", blob=b"\x00")

    whole = served(guard, Pieces([part]), "anthropic_messages", window=None)
    late = served(guard, Pieces(["some words, and more"], ends=answer([part], MessageStatus.COMPLETE)), "openai_chat")

    assert whole.refusal is not None
    assert whole.refusal.status == 502
    assert spoken("openai_chat", late) == "some wor"
    assert "projection" in str(events(late)[-1])


# -- answers of other shapes -------------------------------------------------------------------------------------------


class _Shapes:
    """An upstream whose answer so far is one of these, after some text was heard."""

    target = "canonical"
    provider = "scripted"
    knows = staticmethod(bool)

    def __init__(self, *answers: Response) -> None:
        self.answers = answers

    async def ask(self, _request: Any, _body: Any, live: Any, /) -> Response:
        from cmf.adapters.wire.stream import TextDelta

        for one in self.answers:
            live.observe(TextDelta(text="x" * 40))
            await live.pause(lambda one=one: one)  # type: ignore[misc]
        return self.answers[-1]


def _several() -> Response:
    one = answer([TextPart(text="x" * 40)], MessageStatus.COMPLETE).choices[0]
    return Response(choices=(one, Choice(message=one.message, stop_reason=StopReason.END)), model="m")


@pytest.mark.spec("GW-75")
@pytest.mark.parametrize(
    "first",
    [
        _several(),
        Response(error=ErrorInfo(message="broken")),
        answer([], MessageStatus.PARTIAL),
        answer([ToolCallPart(name="get_weather", tool_call_id="1", arguments={})], MessageStatus.PARTIAL),
        answer([TextPart(text="short")], MessageStatus.PARTIAL),
    ],
    ids=["choices", "error", "empty", "call", "short"],
)
def test_answers_that_are_no_single_text_wait_for_their_end(guard: Guard, first: Response) -> None:
    client = Client()

    got = served(guard, _Shapes(first, answer([TextPart(text="all is said")], MessageStatus.COMPLETE)), client=client)

    assert got.status == 200
    assert len(got.pieces) == 1
    assert spoken("openai_chat", got) == "all is said"


@pytest.mark.spec("GW-72")
def test_a_window_that_does_not_go_on_with_what_is_out_waits_for_the_whole(guard: Guard) -> None:
    one, two = "a" * 40, "b" * 80
    back = answer([TextPart(text=one + "c" * 40)], MessageStatus.COMPLETE)

    got = served(guard, _Shapes(*(answer([TextPart(text=text)], MessageStatus.PARTIAL) for text in (one, two)), back))

    assert spoken("openai_chat", got) == one + "c" * 40


@pytest.mark.spec("GW-71")
def test_rules_that_are_loaded_meanwhile_hold_from_the_next_window_on(tmp_path: Path) -> None:
    lenient = write_rules(tmp_path / "a", {"none": NONE}, mode="enforce\n#   stream: {max_match: 1}")
    strict = write_rules(tmp_path / "b", {"none": NONE}, mode="enforce\n#   stream: {max_match: 30}")
    with Guard(lenient) as guard:
        client, out = Client(), []

        def then(number: int) -> None:
            out.append(spoken("openai_chat", client))
            if number == 0:
                guard.reload(strict)

        asyncio.run(aserved(guard, Pieces(["x" * 10, "y" * 10, "z" * 10], then=then), client=client))

    assert out == ["x" * 9] * 3
    assert spoken("openai_chat", client) == "x" * 10 + "y" * 10 + "z" * 10


class _Turning(Guard):
    """A guard whose policies are replaced when they are looked at for the nth time."""

    looks = 0
    then: tuple[int, Path | None] = 0, None

    @property
    def policies(self) -> PolicySet:
        self.looks += 1
        if self.looks == self.then[0]:
            self.reload(self.then[1])
        return super().policies


@pytest.mark.spec("GW-74")
@pytest.mark.parametrize("looks", [4, 5, 6])
def test_rules_that_must_see_the_whole_hold_all_whenever_they_are_loaded(tmp_path: Path, looks: int) -> None:
    lenient = write_rules(tmp_path / "a", {"none": NONE}, mode="enforce\n#   stream: {max_match: 4}")
    strict = write_rules(
        tmp_path / "b", {"word": 'deny contains {"code": "x", "reason": "x"} if contains(input.content, "z")'}
    )
    client, out = Client(), []
    with _Turning(lenient) as guard:
        guard.then = looks, strict

        pieces = Pieces(["x" * 10, "z"], then=lambda _: out.append(spoken("openai_chat", client)))
        asyncio.run(aserved(guard, pieces, client=client))

    assert set(out) <= {"", "x" * 6, "x" * 7}  # without the last four, while the lenient rule was in force


@pytest.mark.spec("GW-19")
@pytest.mark.parametrize("window", [None, 1])
@pytest.mark.parametrize("dialect", [name for name in CLIENTS if name not in ("gemini", "ollama")])
def test_no_two_answers_name_a_call_or_an_item_alike(guard: Guard, dialect: str, window: int | None) -> None:
    parts = [TextPart(text="I look."), *(ToolCallPart(name=name, arguments={}) for name in "ab")]

    answers = [served(guard, Pieces(parts), dialect, window=window).raw.decode() for _ in range(2)]

    names = [set(re.findall(r'"(?:(?:call_|item_)?id|response_id)":"([^"]+)"', raw)) for raw in answers]
    assert len([name for name in names[0] if name.startswith("call_")]) == 2
    assert not names[0] & names[1]


@pytest.mark.spec("GW-19")
def test_calls_of_the_older_kind_and_calls_that_have_an_id_stay_as_they_are() -> None:
    said = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    body = {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": said}],
    }
    older = get("openai_chat").from_wire_response(body)
    known = answer([ToolCallPart(name="f", tool_call_id="x1", arguments={})], MessageStatus.COMPLETE)

    assert identified(older, "openai_chat", str(ULID.from_int(7))) is older
    assert identified(known, "anthropic_messages", str(ULID.from_int(7))).message.content == known.message.content


# -- events, dialect by dialect ----------------------------------------------------------------------------------------


def _events(dialect: str, *parts: Part) -> Any:
    whole = identified(answer(parts, MessageStatus.COMPLETE), dialect, str(ULID.from_int(7)))
    return get(dialect).to_wire_events(whole)


@pytest.mark.parametrize("dialect", CLIENTS)
def test_nothing_is_partly_out_where_no_text_ends_as_it_should(dialect: str) -> None:
    sent = Sent(DIALECTS[dialect])
    call = ToolCallPart(name="f", tool_call_id="1", arguments={})

    assert sent.partly(_events(dialect, call), {}) == []
    with pytest.raises(Diverged):
        sent.partly(_events(dialect, TextPart(text="abc")), {"x": "x"})
    assert sent.number == 0


@pytest.mark.parametrize("dialect", CLIENTS)
def test_text_that_is_hidden_in_full_leaves_what_came_before_it(dialect: str) -> None:
    sent = Sent(DIALECTS[dialect])
    whole = _events(dialect, TextPart(text="abc"))

    first = sent.partly(whole, {"abc": ""})
    rest = sent.rest(whole)

    assert len(first) + len(rest) == len(whole)
    assert "abc" not in str(first)
    assert "abc" in str(rest)


@pytest.mark.parametrize("dialect", CLIENTS)
def test_an_answer_that_begins_otherwise_diverges(dialect: str) -> None:
    for later in (
        [TextPart(text="xyz")],
        [TextPart(text="ab")],
        [ToolCallPart(name="f", tool_call_id="1", arguments={})],
    ):
        sent = Sent(DIALECTS[dialect])
        sent.partly(_events(dialect, TextPart(text="abc")), {"abc": "abc"})
        with pytest.raises(Diverged):
            sent.rest(_events(dialect, *later))


@pytest.mark.spec("GW-72")
@pytest.mark.parametrize("dialect", CLIENTS)
def test_an_answer_whose_earlier_text_is_another_diverges(dialect: str) -> None:
    sent = Sent(DIALECTS[dialect])
    begun = _events(dialect, TextPart(text="I think so"), TextPart(text="abc"))
    sent.partly(begun, {text: text for text in ("I think so", "abc", "I think soabc", "I think so\n\nabc")})

    with pytest.raises(Diverged):
        sent.rest(_events(dialect, TextPart(text="I doubt it"), TextPart(text="abc")))
    assert sent.rest(_events(dialect, TextPart(text="I think so"), TextPart(text="abc")))


@pytest.mark.spec("OAC-26")
def test_what_arrives_after_the_text_was_sent_is_sent_behind_it() -> None:
    """Services send citations last, and a signature with the call that follows the text."""
    chat, sent = get("openai_chat"), Sent(DIALECTS["openai_chat"])
    begun = {"role": "assistant", "content": "It rains", "reasoning": "hm"}
    details = [{"type": "reasoning.text", "text": "hm", "signature": "sig", "index": 0}]
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    whole = {**begun, "reasoning_details": details, "annotations": [{"type": "a"}], "tool_calls": [call]}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    bodies = [
        {**head, "choices": [{"index": 0, "message": begun}], "cmf_partial": True},
        {**head, "choices": [{"index": 0, "message": whole, "finish_reason": "tool_calls"}], "citations": ["u"]},
    ]
    partly, all_of_it = (chat.to_wire_events(chat.from_wire_response(body)) for body in bodies)

    events = [*sent.partly(partly, {"It rains": "It rains", "hm": "hm"}), *sent.rest(all_of_it)]

    folded = chat.fold_events(events)
    folded["choices"][0]["message"]["tool_calls"][0].pop("index", None)
    assert folded == bodies[1]


def test_an_event_that_is_out_does_not_become_text() -> None:
    sent = Sent(DIALECTS["anthropic_messages"])
    call = ToolCallPart(name="f", tool_call_id="1", arguments={"a": 1})
    sent.rest(_events("anthropic_messages", call)[:3])

    with pytest.raises(Diverged):
        sent.rest(_events("anthropic_messages", TextPart(text="abc")))
    with pytest.raises(Diverged):
        sent.rest(_events("anthropic_messages", call)[:1])


# -- the client's end --------------------------------------------------------------------------------------------------


@pytest.mark.spec("GW-77")
async def test_a_client_that_takes_nothing_is_gone() -> None:
    async def stuck(_: MutableMapping[str, Any]) -> None:
        await asyncio.sleep(30)

    async def broken(_: MutableMapping[str, Any]) -> None:
        raise ConnectionResetError

    answer_ = Answer(status=200, media_type="text/plain", body=b"x", headers={})
    for send, seconds in ((stuck, 0.01), (broken, 5)):
        with pytest.raises(ClientDisconnected):
            await Reply(send, {}, timeout=SharedTimeout(seconds)).whole(answer_)


@pytest.mark.spec("GW-30")
async def test_a_code_that_no_header_can_hold_is_shown_as_far_as_it_can() -> None:
    out: list[MutableMapping[str, Any]] = []

    async def send(event: MutableMapping[str, Any]) -> None:
        out.append(event)

    code = {"x-cmf-code": "no.\u2192\r\nx: y"}
    await Reply(send, {}, timeout=SharedTimeout(5)).whole(
        Answer(status=403, media_type="text/plain", body=b"", headers=code)
    )

    assert (b"x-cmf-code", b"no.???x: y") in out[0]["headers"]


@pytest.mark.spec("GW-15")
async def test_work_is_cancelled_for_a_client_that_goes_and_by_whoever_cancels_it() -> None:
    went, begun = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def receive() -> MutableMapping[str, Any]:
        if not went.is_set():
            await went.wait()
            return {"type": "http.request"}
        return {"type": "http.disconnect"}

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    asking = asyncio.ensure_future(until_disconnect(receive, work()))
    await begun.wait()
    went.set()
    with pytest.raises(ClientDisconnected):
        await asking

    went.clear()
    begun.clear()
    asking = asyncio.ensure_future(until_disconnect(receive, work()))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert ended == ["work", "work"]


@pytest.mark.spec("GW-33")
def test_a_store_that_cannot_be_asked_for_an_approval_is_503(tmp_path: Path) -> None:
    class Storeless(Guard):
        async def arelease(self, *_: Any, **__: Any) -> Outcome:
            raise StoreError("nobody there", code="store.unreachable", hint="look")

    with Storeless(write_rules(tmp_path / "p", {"none": NONE})) as guard:
        got = served(guard, Pieces(["x"]), headers={"x-cmf-approval-id": "apr_1"})

    assert got.refusal is not None
    assert (got.refusal.status, got.refusal.code, got.refusal.headers["retry-after"]) == (503, "store.unreachable", "5")


@pytest.mark.spec("GW-73", "GW-148")
@pytest.mark.parametrize("dialect", CLIENTS)
def test_a_store_that_cannot_keep_the_link_of_a_stream_ends_it_with_an_error(
    guard: Guard, dialect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep(*_: object) -> None:
        raise StoreError("nobody there", code="store.unreachable", hint="look")

    monkeypatch.setattr(Links, "keep", keep)

    got = served(guard, Pieces(["some words ", "that go out ", "before the end"]), dialect)
    whole = served(guard, Pieces(["some words"]), dialect, window=None)

    assert got.refusal is None
    assert spoken(dialect, got).startswith("some words")
    assert "store.unreachable" in str(events(got)[-1])
    assert whole.refusal is not None
    assert (whole.raw, whole.refusal.status) == (b"", 503)


_KIND = {"content-type": "application/json"}


@pytest.mark.spec("GW-12")
async def test_a_body_of_an_odd_length_a_slow_one_and_one_that_breaks_off() -> None:
    async def slow() -> MutableMapping[str, Any]:
        await asyncio.sleep(30)
        return {}

    async def gone() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(Refusal) as odd_length:
        await body_of(_KIND | {"content-length": "-1"}, slow, Limits(), SharedTimeout(5))
    with pytest.raises(Refusal) as too_slow:
        await body_of(_KIND, slow, Limits(), SharedTimeout(0.01))
    with pytest.raises(ClientDisconnected):
        await body_of(_KIND, gone, Limits(), SharedTimeout(5))

    assert (odd_length.value.status, too_slow.value.status) == (400, 408)


@pytest.mark.spec("GW-13")
def test_a_query_that_says_something_twice_is_400() -> None:
    endpoint = endpoint_of("/v1beta/models/m:streamGenerateContent", [("alt", "sse")], {})
    assert endpoint is not None

    with pytest.raises(Refusal) as caught:
        check_query([("alt", "sse"), ("alt", "sse")], endpoint)

    assert caught.value.status == 400


@pytest.mark.spec("GW-13")
@pytest.mark.parametrize("value", ["xml", "", "SSE"])
def test_a_query_with_a_value_that_is_not_known_is_400(value: str) -> None:
    endpoint = endpoint_of("/v1beta/models/m:streamGenerateContent", [("alt", "sse")], {})
    assert endpoint is not None

    with pytest.raises(Refusal) as caught:
        check_query([("alt", value)], endpoint)

    assert (caught.value.status, caught.value.code) == (400, "http.query")


@pytest.mark.spec("GW-13")
@pytest.mark.parametrize(
    ("name", "shown"),
    [("a\r\nb", "?"), ("\x1b[2J", "?"), ("x" * 65, "?"), ("x" * 64, "x" * 64), ("api_base", "api_base")],
)
def test_a_name_is_repeated_only_if_it_is_short_and_printable(name: str, shown: str) -> None:
    endpoint = endpoint_of("/v1/messages", [], {})
    assert endpoint is not None

    with pytest.raises(Refusal) as caught:
        check_query([(name, "1")], endpoint)

    assert f"`{shown}`" in caught.value.message
