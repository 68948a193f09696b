"""The seven tests that seed 000 §11.1 asks for, by its numbers [F2]."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest

from cmf import (
    SCHEMA_VERSION,
    Extensions,
    ImagePart,
    LLMExtension,
    Message,
    Request,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    adapters,
)
from cmf.adapters.wire.loss import collecting
from cmf.errors import SchemaVersionError, ToolSchemaError, UnsupportedError
from cmf.json.value import replace
from cmf.message.ids import TOOL_PREFIX, IdMap, Ids, stamp, unstamp
from cmf.message.invariants import validate
from cmf.message.security import is_sensitive
from cmf.message.tools import ToolRegistry
from cmf.models.capabilities import ModelCapabilities, check_swap
from cmf.models.pricing import PriceTable, shipped_table
from tests.golden.record import HERE, NOW, SCRUBBED, cassettes, golden, received, same_bytes, scrubbed, sent

CASSETTES = {cassette["format"]: cassette for cassette in cassettes()}


# -- 1. round trip per provider ----------------------------------------------------------------------------------------


def test_metis_11_1_1_every_format_has_a_cassette_and_a_golden_file() -> None:
    assert set(CASSETTES) == set(adapters.FORMATS)
    assert {path.name for path in HERE.glob("*.golden.jsonl")} == {f"{name}.golden.jsonl" for name in CASSETTES}


@pytest.mark.parametrize("name", CASSETTES)
def test_metis_11_1_1_the_conversation_goes_out_as_recorded(name: str) -> None:
    recorded = CASSETTES[name]["request"]
    request = sent(CASSETTES[name])

    assert same_bytes(request["body"], recorded["body"])
    assert (request["method"], request["path"]) == (recorded["method"], recorded["path"])
    assert request["headers"].items() <= recorded["headers"].items()


@pytest.mark.parametrize("name", CASSETTES)
def test_metis_11_1_1_the_recorded_answer_gives_the_golden_file_to_the_byte(name: str) -> None:
    stored = (HERE / f"{name}.golden.jsonl").read_bytes()

    assert golden(received(CASSETTES[name])) == stored
    messages = [Message.model_validate_json(line) for line in stored.splitlines()]
    assert golden(messages) == stored
    assert validate(messages, "wire") == ()


@pytest.mark.parametrize("name", CASSETTES)
def test_metis_11_1_1_the_answer_goes_back_as_it_came(name: str) -> None:
    body = CASSETTES[name]["response"]["body"]
    adapter = adapters.get(name)

    assert adapter.to_wire_response(adapter.from_wire_response(body)) == body


def test_metis_11_1_1_no_cassette_holds_a_credential() -> None:
    assert scrubbed({"Authorization": "Bearer x", "body": {"note": "key sk-live-0123456789 here"}}) == {
        "Authorization": SCRUBBED,
        "body": {"note": f"key {SCRUBBED} here"},
    }
    for cassette in CASSETTES.values():
        for side in ("request", "response"):
            headers = cassette[side]["headers"]
            assert {text for name, text in headers.items() if is_sensitive(name)} <= {SCRUBBED}
        assert scrubbed(cassette) == cassette
        assert "Authorization" in cassette["request"]["headers"]


# -- 2. continuity across providers ------------------------------------------------------------------------------------

READ = ToolDefinition(name="read_file", input_schema={"type": "object", "properties": {"path": {"type": "string"}}})


def _anthropic(turn: int) -> dict[str, Any]:
    call = {"type": "tool_use", "id": f"toolu_{turn}", "name": "read_file", "input": {"path": f"{turn}.md"}}
    return {
        "id": f"msg_{turn}", "type": "message", "role": "assistant", "model": "claude-sonnet-4-6",
        "content": [{"type": "text", "text": f"turn {turn}"}, call], "stop_reason": "tool_use",
        "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    }  # fmt: skip


def _openai(turn: int) -> dict[str, Any]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"{turn}.md"})}
    call = {"id": f"call_{turn}", "type": "function", "function": function}
    message = {"role": "assistant", "content": f"turn {turn}", "tool_calls": [call]}
    return {
        "id": f"chatcmpl-{turn}", "object": "chat.completion", "created": 1, "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }  # fmt: skip


def _gemini(turn: int) -> dict[str, Any]:
    call = {"functionCall": {"name": "read_file", "args": {"path": f"{turn}.md"}}}
    return {"candidates": [{"content": {"role": "model", "parts": [call]}, "finishReason": "STOP", "index": 0}]}


class Session:
    """A conversation that is persisted after each turn, and read back before the next."""

    def __init__(self) -> None:
        self.ids = Ids(lambda: NOW)
        self.stored = b""
        self.id_map = b"{}"

    def turn(self, provider: str, answer: dict[str, Any], number: int) -> tuple[list[Message], Any]:
        """One turn with `provider`: what is now stored, and what was sent to it."""
        id_map = IdMap.from_json(json.loads(self.id_map))
        messages = [Message.model_validate_json(line) for line in self.stored.splitlines()]
        asked = Message(role="user", content=[TextPart(text=f"question {number}")])
        messages.append(stamp(asked, self.ids, lambda: NOW, id_map, provider=provider, session_id="s"))
        adapter = adapters.get(provider)
        request = Request(model="m", messages=messages, tools=[READ], sampling={"max_output_tokens": 9})
        wire = adapter.to_wire(unstamp(request, id_map, provider=provider))
        response = adapter.from_wire_response(answer, request)
        message = stamp(response, self.ids, lambda: NOW, id_map, provider=provider, session_id="s").message
        (call,) = (part for part in message.content if isinstance(part, ToolCallPart))
        result = ToolResultPart(tool_call_id=call.tool_call_id, tool_name="read_file", content=f"text {number}")
        done = Message(role="tool", content=[result])
        messages += [message, stamp(done, self.ids, lambda: NOW, id_map, provider=provider, session_id="s")]
        self.stored, self.id_map = golden(messages), json.dumps(id_map.to_json()).encode()
        return messages, wire


def test_metis_11_1_2_a_session_goes_on_across_providers() -> None:
    session = Session()
    for turn in range(6):
        provider, answer = (("anthropic_messages", _anthropic), ("openai_chat", _openai))[turn % 2]
        messages, _ = session.turn(provider, answer(turn), turn)
        assert [Message.model_validate_json(line) for line in session.stored.splitlines()] == messages

    messages, wire = session.turn("gemini", _gemini(6), 6)

    assert validate(messages, "wire") == ()
    called = [part.tool_call_id for one in messages for part in one.content if isinstance(part, ToolCallPart)]
    answered = [one.parent_tool_use_id for one in messages if one.role == "tool"]
    assert called == answered
    assert len(set(called)) == 7
    assert all(str(one).startswith(TOOL_PREFIX) for one in called)
    parts = [part for content in wire["contents"] for part in content["parts"]]
    sent_calls = [part["functionCall"]["id"] for part in parts if "functionCall" in part]
    sent_results = [part["functionResponse"]["id"] for part in parts if "functionResponse" in part]
    assert sent_calls == sent_results == called[:6]
    assert [part["functionCall"]["args"] for part in parts if "functionCall" in part] == [
        {"path": f"{turn}.md"} for turn in range(6)
    ]


def test_metis_11_1_2_each_provider_sees_its_own_names_again() -> None:
    session = Session()
    session.turn("anthropic_messages", _anthropic(0), 0)
    session.turn("openai_chat", _openai(1), 1)

    _, wire = session.turn("anthropic_messages", _anthropic(2), 2)

    text = json.dumps(wire)
    assert text.count("toolu_0") == 2
    assert "call_1" not in text
    assert "tu_" in text


# -- 3. capability mismatch --------------------------------------------------------------------------------------------


def test_metis_11_1_3_a_swap_to_a_model_that_cannot_go_on_is_refused() -> None:
    picture = ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png")
    history = [
        Message(role="user", content=[TextPart(text="look"), picture]),
        Message(role="assistant", content=[TextPart(text="a cat")]),
    ]
    text_only = ModelCapabilities(supports_system_prompt=True, supports_tools=True, max_context_tokens=200_000)

    with pytest.raises(UnsupportedError) as caught:
        check_swap(history, text_only, name="Haiku-text-only")

    assert str(caught.value).startswith(
        "Cannot swap to Haiku-text-only: session contains images that this model can't process."
    )
    assert "supports_images" in str(caught.value)
    check_swap(history[1:], text_only, name="Haiku-text-only")


# -- 4. schema migration -----------------------------------------------------------------------------------------------


def test_metis_11_1_4_a_version_1_message_is_read_into_version_2() -> None:
    stored = json.dumps(
        {
            "id": "01HZ0000000000000000000002",
            "session_id": "sess_42",
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "tu_01HZ100", "name": "read_file", "input": {"path": "a"}}],
            "metadata": {"model": "anthropic:claude-sonnet-4-6", "provider": "anthropic"},
            "created_at": "2026-05-08T09:00:00.000001Z",
            "schema_version": 1,
        }
    )

    message = Message.model_validate_json(stored)

    assert message == Message(
        role="assistant",
        content=[ToolCallPart(tool_call_id="tu_01HZ100", name="read_file", arguments={"path": "a"})],
        id="01HZ0000000000000000000002",
        session_id="sess_42",
        created_at="2026-05-08T09:00:00.000001Z",
        extensions=Extensions(llm=LLMExtension(model_id="anthropic:claude-sonnet-4-6", provider="anthropic")),
    )
    assert message.schema_version == SCHEMA_VERSION == 2
    with pytest.raises(SchemaVersionError, match="version 3 is newer than 2"):
        Message.model_validate_json(stored.replace('"schema_version": 1', '"schema_version": 3'))


# -- 5. tool schemas ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("construct", "path"),
    [
        ({"$ref": "#/x"}, "$.properties.a.$ref"),
        ({"oneOf": [{}]}, "$.properties.a.oneOf"),
        ({"anyOf": [{}]}, "$.properties.a.anyOf"),
        ({"allOf": [{}]}, "$.properties.a.allOf"),
        ({"not": {}}, "$.properties.a.not"),
        ({"if": {}}, "$.properties.a.if"),
        ({"then": {}}, "$.properties.a.then"),
        ({"else": {}}, "$.properties.a.else"),
        ({"patternProperties": {}}, "$.properties.a.patternProperties"),
        ({"additionalProperties": {"type": "string"}}, "$.properties.a.additionalProperties"),
    ],
)
def test_metis_11_1_5_a_disallowed_construct_fails_loudly_at_registration(construct: Any, path: str) -> None:
    registry = ToolRegistry()
    tool = ToolDefinition(
        name="read_file", side_effects="read", input_schema={"type": "object", "properties": {"a": construct}}
    )

    with pytest.raises(ToolSchemaError) as caught:
        registry.register(tool)

    assert caught.value.path == path
    assert len(registry) == 0


# -- 6. lossy projection -----------------------------------------------------------------------------------------------

THOUGHT = Message(
    role="assistant",
    content=[ThinkingPart(text="the secret plan"), TextPart(text="hi")],
    id="01HZ0000000000000000000002",
    session_id="sess_42",
)


def test_metis_11_1_6_a_dropped_block_is_one_warning_with_five_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), collecting() as losses:
        wire = adapters.get("openai_chat").to_wire(Request(model="gpt-5", messages=[THOUGHT]))

    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    fields = {name: getattr(record, name) for name in ("session_id", "message_id", "block_type", "adapter", "reason")}
    assert fields | {"reason": ""} == {
        "session_id": "sess_42",
        "message_id": "01HZ0000000000000000000002",
        "block_type": "thinking",
        "adapter": "openai_chat",
        "reason": "",
    }
    assert fields["reason"]
    assert len(losses) == 1
    assert "secret plan" not in json.dumps(wire) + record.getMessage() + str(fields)
    assert wire["messages"] == [{"role": "assistant", "content": "hi"}]


def test_metis_11_1_6_a_dropped_block_is_no_event() -> None:
    """Events belong to the pipeline, and a projection knows nothing of it: it is not even loaded."""
    program = (
        "import sys\n"
        "from cmf import Message, Request, ThinkingPart, adapters\n"
        "message = Message(role='assistant', content=[ThinkingPart(text='x')])\n"
        "adapters.get('openai_chat').to_wire(Request(model='m', messages=[message]))\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'pipeline'])\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.strip() == "[]"
    assert "drops a thinking block" in done.stderr


# -- 7. cost -----------------------------------------------------------------------------------------------------------


def _priced(name: str, model_id: str, times: int, table: PriceTable) -> Decimal:
    response = adapters.get(name).from_wire_response(CASSETTES[name]["response"]["body"])
    assert response.usage is not None
    usage = replace(
        response.usage,
        input_tokens=response.usage.input_tokens * times,
        output_tokens=response.usage.output_tokens * times,
        cached_input_tokens=response.usage.cached_input_tokens * times,
    )
    return table.cost(model_id, usage)


def test_metis_11_1_7_a_known_conversation_costs_what_the_table_says() -> None:
    table = shipped_table()
    costs = {
        name: _priced(name, model_id, 1000, table)
        for name, model_id in (
            ("anthropic_messages", "anthropic:claude-sonnet-4-6"),
            ("openai_chat", "openai:gpt-5"),
            ("openai_responses", "openai:gpt-5"),
            ("ollama", "ollama:llama-3.3-70b"),
        )
    }

    assert costs == {
        # 120k in at 3, 48k out at 15, 1M cached at 0.30
        "anthropic_messages": Decimal("1.38"),
        # 120k in at 1.25 (the wire says 1,120k, cached ones included), 48k out at 10, 1M cached at 0.125
        "openai_chat": Decimal("0.755"),
        "openai_responses": Decimal("0.755"),
        "ollama": Decimal(0),
    }
    assert sum(costs.values()).quantize(Decimal("0.01")) == Decimal("2.89")


def test_metis_11_1_7_the_cost_is_kept_exactly_with_the_message() -> None:
    response = adapters.get("anthropic_messages").from_wire_response(
        CASSETTES["anthropic_messages"]["response"]["body"]
    )
    extensions = Extensions(
        llm=LLMExtension(model_id="anthropic:claude-sonnet-4-6", provider="anthropic"),
        completion={"tokens": response.usage, "latency_ms": 820},
    )
    (choice,) = response.choices
    message = shipped_table().price(choice.message.model_copy(update={"extensions": extensions}))

    again = Message.model_validate_json(message.model_dump_json())

    assert again.extensions is not None
    assert again.extensions.completion is not None
    assert again.extensions.completion.cost_usd == Decimal("0.00138")
    assert again.extensions.completion.pricing_version == "2026-05-08"
