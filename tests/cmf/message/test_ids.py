"""Minting ids in order, and keeping the two names of a tool call together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from tests.cmf.strategies import requests

from cmf import (
    Choice,
    Extensions,
    LLMExtension,
    Message,
    PromptResultPart,
    Request,
    Response,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.errors import ModelIdError, UnknownToolIdError
from cmf.message.digests import content_digest
from cmf.message.ids import NO_PROVIDER, IdMap, Ids, is_ulid, stamp, unstamp
from cmf.message.model_ids import parse_model_id

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def clock() -> datetime:
    return NOW


def conversation() -> Request:
    return Request(
        messages=[
            Message(role="user", content=[TextPart(text="hi")]),
            Message(role="assistant", content=[ToolCallPart(name="f", tool_call_id="toolu_1"), ToolCallPart(name="g")]),
            Message(role="tool", content=[ToolResultPart(tool_name="g", content="2")]),
            Message(role="tool", content=[ToolResultPart(tool_call_id="toolu_1", content="1")]),
        ]
    )


def tool_ids(value: Request) -> list[str | None]:
    return [
        part.tool_call_id
        for message in value.messages
        for part in message.content
        if isinstance(part, ToolCallPart | ToolResultPart)
    ]


@pytest.mark.spec("ID-1")
def test_ids_go_up_within_a_millisecond_and_when_the_clock_steps_back() -> None:
    now = [NOW]
    ids = Ids(lambda: now[0])

    minted = [ids.ulid() for _ in range(1000)]
    now[0] -= timedelta(days=1)
    minted += [ids.ulid() for _ in range(1000)]
    now[0] += timedelta(days=2)
    minted.append(ids.ulid())

    assert minted == sorted(set(minted))
    assert all(len(one) == 26 for one in minted)


@pytest.mark.spec("ID-1")
def test_ids_go_up_when_the_random_part_runs_out() -> None:
    ids = Ids(clock)
    millisecond = int(NOW.timestamp() * 1000)
    ids._last = (millisecond, (1 << 80) - 2)

    last, first = ids.ulid(), ids.ulid()

    assert first > last
    assert ids._last[0] == millisecond + 1


@pytest.mark.spec("ID-1")
def test_ids_of_many_threads_are_all_different_and_each_threads_go_up() -> None:
    ids = Ids(lambda: datetime.now(UTC))

    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: [ids.ulid() for _ in range(2000)], range(8)))

    assert all(run == sorted(run) for run in runs)
    assert len({one for run in runs for one in run}) == 16_000


@pytest.mark.spec("ID-2")
@pytest.mark.spec("ID-4")
def test_stamping_gives_canonical_ids_and_pairs_by_order_and_name() -> None:
    id_map = IdMap()

    stamped = stamp(conversation(), Ids(clock), clock, id_map, provider="anthropic", session_id="s")

    first, second, third, fourth = tool_ids(stamped)
    assert (first, second) == (fourth, third)
    assert first is not None
    assert first.startswith("tu_")
    assert first != second
    assert {message.session_id for message in stamped.messages} == {"s"}
    assert {message.created_at for message in stamped.messages} == {NOW}
    assert [message.id for message in stamped.messages] == sorted(str(message.id) for message in stamped.messages)
    assert tool_ids(unstamp(stamped, id_map, provider="anthropic")) == ["toolu_1", second, second, "toolu_1"]


@pytest.mark.spec("ID-4")
def test_a_value_says_itself_whose_ids_it_has_and_in_which_session_it_stands() -> None:
    ids, id_map = Ids(clock), IdMap()
    called = Message(role="assistant", content=[ToolCallPart(name="f", tool_call_id="call_1")])
    from_ollama = called.model_copy(update={"extensions": Extensions(llm=LLMExtension(provider="ollama"))})
    with_nothing_said = called.model_copy(update={"extensions": Extensions()})

    request = stamp(Request(model="openai:gpt-5", messages=[called], session_id="s"), ids, clock, id_map)
    for value in (from_ollama, called, with_nothing_said, Response(choices=[Choice(message=called)])):
        stamp(value, ids, clock, id_map)

    assert set(id_map.to_canonical) == {"openai", "ollama", NO_PROVIDER}
    assert request.messages[0].session_id == "s"
    assert tool_ids(unstamp(request, id_map)) == ["call_1"]


@pytest.mark.spec("ID-2")
def test_a_call_keeps_its_canonical_id_across_providers_and_a_restart() -> None:
    ids, id_map = Ids(clock), IdMap()
    stamped = stamp(conversation(), ids, clock, id_map, provider="anthropic")
    canonical = str(tool_ids(stamped)[0])
    id_map.link(canonical, "openai", "call_9")

    restored = IdMap.from_json(id_map.to_json())

    assert restored.provider("anthropic", canonical) == "toolu_1"
    assert restored.provider("openai", canonical) == "call_9"
    assert restored.provider("gemini", canonical) == canonical
    assert restored.canonical("openai", "call_9", ids.tool_id) == canonical
    assert restored.canonical("openai", "toolu_1", ids.tool_id) != canonical
    assert restored.canonical("gemini", canonical, ids.tool_id) == canonical


@pytest.mark.spec("ID-4")
def test_results_in_another_order_than_their_calls_answer_the_calls_of_their_names() -> None:
    asked = Message(role="assistant", content=[ToolCallPart(name="f"), ToolCallPart(name="g"), ToolCallPart(name="f")])
    answers = [Message(role="tool", content=[ToolResultPart(tool_name=name)]) for name in ("g", "f", None, "g")]

    stamped = stamp(Request(messages=[asked, *answers]), Ids(clock), clock, IdMap(), provider="gemini")

    first, of_g, second, *answered = tool_ids(stamped)
    assert answered == [of_g, first, second, None]


@pytest.mark.spec("ID-4")
def test_a_result_that_answers_nothing_keeps_no_id() -> None:
    lonely = Request(messages=[Message(role="tool", content=[ToolResultPart(tool_name="f")])])

    assert tool_ids(stamp(lonely, Ids(clock), clock, IdMap(), provider="gemini")) == [None]


@pytest.mark.spec("ID-5")
def test_an_id_of_another_session_is_refused() -> None:
    stamped = stamp(conversation(), Ids(clock), clock, IdMap(), provider="anthropic")

    with pytest.raises(UnknownToolIdError):
        unstamp(stamped, IdMap(), provider="anthropic")


def test_messages_and_responses_are_stamped_to_their_depths() -> None:
    call = Message(role="assistant", content=[ToolCallPart(name="f", tool_call_id="x")])
    nested = Message(
        role="user",
        content=[
            PromptResultPart(prompt_name="p", messages=[call]),
            ToolResultPart(content=(ToolCallPart(name="f", tool_call_id="x"),)),
        ],
    )
    id_map = IdMap()

    response = stamp(Response(choices=[Choice(message=nested)]), Ids(clock), clock, id_map, provider="p")
    alone = stamp(nested, Ids(clock), clock, id_map, provider="p")

    assert response.message.content == alone.content
    assert "tu_" in alone.model_dump_json().decode()
    assert unstamp(alone, id_map, provider="p").content == nested.content


@pytest.mark.spec("ID-3")
def test_a_providers_message_ids_become_ulids_and_come_back() -> None:
    first = Message(role="user", content=[TextPart(text="a")], id="msg_1")
    second = Message(
        role="assistant", content=[ToolCallPart(name="f", tool_call_id="msg_1")], id="msg_2", parent_id="msg_1"
    )
    id_map = IdMap()

    stamped = stamp(Request(messages=[first, second]), Ids(clock), clock, id_map, provider="p")
    restored = IdMap.from_json(id_map.to_json())

    one, two = stamped.messages
    assert is_ulid(one.id)
    assert is_ulid(two.id)
    assert (two.parent_id, one.id == two.id) == (one.id, False)
    assert tool_ids(stamped)[0] not in (one.id, two.id)
    back = unstamp(stamped, restored, provider="p")
    assert [(message.id, message.parent_id) for message in back.messages] == [("msg_1", None), ("msg_2", "msg_1")]
    assert tool_ids(back) == ["msg_1"]
    assert [message.id for message in unstamp(stamped, restored, provider="q").messages] == [one.id, two.id]


@pytest.mark.spec("ID-3")
@pytest.mark.spec("ID-7")
@given(requests)
def test_stamping_twice_is_stamping_once_and_says_the_same(request: Request) -> None:
    ids, id_map = Ids(clock), IdMap()

    once = stamp(request, ids, clock, id_map, provider="openai")

    assert stamp(once, ids, clock, id_map, provider="openai") == once
    assert content_digest(once) == content_digest(request)
    for before, after in zip(request.messages, once.messages, strict=True):
        assert is_ulid(after.id)
        assert before.id == after.id or not is_ulid(before.id)
        assert (before.parent_id is None) == (after.parent_id is None)
        assert before.created_at in (None, after.created_at)
        assert before.session_id in (None, after.session_id)


@pytest.mark.spec("ID-8")
def test_different_amounts_and_texts_never_share_a_digest() -> None:
    def digest(amount: object) -> str:
        return content_digest(Message(role="assistant", content=[ToolCallPart(name="f", arguments={"a": amount})]))

    amounts = [2**53, 2**53 + 1, -(2**60), f"int:{2**53}", f"str:int:{2**53}", "int:", True, 1, 0.5, "1", None, 1e300]

    assert len({digest(amount) for amount in amounts}) == len(amounts)
    assert digest(1) == digest(1.0)
    assert digest(float(2**60)) == digest(1152921504606847000)  # as it is written


@pytest.mark.spec("ID-7")
def test_the_digest_sees_content_and_not_what_was_minted() -> None:
    base = conversation()
    other_ids = Request(
        messages=[
            message.model_copy(
                update={
                    "content": [
                        part.model_copy(update={"tool_call_id": "call_9"})
                        if getattr(part, "tool_call_id", None) == "toolu_1"
                        else part
                        for part in message.content
                    ]
                }
            )
            for message in base.messages
        ]
    )

    assert content_digest(base) == content_digest(other_ids)
    assert content_digest(base) != content_digest(base.with_options(model="x"))
    swapped = Request(messages=[*base.messages[:2], base.messages[3], base.messages[2]])
    assert content_digest(base) != content_digest(swapped)
    message = base.messages[0]
    assert content_digest(message) == content_digest(message.model_copy(update={"id": "x", "status": "partial"}))
    assert message.hash != message.model_copy(update={"id": "x"}).hash


@pytest.mark.spec("ID-9")
def test_model_ids_are_split_at_the_first_colon_only() -> None:
    assert parse_model_id("ollama:minimax-m3:cloud") == ("ollama", "minimax-m3:cloud")
    assert str(parse_model_id("openrouter:deepseek/deepseek-v3")) == "openrouter:deepseek/deepseek-v3"
    for text in ("gpt-5", "openai:", ":x", "Open AI:x", "", "open\n:x"):
        with pytest.raises(ModelIdError):
            parse_model_id(text)
