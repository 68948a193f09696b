"""LangChain's agents under a guard: its own graph, a model that plays a script."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.integrations.policies import BOSS, OWN, guard_of

from cmf.adapters import get
from cmf.errors import CmfError, ShapeError
from pipeline import ApprovalRequired, Denied, Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import CallError, ConfigError
from pipeline.integrations import langchain as cmf_langchain

pytest.importorskip("langchain", reason="a development dependency")

from langchain.agents import create_agent
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain.agents.structured_output import ToolStrategy
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from pydantic import BaseModel, Field


class Played(BaseChatModel):
    """Answers with the next of its script, and keeps what it was asked."""

    script: list[Any]
    heard: list[list[BaseMessage]] = Field(default_factory=list)
    offered: list[list[str]] = Field(default_factory=list)
    model_name: str = "played"

    @property
    def _llm_type(self) -> str:
        return "test"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        self.offered.append([one.name if hasattr(one, "name") else one["function"]["name"] for one in tools])
        return self.bind(**kwargs)

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        self.heard.append(messages)
        said = self.script.pop(0)
        return AIMessage(said) if isinstance(said, str) else said

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        for word in str(self._next(messages).content).split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))


def calls(name: str, **args: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": "c1"}])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Approvals]:
    return guard_of(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def guard(made: tuple[Guard, Approvals]) -> Guard:
    return made[0]


def agent_of(guard: Guard, *script: Any, tools: Any = (), **more: Any) -> tuple[Any, Played]:
    model = Played(script=list(script))
    return create_agent(model, list(tools), middleware=[cmf_langchain.middleware(guard)], **more), model


def says(text: Any) -> dict[str, Any]:
    return {"messages": [HumanMessage(text)]}


def shown(model: Played) -> str:
    return str([[message.content for message in one] for one in model.heard])


@pytest.mark.spec("INT-20", "INT-21")
async def test_a_refused_request_does_not_reach_the_model(guard: Guard) -> None:
    agent, model = agent_of(guard, "hello")
    prompted, other = agent_of(guard, "hello", system_prompt="forbidden")

    with pytest.raises(Denied) as caught:
        agent.invoke(says("forbidden"))
    with pytest.raises(Denied):
        await agent.ainvoke(says("forbidden"))
    with pytest.raises(Denied):
        prompted.invoke(says("hi"))

    assert caught.value.code == "no.forbidden"
    assert model.heard == other.heard == []


@pytest.mark.spec("INT-20")
async def test_what_is_asked_and_answered_is_what_policy_left(guard: Guard) -> None:
    agent, model = agent_of(guard, "It is 1234.", "It is 1234.", system_prompt="Keep 1234.")

    blocking = agent.invoke(says("my PIN is 1234"))
    awaited = await agent.ainvoke(says([{"type": "text", "text": "my PIN is 1234"}]))

    assert blocking["messages"][-1].content == awaited["messages"][-1].content == "It is [MASKED]."
    assert "1234" not in shown(model)
    assert shown(model).count("[MASKED]") == 4
    assert blocking["messages"][0].content == "my PIN is 1234", "the state is the host's"


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    "beside",
    [
        {"id": "forbidden"},
        {"usage_metadata": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "forbidden": 1}},
    ],
    ids=list,
)
def test_what_stays_beside_a_message_is_judged_with_it(tmp_path: Path, beside: Any) -> None:
    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "forbidden")'
    with Guard(write_rules(tmp_path, {"seen": rule})) as seeing, pytest.raises(Denied):
        agent_of(seeing, AIMessage("ok", **beside))[0].invoke(says("hi"))


@pytest.mark.spec("INT-20")
def test_what_else_a_model_says_beside_its_message_stays_behind(guard: Guard) -> None:
    beside = AIMessage("ok", additional_kwargs={"thought": "forbidden"}, response_metadata={"x": "forbidden"})
    agent, _ = agent_of(guard, beside)

    left = agent.invoke(says("hi"))["messages"][-1]

    assert "forbidden" not in str(left.model_dump())


@pytest.mark.spec("INT-21")
def test_a_refused_answer_calls_no_tool(guard: Guard) -> None:
    ran: list[Any] = []

    @tool
    def drop_table() -> str:
        """Drop it."""
        ran.append(1)
        return ""

    agent, _ = agent_of(guard, calls("drop_table"), tools=[drop_table])
    with pytest.raises(Denied) as caught:
        agent.invoke(says("hi"))

    assert (caught.value.code, ran) == ("no.drop", [])


@pytest.mark.spec("INT-20", "INT-23")
def test_calls_are_rewritten_results_redacted_and_tools_stripped(guard: Guard) -> None:
    ran: list[Any] = []

    @tool
    def query(limit: int) -> str:
        """Ask."""
        ran.append(limit)
        return "PIN 1234"

    @tool
    def shell() -> str:
        """Run."""
        return ""

    agent, model = agent_of(guard, calls("query", limit=500), "ok", tools=[query, shell])
    result = agent.invoke(says("hi"))

    assert (result["messages"][-1].content, ran) == ("ok", [10])
    assert "1234" not in shown(model)
    assert model.offered == [["query"], ["query"]]


@pytest.mark.spec("INT-21")
def test_a_call_that_waits_for_a_person_is_not_made(made: tuple[Guard, Approvals]) -> None:
    guard, approvals = made
    ran: list[Any] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "done"

    agent, _ = agent_of(guard, calls("pay", amount=5), calls("pay", amount=5), "paid", tools=[pay])
    with guard.session("pay", subject={"id": "ann"}):
        with pytest.raises(ApprovalRequired) as caught:
            agent.invoke(says("pay"))
        assert ran == []
        for one in caught.value.approval_ids:
            approvals.approve(one, BOSS)
        result = agent.invoke(says("pay"))

    assert (result["messages"][-1].content, ran) == ("paid", [5])


@pytest.mark.spec("INT-22")
@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
def test_nothing_of_an_answer_is_streamed_before_it_was_judged(guard: Guard, mode: str) -> None:
    agent, _ = agent_of(guard, "It is 1234.", "The forbidden thing.")

    first = str(list(agent.stream(says("hi"), stream_mode=mode)))
    seen: list[Any] = []
    with pytest.raises(Denied):
        seen.extend(agent.stream(says("hi"), stream_mode=mode))

    assert "1234" not in first
    assert "[MASKED]" in first
    assert "forbidden" not in str(seen)


class Pin(BaseModel):
    """A PIN."""

    pin: str


@pytest.mark.spec("INT-23")
def test_a_structured_answer_is_judged_and_never_half_changed(guard: Guard) -> None:
    agent, _ = agent_of(guard, calls("Pin", pin="99"), response_format=ToolStrategy(Pin))
    assert agent.invoke(says("hi"))["structured_response"] == Pin(pin="99")

    capped = ToolStrategy(Capped)
    other, _ = agent_of(guard, calls("query", limit=500), response_format=capped)
    with pytest.raises(CallError):
        other.invoke(says("hi"))


class Capped(BaseModel):
    """What the rewriting rule looks at."""

    limit: int


Capped.__name__ = "query"


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ("any", "required"),
        ("auto", "auto"),
        ("query", {"type": "function", "function": {"name": "query"}}),
        ({"type": "function", "function": {"name": "query"}}, {"type": "function", "function": {"name": "query"}}),
    ],
)
def test_which_tool_a_model_must_call_is_judged_in_the_words_of_a_chat(choice: Any, told: Any) -> None:
    request: Any = ModelRequest(
        model=Played(script=[]),
        messages=[HumanMessage("hi")],
        tools=[{"type": "function", "function": {"name": "query", "description": "Q.", "parameters": {}}}],
        tool_choice=choice,
    )

    asked = cmf_langchain._ModelCall(request).request

    assert get("openai_chat").to_wire(asked)["tool_choice"] == told


SEARCH: Final = {"type": "web_search_20250305", "name": "web_search"}
MINE: Final = {"name": "web_search", "input_schema": {"type": "object", "properties": {}}}
BASH: Final = {"type": "bash_20250124", "name": "bash"}


def sent(home: Path, *tools: Any, **settings: Any) -> list[Any]:
    """The tools that a model gets of these, under rules about them."""
    judging = cmf_langchain.middleware(Guard(write_rules(home, OWN, kinds="tool_definition")))
    request: Any = ModelRequest(
        model=Played(script=[]), messages=[HumanMessage("hi")], tools=list(tools), model_settings=settings
    )
    got: list[Any] = []

    def handler(left: Any) -> ModelResponse[Any]:
        got.extend(left.tools)
        return ModelResponse(result=[AIMessage("a")])

    judging.wrap_model_call(request, handler)
    return got


@pytest.mark.spec("INT-23")
def test_a_providers_own_tool_is_judged_as_one_and_stripped_beside_one_of_its_name(tmp_path: Path) -> None:
    assert sent(tmp_path, SEARCH, MINE, {"google_search": {}}, BASH) == [MINE, BASH]


@pytest.mark.spec("INT-23")
def test_a_tool_that_no_format_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CmfError):
        sent(tmp_path, {"type": "bash_20250124", "Name": "bash"})


@pytest.mark.spec("INT-25")
@pytest.mark.parametrize("given", [{**MINE, "input_examples": ["1234"]}, {"type": "function", "note": "1234"}])
def test_what_policy_would_cut_out_of_a_definition_is_not_sent(tmp_path: Path, given: dict[str, Any]) -> None:
    given = given if "name" in given else {**given, "function": {"name": "query", "parameters": {}}}

    with pytest.raises(CallError) as refused:
        sent(tmp_path, given)

    assert refused.value.code == "integration.settings-changed"


@pytest.mark.spec("INT-25")
def test_what_stands_beside_a_tool_of_langchain_is_judged_with_it(tmp_path: Path) -> None:
    @tool(extras={"input_examples": ["1234"]})
    def query() -> str:
        """Q."""
        return ""

    with pytest.raises(CallError):
        sent(tmp_path, query)


@pytest.mark.spec("INT-20")
def test_settings_that_would_replace_the_request_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ShapeError) as refused:
        sent(tmp_path, extra_body={"messages": [{"role": "user", "content": "something else"}]})

    assert refused.value.code == "shape.overridden"


@pytest.mark.spec("INT-23")
def test_an_answer_of_several_messages_is_refused(guard: Guard) -> None:
    judging = cmf_langchain.middleware(guard)
    request: Any = ModelRequest(model=Played(script=[]), messages=[HumanMessage("hi")])
    answer: Any = ModelResponse(result=[AIMessage("a"), AIMessage("b")])

    with pytest.raises(CallError, match="not exactly one message"):
        judging.wrap_model_call(request, lambda _: answer)


@pytest.mark.spec("INT-24")
def test_without_the_package_there_is_nothing(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware.types", None)
    with pytest.raises(ConfigError, match="langchain"):
        cmf_langchain.middleware(guard)


@pytest.mark.spec("INT-23", "INT-24")
def test_what_could_go_unjudged_is_refused(guard: Guard) -> None:
    odd = AIMessage(
        "", invalid_tool_calls=[{"name": "pay", "args": "{", "id": "c", "error": None, "type": "invalid_tool_call"}]
    )
    agent, _ = agent_of(guard, odd)
    with pytest.raises(CallError, match="could not be parsed"):
        agent.invoke(says("hi"))
    request: Any = cmf_langchain._without_streaming
    with pytest.raises(ConfigError, match="unjudged"):
        request(Played(script=[]).bind(stop=["x"]))
    with pytest.raises(ConfigError, match="a guard is required"):
        cmf_langchain.middleware(None)  # type: ignore[arg-type]
