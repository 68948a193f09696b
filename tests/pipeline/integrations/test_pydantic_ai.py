"""pydantic-ai under a guard: its own runner, a model that a function plays."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.pipeline.integrations.policies import BOSS, guard_of

from pipeline import ApprovalRequired, Denied, Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import CallError, ConfigError
from pipeline.integrations import pydantic_ai as cmf_pydantic

pytest.importorskip("pydantic_ai", reason="a development dependency")

from pydantic_ai import Agent, BinaryContent, ImageUrl
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturn,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.realtime import RealtimeModel

PNG = b"\x89PNG\r\n\x1a\n0000"


class Played:
    """Answers with the next of its script, and keeps what it was asked."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.heard: list[str] = []
        self.tools: list[list[str]] = []
        self.model = FunctionModel(self.answer, stream_function=self.stream)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        # Without the moments: their digits are whatever the clock says.
        self.heard.append(re.sub(r"datetime\.datetime\([^)]*\)", "", f"{messages} {info.instructions}"))
        self.tools.append([tool.name for tool in info.function_tools])
        said = self.script.pop(0)
        return ModelResponse(parts=[TextPart(said)] if isinstance(said, str) else said)

    async def stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for part in self.answer(messages, info).parts:
            if isinstance(part, ToolCallPart):
                yield {0: DeltaToolCall(name=part.tool_name, json_args=part.args_as_json_str())}
            else:
                for at in range(0, len(part.content), 3):
                    yield part.content[at : at + 3]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Approvals]:
    return guard_of(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def guard(made: tuple[Guard, Approvals]) -> Guard:
    return made[0]


def agent_of(guard: Guard, played: Played, **more: Any) -> Agent[None, str]:
    return Agent(played.model, capabilities=[cmf_pydantic.capability(guard)], **more)


@pytest.mark.spec("INT-20", "INT-21")
@pytest.mark.parametrize("where", ["prompt", "instructions", "system_prompt"])
async def test_a_refused_request_does_not_reach_the_model(guard: Guard, where: str) -> None:
    played = Played("hello")
    more = {} if where == "prompt" else {where: "forbidden"}

    with pytest.raises(Denied) as caught:
        await agent_of(guard, played, **more).run("forbidden" if where == "prompt" else "hi")

    assert caught.value.code == "no.forbidden"
    assert played.heard == []


@pytest.mark.spec("INT-20")
async def test_what_is_asked_and_answered_is_what_policy_left(guard: Guard) -> None:
    played = Played("It is 1234.", [ThinkingPart("1234?"), TextPart("ok")])
    agent = agent_of(guard, played, instructions="Keep 1234.", system_prompt="Or 1234.")

    result = await agent.run(["my PIN is 1234", "really", BinaryContent(PNG, media_type="image/png")])
    again = await agent.run("1234", message_history=result.all_messages())

    assert (result.output, again.output) == ("It is [MASKED].", "ok")
    assert "1234" not in "".join(played.heard)
    assert played.heard[0].count("[MASKED]") == 3
    thoughts = [part for part in again.new_messages()[-1].parts if isinstance(part, ThinkingPart)]
    assert [part.content for part in thoughts] == ["[MASKED]?"]


@pytest.mark.spec("INT-21")
async def test_a_refused_answer_calls_no_tool(guard: Guard) -> None:
    ran: list[Any] = []
    agent = agent_of(guard, Played([ToolCallPart("drop_table", {})]))
    agent.tool_plain(name="drop_table")(lambda: ran.append(1))

    with pytest.raises(Denied) as caught:
        await agent.run("hi")

    assert (caught.value.code, ran) == ("no.drop", [])


@pytest.mark.spec("INT-20", "INT-23")
async def test_calls_are_rewritten_results_redacted_and_tools_stripped(guard: Guard) -> None:
    ran: list[Any] = []
    played = Played([TextPart("I look."), ToolCallPart("query", {"limit": 500})], "ok")
    agent = agent_of(guard, played)

    @agent.tool_plain
    def query(limit: int) -> dict[str, str]:
        ran.append(limit)
        return {"pin": "1234"}

    @agent.tool_plain
    def shell() -> str:
        return ""

    result = await agent.run("hi")

    assert (result.output, ran) == ("ok", [10])
    assert "1234" not in played.heard[1]
    assert played.tools == [["query"], ["query"]]


@pytest.mark.spec("INT-21")
async def test_a_call_that_waits_for_a_person_is_not_made(made: tuple[Guard, Approvals]) -> None:
    guard, approvals = made
    ran: list[Any] = []
    call = [ToolCallPart("pay", {"amount": 5}, tool_call_id="c1")]
    agent = agent_of(guard, Played(call, call, "paid"))

    @agent.tool_plain
    def pay(amount: int) -> str:
        ran.append(amount)
        return "done"

    with guard.session("pay", subject={"id": "ann"}):
        with pytest.raises(ApprovalRequired) as caught:
            await agent.run("pay")
        assert ran == []
        for one in caught.value.approval_ids:
            approvals.approve(one, BOSS)
        result = await agent.run("pay")

    assert (result.output, ran) == ("paid", [5])


@pytest.mark.spec("INT-22")
async def test_a_stream_is_held_until_it_was_judged(guard: Guard) -> None:
    agent = agent_of(guard, Played("It is 1234.", "The forbidden thing."))
    seen: list[str] = []

    async def heard() -> None:
        async with agent.run_stream("hi") as stream:
            async for text in stream.stream_text(delta=True, debounce_by=None):
                seen.append(text)

    await heard()
    assert "".join(seen) == "It is [MASKED]."
    seen.clear()
    with pytest.raises(Denied):
        await heard()
    assert seen == []


@pytest.mark.spec("INT-22")
def test_the_blocking_runner_is_judged_alike(guard: Guard) -> None:
    loop = asyncio.new_event_loop()  # it leaves its own open
    asyncio.set_event_loop(loop)
    try:
        assert agent_of(guard, Played("It is 1234.")).run_sync("hi").output == "It is [MASKED]."
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.spec("INT-23")
async def test_what_cannot_be_judged_is_not_sent(guard: Guard) -> None:
    played = Played([ToolCallPart("picture", {})], "ok", [FilePart(BinaryContent(b"x", media_type="video/x"))])
    agent = agent_of(guard, played)
    agent.tool_plain(name="picture")(lambda: ToolReturn(return_value=BinaryContent(PNG, media_type="image/png")))

    with pytest.raises(CallError):
        await agent.run("hi")
    assert len(played.heard) == 1


@pytest.mark.spec("INT-23")
async def test_nothing_of_the_model_is_asked_past_the_guard(guard: Guard) -> None:
    played = Played()
    model: Any = cmf_pydantic.guarded_model(guard, played.model)

    with pytest.raises(CallError):
        await model.count_tokens([], None, None)
    with pytest.raises(CallError):
        await model.compact_messages(None)
    with pytest.raises(CallError):
        _ = model.batch_max_requests
    assert played.heard == []


class Spoken(RealtimeModel):
    """Connects to nothing, and says that it was asked to."""

    model_name = "spoken"
    system = "test"

    def connect(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it was connected")


@pytest.mark.spec("INT-24")
async def test_a_realtime_session_is_not_begun(guard: Guard) -> None:
    spoken = agent_of(guard, Played()).realtime(Spoken())

    with pytest.raises(CallError, match="a realtime session"):
        async with spoken.session():
            pass
    with pytest.raises(CallError, match="a realtime session"):
        await spoken.answer_webrtc_offer("v=0")


@pytest.mark.spec("INT-20")
async def test_media_by_address_is_judged(guard: Guard) -> None:
    played = Played("ok")

    result = await agent_of(guard, played).run(["see", ImageUrl("https://images.example/a.png")])

    assert result.output == "ok"


@pytest.mark.spec("INT-24")
def test_without_a_guard_there_is_nothing() -> None:
    with pytest.raises(ConfigError, match="a guard is required"):
        cmf_pydantic.capability(None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="a guard is required"):
        cmf_pydantic.guarded_model("guard", Played().model)  # type: ignore[arg-type]
