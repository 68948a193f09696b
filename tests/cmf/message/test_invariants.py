"""The rules that hold for every complete message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cmf.message.test_ids import NOW

from cmf import (
    AgentExtension,
    CompletionExtension,
    Extensions,
    ImagePart,
    LLMExtension,
    Message,
    OpaquePart,
    ProvenanceExtension,
    Request,
    Response,
    RoutingExtension,
    TextPart,
    ThinkingPart,
    TokenUsage,
    ToolCallPart,
    ToolDefinition,
    ToolResultPart,
    VideoPart,
)
from cmf.errors import InvariantError, ShapeError
from cmf.message.invariants import validate
from cmf.message.tools import ToolRegistry

IDS = [f"01HZ0000000000000000000{n:03d}" for n in range(9)]
TOOL_ID = f"tu_{IDS[8]}"
RECORDS = Extensions(
    llm=LLMExtension(model_id="anthropic:c", provider="anthropic"),
    routing=RoutingExtension(mode="default", chosen_model="anthropic:c", reason="x"),
    completion=CompletionExtension(tokens=TokenUsage(), cost_usd="0"),
)


def said(role: str, *parts: Any, n: int = 0, **fields: Any) -> Message:
    stamped: dict[str, Any] = {"id": IDS[n], "session_id": "s", "created_at": NOW}
    if role == "assistant":
        stamped["extensions"] = RECORDS
    return Message(role=role, content=parts, **{**stamped, **fields})


def codes(value: Any, **options: Any) -> list[str]:
    return [finding.code for finding in validate(value, "wire", **options)]


def ledger(*messages: Message) -> tuple[str, str]:
    with pytest.raises(InvariantError) as caught:
        validate(messages, "ledger")
    return caught.value.code, caught.value.path


TEXT, CALL, RESULT = (
    TextPart(text="x"),
    ToolCallPart(name="f", tool_call_id=TOOL_ID),
    ToolResultPart(tool_call_id=TOOL_ID),
)
SESSION = (
    said("system"),
    said("user", TEXT, n=1),
    said("assistant", TEXT, CALL, n=2),
    said("tool", RESULT, n=3),
    said("assistant", TEXT, n=4),
)


def test_a_session_as_this_installation_writes_it_holds() -> None:
    assert validate(SESSION, "ledger") == ()
    assert validate(SESSION, "wire") == ()


@pytest.mark.spec("INV-1")
def test_content_is_empty_only_for_instructions() -> None:
    assert [codes(said(role)) for role in ("user", "assistant", "tool")] == [["content.empty"]] * 3
    assert [codes(said(role)) for role in ("system", "developer")] == [[], []]


@pytest.mark.spec("INV-2")
@pytest.mark.parametrize(
    ("role", "part", "fits"),
    [
        ("user", ToolCallPart(name="f"), False),
        ("user", ToolResultPart(), False),
        ("user", ThinkingPart(text="x"), False),
        ("user", VideoPart(type="url", data="u"), True),
        ("assistant", ToolResultPart(), False),
        ("assistant", ToolResultPart(executed_by="provider"), True),
        ("assistant", ImagePart(type="url", data="u"), True),
        ("assistant", VideoPart(type="url", data="u"), False),
        ("system", ImagePart(type="url", data="u"), False),
        ("developer", ToolCallPart(name="f"), False),
        ("tool", TEXT, False),
        *(
            (role, OpaquePart(provider="p", type="t", value={}), True)
            for role in ("system", "user", "assistant", "tool")
        ),
    ],
)
def test_parts_fit_their_role(role: str, part: Any, fits: bool) -> None:
    assert ("content.role" in codes(said(role, part))) is not fits


@pytest.mark.spec("INV-3")
def test_a_tool_message_has_one_part() -> None:
    assert codes(said("tool", ToolResultPart(), ToolResultPart())) == ["content.tool-one-part"]


@pytest.mark.spec("INV-4")
def test_results_answer_calls_that_came_before_and_once() -> None:
    call, result = said("assistant", CALL), said("tool", RESULT)

    assert codes([result, call]) == ["tool-result.unmatched"]
    assert codes([call, result, result]) == ["tool-result.second"]
    assert codes([call, result]) == codes(result) == []
    assert codes(Request(messages=[result, call])) == ["tool-result.unmatched"]
    assert codes(Response(choices=[{"message": call}])) == []


@pytest.mark.spec("INV-5")
def test_arguments_fit_the_registered_tool() -> None:
    registry = ToolRegistry(
        [ToolDefinition(name="f", side_effects="none", input_schema={"properties": {"a": {"type": "string"}}})]
    )

    def found(**fields: Any) -> list[tuple[str, str]]:
        message = said("assistant", ToolCallPart(**{"name": "f", **fields}))
        return [(finding.code, finding.path) for finding in validate(message, "wire", tools=registry)]

    assert found(arguments={"a": 1}) == [("tool-input.schema", "$[0].content[0].arguments.a")]
    assert found(arguments_raw="{") == [("tool-input.invalid", "$[0].content[0].arguments")]
    assert found(arguments={"a": "x"}) == found() == found(name="unknown", arguments={"a": 1}) == []
    assert codes(said("assistant", ToolCallPart(name="f", arguments={"a": 1}))) == []


@pytest.mark.spec("INV-6")
def test_a_twin_is_absent_or_equal() -> None:
    def twins(**slots: Any) -> list[str]:
        extensions = Extensions(**slots)
        return [f.path for f in validate(said("user", TEXT, parent_id=IDS[7], extensions=extensions), "wire")]

    assert twins(provenance=ProvenanceExtension(message_id="other")) == ["$[0].extensions.provenance.message_id"]
    assert twins(provenance=ProvenanceExtension(parent_id="other")) == ["$[0].extensions.provenance.parent_id"]
    assert twins(agent=AgentExtension(session_id="other")) == ["$[0].extensions.agent.session_id"]
    assert twins(provenance=ProvenanceExtension(message_id=IDS[0]), agent=AgentExtension(session_id="s")) == []


@pytest.mark.spec("INV-7")
def test_the_ledger_asks_for_ids_session_and_time() -> None:
    assert ledger(said("user", TEXT, id="m1")) == ("id.not-ulid", "$[0].id")
    assert ledger(said("user", TEXT, id=None)) == ("id.not-ulid", "$[0].id")
    assert ledger(said("user", TEXT, session_id=None)) == ("session.missing", "$[0].session_id")
    assert ledger(said("user", TEXT, created_at=None)) == ("created-at.missing", "$[0].created_at")
    foreign = said("assistant", ToolCallPart(name="f", tool_call_id="toolu_1"))
    assert ledger(foreign) == ("tool-id.not-canonical", "$[0].content[0].tool_call_id")
    assert ledger(said("user", TEXT, n=2), said("user", TEXT, n=1)) == ("id.not-monotonic", "$[1].id")
    assert ledger(said("user", TEXT), said("user", TEXT)) == ("id.not-monotonic", "$[1].id")
    assert ledger(said("user", TEXT), said("user", TEXT, n=1, session_id="t")) == ("session.mixed", "$[1].session_id")
    assert codes(said("user", TEXT, id="m1", session_id=None, created_at=None)) == []


@pytest.mark.spec("INV-8")
@pytest.mark.parametrize(
    ("slot", "value", "code"),
    [
        ("llm", None, "model.missing"),
        ("llm", LLMExtension(model_id="x"), "model.missing"),
        ("routing", None, "routing.missing"),
        ("completion", None, "usage.missing"),
        ("completion", CompletionExtension(tokens=TokenUsage()), "usage.missing"),
    ],
)
def test_the_ledger_asks_for_an_assistants_records(slot: str, value: Any, code: str) -> None:
    extensions = RECORDS.model_copy(update={slot: value})

    assert ledger(said("assistant", TEXT, extensions=extensions))[0] == code
    assert codes(said("assistant", TEXT, extensions=extensions)) == []


@pytest.mark.spec("INV-8")
def test_the_ledger_asks_which_call_a_tool_message_answers() -> None:
    with pytest.raises(InvariantError) as caught:
        validate(said("tool", OpaquePart(provider="p", type="t", value={})), "ledger")
    assert caught.value.code == "tool.no-parent"
    assert said("tool", RESULT).parent_tool_use_id == TOOL_ID
    assert said("user", TEXT).parent_tool_use_id is None


@pytest.mark.spec("INV-9")
@pytest.mark.parametrize("status", ["partial", "cancelled", "error"])
def test_a_message_in_the_making_may_break_any_rule(status: str) -> None:
    assert validate(Message(role="user", content=[ToolResultPart()], status=status), "ledger") == ()


def test_a_profile_that_there_is_not_is_refused_and_not_taken_for_the_lenient_one() -> None:
    with pytest.raises(ShapeError, match="no such profile"):
        validate(Message(role="user", content=[]), "Ledger")  # type: ignore[arg-type]
