"""Requests of the Messages format. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters import get
from cmf.adapters.wire.loss import collecting
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, same_spelling
from cmf.json.value import replace
from cmf.message.message import Message, TextPart, ToolResultPart
from cmf.message.request import Request, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.views.iterate import iter_views
from tests.cmf.adapters.messages_bodies import ADAPTER, ASK, CALLS, RESULTS, TEXT, said


@pytest.mark.spec("ANT-3")
@pytest.mark.parametrize("role", ["tool", "developer", "User", None, 1])
def test_a_role_of_another_format_is_refused(role: Any) -> None:
    with pytest.raises(UnknownRoleError) as caught:
        ADAPTER.from_wire_request({**ASK, "messages": [{"role": role, "content": "x"}]})

    assert caught.value.path == "$.messages[0].role"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ([], "$"),
        ({}, "$.messages"),
        ({"messages": "x"}, "$.messages"),
        ({"messages": ["x"]}, "$.messages[0]"),
        ({"messages": [{"role": "user"}]}, "$.messages[0].content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "$.messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "$.messages[0].content[0].type"),
        ({"messages": [], "system": {"text": "x"}}, "$.system"),
        ({"messages": [], "tools": {}}, "$.tools"),
        ({"messages": [], "tools": ["x"]}, "$.tools[0]"),
        ({"messages": [], "tools": [{"description": "x"}]}, "$.tools[0].name"),
        ({"messages": [], "tool_choice": {"name": "x"}}, "$.tool_choice.type"),
        ({"messages": [], "output_format": {"type": "json_schema"}}, "$.output_format.schema"),
    ],
)
def test_a_request_that_does_not_fit_is_refused_with_its_path(body: Any, path: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_request(body)

    assert caught.value.path == path


@pytest.mark.spec("ANT-1")
@pytest.mark.parametrize(
    ("system", "texts"),
    [
        ("be brief", ["be brief"]),
        ([{"type": "text", "text": "be brief"}], ["be brief"]),
        (
            [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
            ["a", "b"],
        ),
    ],
)
def test_system_is_one_leading_message_in_the_form_it_came(system: Any, texts: list[str]) -> None:
    request = ADAPTER.from_wire_request({**ASK, "system": system})

    assert request.messages[0].role is Role.SYSTEM
    assert [part.text for part in request.messages[0].content] == texts
    assert ADAPTER.to_wire(request) == {**ASK, "system": system}


@pytest.mark.spec("ANT-1")
@pytest.mark.parametrize("system", [None, "", []])
def test_no_system_text_is_no_message_however_it_is_spelled(system: Any) -> None:
    request = ADAPTER.from_wire_request({**ASK, "system": system})

    assert [message.role for message in request.messages] == [Role.USER]
    assert ADAPTER.to_wire(request) == {**ASK, "system": system}


@pytest.mark.spec("ANT-1")
def test_a_system_message_in_the_list_stays_in_its_place() -> None:
    body = {
        **ASK,
        "messages": [
            {"role": "system", "content": "a"},
            *ASK["messages"],
            {"role": "system", "content": "b"},
            {"role": "system", "output_config": {"effort": "low"}},
        ],
    }

    request = ADAPTER.from_wire_request(body)

    assert [message.role for message in request.messages] == [Role.SYSTEM, Role.USER, Role.SYSTEM, Role.SYSTEM]
    assert ADAPTER.to_wire(request) == body


@pytest.mark.spec("ANT-2")
def test_foreign_system_text_is_moved_to_the_front() -> None:
    system = Message(role=Role.SYSTEM, content=(TextPart(text="a"),))
    developer = Message(role=Role.DEVELOPER, content=(TextPart(text="b"),))

    body = ADAPTER.to_wire(Request(model="m", messages=(system, said("hi"), developer, said("ho"))))

    assert [each["text"] for each in body["system"]] == ["a", "b"]
    assert [message["content"][0]["text"] for message in body["messages"]] == ["hi", "ho"]


@pytest.mark.spec("ANT-2")
def test_foreign_system_text_stays_in_the_middle_for_a_model_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from cmf.adapters.anthropic_messages import bodies
    from cmf.models.capabilities import ModelCapabilities

    able = ModelCapabilities(supports_system_messages_in_list=True)
    monkeypatch.setattr(bodies, "lookup", lambda *_: able)
    system = Message(role=Role.SYSTEM, content=(TextPart(text="a"),))

    body = ADAPTER.to_wire(Request(model="m", messages=(system, said("hi"), system)))

    assert [message["role"] for message in body["messages"]] == ["user", "system"]
    assert body["system"] == [{"type": "text", "text": "a"}]


@pytest.mark.spec("ANT-3")
def test_results_of_one_message_are_a_message_each_and_go_back_together() -> None:
    body = {
        **ASK,
        "messages": [
            {"role": "assistant", "content": CALLS},
            {"role": "user", "content": [RESULTS[0], TEXT, TEXT, RESULTS[1]]},
        ],
    }

    request = ADAPTER.from_wire_request(body)

    assert [message.role for message in request.messages] == [Role.ASSISTANT, Role.TOOL, Role.USER, Role.TOOL]
    assert [part.tool_name for part in request.messages[1].content] == ["do_a"]
    assert ADAPTER.to_wire(request) == body


@pytest.mark.spec("ANT-3")
def test_results_of_two_messages_stay_two_messages() -> None:
    body = {**ASK, "messages": [{"role": "user", "content": [result]} for result in RESULTS]}

    assert ADAPTER.to_wire(ADAPTER.from_wire_request(body)) == body


@pytest.mark.spec("ANT-3")
def test_foreign_results_in_a_row_make_one_message() -> None:
    results = [
        Message(role=Role.TOOL, content=(ToolResultPart(tool_call_id=name, tool_name="f", content=name),))
        for name in "ab"
    ]

    body = ADAPTER.to_wire(Request(model="m", messages=(*results, said("hi"))))

    assert [len(message["content"]) for message in body["messages"]] == [2, 1]


@pytest.mark.spec("ANT-3")
def test_a_result_that_was_taken_out_leaves_the_others() -> None:
    body = {**ASK, "messages": [{"role": "user", "content": [*RESULTS, TEXT]}]}
    request = ADAPTER.from_wire_request(body)

    less = ADAPTER.to_wire(replace(request, messages=request.messages[1:]))

    assert [each["content"] for each in less["messages"]] == [[RESULTS[1]], [TEXT]]


@pytest.mark.spec("ADP-6")
def test_a_redaction_does_not_come_back_and_the_form_stays() -> None:
    body = {**ASK, "system": "my secret", "messages": [{"role": "user", "content": "my secret"}]}
    request = ADAPTER.from_wire_request(body)
    redacted = [
        replace(message, content=tuple(part.edited(text="[gone]") for part in message.content))
        for message in request.messages
    ]

    again = ADAPTER.to_wire(replace(request, messages=tuple(redacted)))

    assert again == {**ASK, "system": "[gone]", "messages": [{"role": "user", "content": "[gone]"}]}


@pytest.mark.spec("ANT-4")
def test_a_tool_of_another_provider_is_refused() -> None:
    tool = ToolDefinition(name="web_search", type="web_search_preview", executed_by="provider")

    with pytest.raises(UnsupportedError):
        ADAPTER.to_wire(Request(model="m", messages=(said("hi"),), tools=(tool,)))


@pytest.mark.spec("ANT-4")
@pytest.mark.parametrize(
    ("tool", "name", "kind", "executed_by"),
    [
        ({"name": "f", "input_schema": {"type": "object"}}, "f", None, "client"),
        ({"type": "custom", "name": "f", "description": None, "strict": True}, "f", None, "client"),
        ({"type": "bash_20250124", "name": "bash"}, "bash", "bash_20250124", "client"),
        (
            {"type": "computer_20250124", "name": "computer", "display_width_px": 1},
            "computer",
            "computer_20250124",
            "client",
        ),
        ({"type": "browser_toolset_20260801"}, "browser_toolset_20260801", "browser_toolset_20260801", "client"),
        (
            {"type": "web_search_20250305", "name": "web_search", "max_uses": None},
            "web_search",
            "web_search_20250305",
            "provider",
        ),
        ({"type": "mcp_toolset", "mcp_server_name": "docs"}, "docs", "mcp_toolset", "provider"),
        ({"type": "brand_new_20300101"}, "brand_new_20300101", "brand_new_20300101", "provider"),
    ],
)
def test_a_tool_says_who_runs_it(tool: dict[str, Any], name: str, kind: str | None, executed_by: str) -> None:
    request = ADAPTER.from_wire_request({**ASK, "tools": [tool]})

    (read,) = request.tools
    assert (read.name, read.type, read.executed_by) == (name, kind, executed_by)
    assert ADAPTER.to_wire(request) == {**ASK, "tools": [tool]}


@pytest.mark.spec("ANT-4")
def test_a_foreign_tool_without_parameters_gets_an_empty_schema() -> None:
    body = ADAPTER.to_wire(Request(model="m", messages=(said("hi"),), tools=(ToolDefinition(name="f"),)))

    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.spec("ANT-5")
@pytest.mark.parametrize(
    ("wire", "choice"),
    [
        ({"type": "auto"}, ToolChoice(mode="auto")),
        ({"type": "any", "disable_parallel_tool_use": True}, ToolChoice(mode="required")),
        ({"type": "none"}, ToolChoice(mode="none")),
        ({"type": "tool", "name": "f"}, ToolChoice(mode="tool", name="f")),
        ({"type": "brand_new"}, None),
        ({"type": "tool"}, None),
    ],
)
def test_a_tool_choice_is_read_or_kept(wire: dict[str, Any], choice: ToolChoice | None) -> None:
    request = ADAPTER.from_wire_request({**ASK, "tool_choice": wire})

    assert request.tool_choice == choice
    assert ADAPTER.to_wire(request) == {**ASK, "tool_choice": wire}


@pytest.mark.spec("ANT-5")
def test_what_rode_along_with_a_tool_choice_leaves_with_it() -> None:
    request = ADAPTER.from_wire_request({**ASK, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}})

    assert "tool_choice" not in ADAPTER.to_wire(replace(request, tool_choice=None))


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


@pytest.mark.spec("ANT-6")
@pytest.mark.parametrize(
    "where",
    [
        {"output_format": {"type": "json_schema", "schema": SCHEMA}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}, "effort": "high"}},
        {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA, "name": "answer"}}},
    ],
)
def test_a_schema_is_read_wherever_it_stands_and_leaves_without_a_trace(where: dict[str, Any]) -> None:
    request = ADAPTER.from_wire_request({**ASK, **where})

    assert request.response_schema == SCHEMA
    assert request.reasoning_effort == where.get("output_config", {}).get("effort")
    assert ADAPTER.to_wire(request) == {**ASK, **where}
    assert "output_format" not in ADAPTER.to_wire(replace(request, response_schema=None))


@pytest.mark.spec("ANT-6")
@pytest.mark.parametrize(
    "odd",
    [
        {"max_tokens": "many"},
        {"max_tokens": 0, "temperature": 1.0, "top_p": 1, "top_k": 5, "stop_sequences": []},
        {"stop_sequences": ["x", 1]},
        {"output_config": {}},
        {"output_config": {"effort": "colossal"}},
        {"output_config": {"format": {"type": "grammar"}}},
        {"output_format": {"type": "grammar"}},
        {"thinking": {"type": "adaptive"}, "container": None, "metadata": {"user_id": "u"}, "stream": False},
        {"tools": None},
        {"tools": [], "tool_choice": None},
    ],
)
def test_odd_values_go_back_as_they_came(odd: dict[str, Any]) -> None:
    body = {**ASK, **odd}

    assert same_spelling(ADAPTER.to_wire(ADAPTER.from_wire_request(body)), body)


@pytest.mark.spec("ANT-6")
def test_what_the_format_cannot_ask_for_is_dropped_with_a_record() -> None:
    sampling = Sampling(seed=1, frequency_penalty=0.5, presence_penalty=0.5, temperature=0.5, stop="x")
    request = Request(
        model="m",
        messages=(said("hi"),),
        sampling=sampling,
        reasoning_effort="minimal",
        response_schema=FrozenDict(SCHEMA),
        response_schema_name="answer",
        extra=FrozenDict({"gemini": {"a": 1}}),
    )

    with collecting() as losses:
        body = ADAPTER.to_wire(request)

    assert {loss.block_type for loss in losses} == {
        "sampling.seed",
        "sampling.frequency_penalty",
        "sampling.presence_penalty",
        "reasoning_effort",
        "response_schema_name",
        "request",
    }
    assert body == {
        "model": "m",
        "max_tokens": 4096,
        "temperature": 0.5,
        "stop_sequences": ["x"],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
    }


@pytest.mark.spec("ANT-7")
def test_a_body_without_a_model_stays_without_one() -> None:
    body = {"anthropic_version": "vertex-2023-10-16", "max_tokens": 1, "messages": []}

    request = ADAPTER.from_wire_request(body, model="claude-sonnet-4-5@20250929")

    assert request.model == "claude-sonnet-4-5@20250929"
    assert ADAPTER.to_wire(request) == body


@pytest.mark.spec("ANT-7")
def test_headers_that_are_facts_are_shown_and_given_back_and_others_are_not() -> None:
    headers = {"Anthropic-Beta": "files-api-2025-04-14", "x-api-key": "sk-1"}

    request = ADAPTER.from_wire_request({**ASK, "system": None}, headers=headers)

    call = ADAPTER.to_http(request)
    assert (call.method, call.path) == ("POST", "/v1/messages")
    assert dict(call.headers) == {"anthropic-version": "2023-06-01", "anthropic-beta": "files-api-2025-04-14"}
    shown = str([view.to_opa_input() for view in iter_views(request)])
    assert "files-api-2025-04-14" in shown
    assert "sk-1" not in shown
    assert ADAPTER.to_wire(request) == {**ASK, "system": None}


@pytest.mark.spec("ANT-10")
@pytest.mark.parametrize("name", ["f", None])
def test_broken_arguments_of_another_format_are_refused_in_a_request(name: str | None) -> None:
    function = {"name": "f", "arguments": '{"a": '}
    call = {"id": "c1", "type": "function", "function": function}
    message = {"role": "assistant", "content": None, "tool_calls": [call], **({"name": name} if name else {})}
    foreign = get("openai_chat").from_wire_request({"model": "m", "messages": [message]})

    with pytest.raises(UnsupportedError):
        ADAPTER.to_wire(foreign)


@pytest.mark.spec("ANT-10")
def test_a_foreign_call_without_arguments_has_an_empty_input() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    foreign = get("openai_chat").from_wire_request({"model": "m", "messages": [message]})

    block = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    assert ADAPTER.to_wire(foreign)["messages"] == [{"role": "assistant", "content": [block]}]


@pytest.mark.spec("ANT-10")
def test_an_input_that_is_text_goes_back_to_its_own_format() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "f", "input": '{"a": '}
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "assistant", "content": [block]}]}

    assert ADAPTER.to_wire(ADAPTER.from_wire_request(body)) == body
