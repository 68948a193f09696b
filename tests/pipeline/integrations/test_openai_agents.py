"""OpenAI Agents under a guard: its own scripted model and runner. In an environment of its own: `test_packages`."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from tests.pipeline.conftest import write_rules
from tests.pipeline.integrations.policies import BOSS, OWN, guard_of

from cmf.errors import ShapeError
from pipeline import ApprovalRequired, Denied, Guard
from pipeline.approvals.queue import Approvals
from pipeline.decisions.errors import CallError, ConfigError

agents = pytest.importorskip("agents", reason="in an environment of its own")
testing = pytest.importorskip("agents.testing", reason="in an environment of its own")

from pipeline.integrations import openai_agents as cmf_agents  # noqa: E402

agents.set_tracing_disabled(True)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Guard, Approvals]:
    return guard_of(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def guard(made: tuple[Guard, Approvals]) -> Guard:
    return made[0]


def agent_of(guard: Guard, model: Any, *tools: Any, **more: Any) -> Any:
    return agents.Agent(name="a", model=cmf_agents.guarded_model(guard, model), tools=list(tools), **more)


def tool(name: str, ran: list[Any], result: str = "done") -> Any:
    def run(limit: int = 0) -> str:
        ran.append((name, limit))
        return result

    return agents.function_tool(run, name_override=name)


def input_of(model: Any, at: int = -1) -> str:
    return json.dumps(model.calls[at].input)


@pytest.mark.spec("INT-20", "INT-21")
async def test_a_refused_request_does_not_reach_the_model(guard: Guard) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("hello")]])

    with pytest.raises(Denied) as caught:
        await agents.Runner.run(agent_of(guard, model), "forbidden")

    assert caught.value.code == "no.forbidden"
    assert model.calls == ()


@pytest.mark.spec("INT-20")
async def test_what_is_asked_and_answered_is_what_policy_left(guard: Guard) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("It is 1234.")]])

    result = await agents.Runner.run(agent_of(guard, model, instructions="Keep 1234."), "my PIN is 1234")

    assert result.final_output == "It is [MASKED]."
    assert "1234" not in input_of(model)
    assert model.calls[0].system_instructions == "Keep [MASKED]."


@pytest.mark.spec("INT-20")
@pytest.mark.parametrize("beside", [{"response_id": "forbidden"}, {"request_id": "forbidden"}], ids=list)
async def test_what_stands_beside_the_output_is_judged_with_it(tmp_path: Path, beside: Any) -> None:
    class Named(testing.ScriptedModel):  # type: ignore[name-defined, misc]  # not there where types are checked
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            return replace(await super().get_response(*args, **kwargs), **beside)

    rule = 'deny contains {"code": "seen", "reason": "x"} if contains(json.marshal(input), "forbidden")'
    with Guard(write_rules(tmp_path, {"seen": rule})) as seeing, pytest.raises(Denied):
        await agents.Runner.run(agent_of(seeing, Named([[testing.assistant_message("ok")]])), "hi")


@pytest.mark.spec("INT-21")
async def test_a_refused_answer_calls_no_tool(guard: Guard) -> None:
    ran: list[Any] = []
    model = testing.ScriptedModel([[testing.function_call("drop_table", {}, call_id="c1")]])

    with pytest.raises(Denied) as caught:
        await agents.Runner.run(agent_of(guard, model, tool("drop_table", ran)), "hi")

    assert (caught.value.code, ran) == ("no.drop", [])


@pytest.mark.spec("INT-20", "INT-23")
async def test_calls_are_rewritten_results_redacted_and_tools_stripped(guard: Guard) -> None:
    ran: list[Any] = []
    script = [[testing.function_call("query", {"limit": 500}, call_id="c1")], [testing.assistant_message("ok")]]
    model = testing.ScriptedModel(script)
    agent = agent_of(guard, model, tool("query", ran, "PIN 1234"), tool("shell", ran))

    result = await agents.Runner.run(agent, "hi")

    assert (result.final_output, ran) == ("ok", [("query", 10)])
    assert "1234" not in input_of(model)
    assert "[MASKED]" in input_of(model)
    assert [one.name for one in model.calls[0].tools] == ["query"]


@pytest.mark.spec("INT-21")
async def test_a_call_that_waits_for_a_person_is_not_made(made: tuple[Guard, Approvals]) -> None:
    guard, approvals = made
    ran: list[Any] = []
    call = [testing.function_call("pay", {"limit": 5}, call_id="c1")]
    model = testing.ScriptedModel([call, call, [testing.assistant_message("paid")]])
    agent = agent_of(guard, model, tool("pay", ran))

    with guard.session("pay", subject={"id": "ann"}):
        with pytest.raises(ApprovalRequired) as caught:
            await agents.Runner.run(agent, "pay")
        assert ran == []
        for one in caught.value.approval_ids:
            approvals.approve(one, BOSS)
        result = await agents.Runner.run(agent, "pay")

    assert (result.final_output, ran) == ("paid", [("pay", 5)])


@pytest.mark.spec("INT-22")
async def test_a_stream_is_held_until_it_was_judged(guard: Guard) -> None:
    model = testing.ScriptedModel(
        [[testing.assistant_message("It is 1234.")], [testing.assistant_message("The forbidden thing.")]]
    )
    agent = agent_of(guard, model)

    streamed = agents.Runner.run_streamed(agent, "hi")
    events = [event async for event in streamed.stream_events() if event.type == "raw_response_event"]
    refused = agents.Runner.run_streamed(agent, "hi")
    seen: list[Any] = []

    async def heard() -> None:
        async for event in refused.stream_events():
            seen.append(event)

    with pytest.raises(Denied):
        await heard()

    text = "".join(event.data.delta for event in events if event.data.type == "response.output_text.delta")
    assert text == streamed.final_output == "It is [MASKED]."
    assert not any("1234" in str(event) for event in events)
    assert not any("forbidden" in str(event) for event in seen if event.type == "raw_response_event")


class Provider(agents.ModelProvider):  # type: ignore[misc, name-defined]
    def __init__(self, model: Any) -> None:
        self.model = model

    def get_model(self, model_name: str | None) -> Any:
        return self.model


@pytest.mark.spec("INT-20", "INT-24")
async def test_a_runs_configuration_guards_every_model_of_the_run(guard: Guard) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("It is 1234.")]] * 2)
    asked: list[Any] = []

    async def own(data: Any) -> Any:
        asked.append(data)
        return data.model_data

    by_name = cmf_agents.run_config(guard, model_provider=Provider(model), call_model_input_filter=own)
    named = await agents.Runner.run(agents.Agent(name="a", model="gpt"), "PIN 1234", run_config=by_name)
    by_model = cmf_agents.run_config(guard, model=model, call_model_input_filter=lambda data: data.model_data)
    given = await agents.Runner.run(agents.Agent(name="a"), "PIN 1234", run_config=by_model)
    await by_name.model_provider.aclose()

    assert named.final_output == given.final_output == "It is [MASKED]."
    assert len(asked) == 1


@pytest.mark.spec("INT-22")
async def test_no_trace_has_what_was_not_judged(guard: Guard) -> None:
    heard: list[Any] = []

    class Heard(testing.ScriptedModel):  # type: ignore[misc, name-defined]
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            heard.append(kwargs["tracing"])
            return await super().get_response(*args, **kwargs)

    def asked() -> Any:
        return Heard([[testing.function_call("query", {}, call_id="c1")], [testing.assistant_message("It is zebra.")]])

    spans: list[str] = []
    processor = SimpleNamespace(on_span_end=lambda span: spans.append(json.dumps(span.export(), default=str)))
    for name in ("on_trace_start", "on_trace_end", "on_span_start", "shutdown", "force_flush"):
        setattr(processor, name, lambda *_: None)
    agents.set_trace_processors([processor])
    agents.set_tracing_disabled(False)
    try:
        own = agents.Agent(name="a", tools=[tool("query", [], "PIN zebra")])
        config = cmf_agents.run_config(guard, model=asked())
        await agents.Runner.run(own, "PIN zebra", run_config=config)
        await agents.Runner.run(agent_of(guard, asked(), tool("query", [])), "hi")
        told = cmf_agents.run_config(guard, trace_include_sensitive_data=True)
    finally:
        agents.set_tracing_disabled(True)

    assert any('"function"' in span for span in spans)
    assert not any("zebra" in span for span in spans)
    assert not any(one.include_data() for one in heard)
    assert told.trace_include_sensitive_data


@pytest.mark.spec("INT-24")
async def test_an_agent_with_a_model_of_its_own_is_refused_under_that_configuration(guard: Guard) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("hello")]])
    config = cmf_agents.run_config(guard)

    with pytest.raises(ConfigError, match="not guarded"):
        await agents.Runner.run(agents.Agent(name="a", model=model), "hi", run_config=config)
    result = await agents.Runner.run(agent_of(guard, model), "hi", run_config=config)

    assert result.final_output == "hello"
    assert len(model.calls) == 1


@pytest.mark.spec("INT-24")
@pytest.mark.parametrize("make", [cmf_agents.run_config, cmf_agents.guarded_provider])
def test_without_a_guard_there_is_nothing(make: Any) -> None:
    with pytest.raises(ConfigError, match="a guard is required"):
        make(None)
    with pytest.raises(ConfigError, match="a guard is required"):
        cmf_agents.guarded_model(None, testing.ScriptedModel([]))  # type: ignore[arg-type]


@pytest.mark.spec("INT-23")
async def test_settings_and_references_are_judged_with_the_request(guard: Guard, tmp_path: Path) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("hello")]] * 2)
    agent = agent_of(guard, model)

    with pytest.raises(Denied):
        await agents.Runner.run(agent, "hi", previous_response_id="resp_1")
    with pytest.raises(Denied):
        await agents.Runner.run(agent, "hi", conversation_id="conv_1")
    settings = agents.ModelSettings(tool_choice="shell", temperature=0.5)
    ran: list[Any] = []
    with pytest.raises(Denied):
        await agents.Runner.run(agent_of(guard, model, tool("shell", ran), model_settings=settings), "hi")

    assert model.calls == ()


@pytest.mark.spec("INT-23")
async def test_a_providers_own_tool_is_stripped_though_another_has_its_name(tmp_path: Path) -> None:
    guard = Guard(write_rules(tmp_path, OWN, kinds="tool_definition"))
    model = testing.ScriptedModel([[testing.assistant_message("hello")]])
    mine = tool("web_search", [])

    await agents.Runner.run(agent_of(guard, model, agents.WebSearchTool(), mine), "hi")

    assert model.calls[0].tools == [mine]


@pytest.mark.spec("INT-20")
async def test_settings_that_would_replace_the_request_are_refused(guard: Guard) -> None:
    model = testing.ScriptedModel([[testing.assistant_message("hello")]] * 2)
    for settings in ({"extra_body": {"input": "else"}}, {"extra_args": {"previous_response_id": "resp_1"}}):
        own = agents.ModelSettings(**settings)
        with pytest.raises((Denied, ShapeError)):
            await agents.Runner.run(agent_of(guard, model, model_settings=own), "hi")

    assert model.calls == ()


@pytest.mark.spec("INT-23")
async def test_what_is_no_json_is_refused(guard: Guard) -> None:
    class Odd(testing.ScriptedModel):  # type: ignore[misc, name-defined]
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            answer = agents.ModelResponse(output=[], usage=agents.Usage(), response_id=None)
            answer.output.append(object())
            return answer

    with pytest.raises(CallError):
        await agents.Runner.run(agent_of(guard, Odd([])), "hi")


@pytest.mark.spec("INT-20")
async def test_the_schema_of_an_answer_is_judged_as_the_words_that_it_is(guard: Guard, tmp_path: Path) -> None:
    model = testing.ScriptedModel([[testing.assistant_message('{"limit": 5}')]])

    result = await agents.Runner.run(agent_of(guard, model, output_type=Limit), "hi")

    assert result.final_output == Limit(limit=5)
    seen = testing.ScriptedModel([[testing.assistant_message("{}")]])
    rule = 'deny contains {"code": "no.form", "reason": "x"} if contains(json.marshal(input), "final_output")'
    strict = Guard(write_rules(tmp_path, {"form": rule}, kinds="request"))
    with pytest.raises(Denied):
        await agents.Runner.run(agent_of(strict, seen, output_type=Limit), "hi")
    assert seen.calls == ()


class Limit(BaseModel):
    """How many."""

    limit: int


@pytest.mark.spec("INT-23")
async def test_an_item_that_is_no_value_of_the_package_is_refused(guard: Guard) -> None:
    with pytest.raises(CallError) as caught:
        cmf_agents._json_of(object())

    assert caught.value.code == "integration.unsupported"
    assert cmf_agents._json_of({"type": "message"}) == {"type": "message"}
    model = cmf_agents.guarded_model(guard, testing.ScriptedModel([]))
    assert model.get_retry_advice(SimpleNamespace(error=ValueError())) is None
    await model.close()


@pytest.mark.spec("INT-24")
def test_without_the_package_there_is_nothing(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "agents", None)
    with pytest.raises(ConfigError, match="openai-agents"):
        cmf_agents.run_config(guard)
