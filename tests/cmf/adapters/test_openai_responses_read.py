"""What the items and parameters of a Responses request mean."""

from __future__ import annotations

from typing import Any

import pytest

from cmf.adapters.wire.loss import collecting
from cmf.enums import Role, StopReason
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict
from cmf.json.value import replace
from cmf.message.message import (
    DocumentPart,
    ImagePart,
    OpaquePart,
    Part,
    RedactedThinkingPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from cmf.message.request import Request, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition
from cmf.views.iterate import iter_views
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    FORMAT,
    ITEMS,
    TOOLS,
    answer_body,
    assert_lossless_answer,
    assert_lossless_request,
    message,
    parts_of,
    request_body,
    said,
    written,
)


@pytest.mark.spec("RSP-1")
@pytest.mark.parametrize("given", ["hello", "", [], None])
def test_input_as_a_string_a_list_or_nothing_survives(given: Any) -> None:
    request = assert_lossless_request({"model": "m", "input": given})

    assert len(request.messages) == (1 if isinstance(given, str) else 0)


def test_a_request_without_input_has_none_either_way() -> None:
    assert_lossless_request({"model": "m", "prompt": {"id": "pmpt_1", "variables": {"city": "Paris"}}})


def test_string_input_that_was_edited_beyond_one_text_becomes_a_list() -> None:
    request = ADAPTER.from_wire_request({"model": "m", "input": "hello"})
    edited = replace(request.messages[0], content=(TextPart(text="a"), TextPart(text="b")))

    body = ADAPTER.to_wire(replace(request, messages=(edited,)))

    assert [part["text"] for part in body["input"][0]["content"]] == ["a", "b"]


@pytest.mark.spec("RSP-2")
def test_instructions_are_a_leading_system_message_and_not_an_item() -> None:
    body = request_body({"role": "system", "content": "second"}, instructions="first")

    request = assert_lossless_request(body)

    assert [one.role for one in request.messages] == [Role.SYSTEM, Role.SYSTEM]
    assert request.system == "first\n\nsecond"


@pytest.mark.spec("RSP-2")
@pytest.mark.parametrize("given", ["", None])
def test_empty_and_null_instructions_are_distinguished(given: str | None) -> None:
    request = assert_lossless_request(request_body(ITEMS["easy"], instructions=given))

    assert len(request.messages) == (1 if given is None else 2)


@pytest.mark.spec("RSP-2")
def test_instructions_that_no_longer_lead_become_an_item() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["easy"], instructions="first"))

    body = ADAPTER.to_wire(replace(request, messages=request.messages[::-1]))

    assert "instructions" not in body
    assert [item["role"] for item in body["input"]] == ["user", "system"]


@pytest.mark.spec("RSP-3")
@pytest.mark.parametrize("role", ["critic", "tool", ""])
def test_an_unknown_role_is_refused(role: str) -> None:
    with pytest.raises(UnknownRoleError) as caught:
        ADAPTER.from_wire_request(request_body({"role": role, "content": "x"}))

    assert caught.value.path == "$.input[0].role"


@pytest.mark.spec("RSP-3")
@pytest.mark.parametrize("item", [{"type": "message", "content": "x"}, {"role": 1, "content": "x"}, "x", None, [1]])
def test_a_message_without_a_role_and_an_item_that_is_none_are_refused(item: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        ADAPTER.from_wire_request(request_body(item))

    assert caught.value.path.startswith("$.input[0]")


@pytest.mark.parametrize("body", [None, [], "x", 1])
def test_a_request_that_is_no_object_is_refused(body: Any) -> None:
    with pytest.raises(ShapeError):
        ADAPTER.from_wire_request(body)


@pytest.mark.spec("RSP-3")
def test_the_facts_of_a_message_are_shown_with_its_first_part_and_leave_with_it() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["replayed"]))
    first, second = request.messages[0].content

    views = list(iter_views(request))
    edited = replace(request.messages[0], content=(first.edited(text="redacted"), second))
    item = ADAPTER.to_wire(replace(request, messages=(edited,)))["input"][0]

    assert views[1].properties["extra"][FORMAT]["item"]["phase"] == "final_answer"
    assert "id" not in item
    assert item["content"][0] == {"type": "output_text", "text": "redacted"}


@pytest.mark.spec("RSP-4")
def test_reasoning_becomes_thinking_with_its_seal_on_the_first_part() -> None:
    summary = parts_of(ITEMS["reasoning"])
    aloud = parts_of(ITEMS["open reasoning"])
    sealed = parts_of(ITEMS["sealed reasoning"])

    assert [(part.text, part.signature) for part in summary if isinstance(part, ThinkingPart)] == [
        ("first", "gAAAAAB"),
        ("second", None),
    ]
    assert isinstance(aloud[0], ThinkingPart)
    assert isinstance(sealed[0], RedactedThinkingPart)
    assert isinstance(parts_of(ITEMS["empty reasoning"])[0], OpaquePart)


@pytest.mark.spec("RSP-4")
def test_edited_and_foreign_reasoning_is_not_sent_but_recorded() -> None:
    own = parts_of(ITEMS["reasoning"])[0]
    thoughts = (
        own.edited(text="[redacted]"),
        ThinkingPart(text="theirs", signature="s"),
        RedactedThinkingPart(data="theirs"),
    )

    with collecting() as losses:
        items = written(message(Role.ASSISTANT, *thoughts, TextPart(text="answer")))

    assert items == [{"role": "assistant", "content": "answer"}]
    assert [loss.block_type for loss in losses] == ["thinking", "thinking", "redacted_thinking"]


@pytest.mark.spec("RSP-5")
@pytest.mark.parametrize(
    ("item", "uri", "arguments"),
    [
        ("call", "tool://_/add", {"a": 1, "b": 2.0}),
        ("call in a namespace", "tool://sums/add", {}),
        ("custom call", "tool://_/sql", {"input": "select 1"}),
        ("shell", "tool://_/shell", {"commands": ["ls"], "timeout_ms": 1000, "max_output_length": None}),
        ("patch", "tool://_/apply_patch", {"type": "update_file", "path": "a.txt", "diff": "@@\n-a\n+b"}),
        ("mcp call", "tool://docs/ask", {"q": "x"}),
        ("mcp approval", "tool://docs/ask", {}),
        ("code", "tool://_/code_interpreter", {"code": "1+1", "container_id": "cntr_1"}),
    ],
)
def test_calls_are_shown_as_calls_of_their_tool(item: str, uri: str, arguments: dict[str, Any]) -> None:
    view = list(iter_views(ADAPTER.from_wire_request(request_body(ITEMS[item]))))[1]

    assert (view.kind, view.uri, view.arguments) == ("tool_call", uri, arguments)


@pytest.mark.spec("RSP-5")
def test_arguments_that_are_no_object_stay_raw() -> None:
    call = parts_of(ITEMS["broken call"])[0]

    assert isinstance(call, ToolCallPart)
    assert (call.arguments, call.arguments_raw) == (None, ITEMS["broken call"]["arguments"])


@pytest.mark.spec("RSP-5", "ADP-2")
@pytest.mark.parametrize("given", [{"arguments": ""}, {"arguments": None}, {}])
def test_a_call_without_arguments_shows_an_empty_object_and_keeps_its_spelling(given: dict[str, Any]) -> None:
    item = {"type": "function_call", "call_id": "call_4", "name": "add", **given}

    request = assert_lossless_request(request_body(item))
    answer = assert_lossless_answer(answer_body(item))

    for holder in (request.messages[-1], answer.message):
        (call,) = holder.content
        assert isinstance(call, ToolCallPart)
        assert (call.arguments, call.arguments_raw) == ({}, None)


@pytest.mark.spec("RSP-5")
@pytest.mark.parametrize(("name", "key"), [("shell output", "output"), ("patch output", "output"), ("custom call", "")])
def test_an_edited_call_or_result_stays_an_item_of_its_kind(name: str, key: str) -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS[name]))
    part = request.messages[0].content[0]
    fields = {"content": "[masked]"} if key else {"arguments": FrozenDict({"input": "[masked]"})}
    edited = replace(request.messages[0], content=(part.edited(**fields),))

    (item,) = ADAPTER.to_wire(replace(request, messages=(edited,)))["input"]

    assert item["type"] == ITEMS[name]["type"]
    assert item[key or "input"] == "[masked]"
    assert item["call_id"] == ITEMS[name]["call_id"]


@pytest.mark.spec("RSP-5")
def test_an_edited_call_of_an_answer_stays_one_of_its_kind_unless_parts_moved() -> None:
    response = ADAPTER.from_wire_response(answer_body(said("x"), ITEMS["shell"]))
    text, call = response.message.content
    masked = call.edited(arguments=FrozenDict({"commands": ["[masked]"]}))

    def again(*parts: Part) -> Any:
        message = replace(response.message, content=parts)
        return ADAPTER.to_wire_response(replace(response, choices=(replace(response.choices[0], message=message),)))

    kept = again(text, masked)["output"][1]
    moved = again(masked)["output"][0]
    assert (kept["type"], kept["action"]) == ("shell_call", {"commands": ["[masked]"]})
    assert moved["type"] == "function_call"


@pytest.mark.spec("RSP-6")
def test_what_a_provider_ran_is_a_call_and_its_result_in_one_item() -> None:
    call, result = parts_of(ITEMS["mcp call"])
    _, picture = parts_of(ITEMS["picture"])

    assert isinstance(call, ToolCallPart)
    assert isinstance(result, ToolResultPart)
    assert isinstance(picture, ToolResultPart)
    assert (call.executed_by, result.executed_by, result.content) == ("provider", "provider", "because")
    assert picture.content == (ImagePart(type="base64", data="iVBORw0KGgo=", media_type="image/png"),)


@pytest.mark.spec("RSP-6")
def test_a_shell_that_the_answer_holds_the_output_of_was_run_by_the_provider() -> None:
    run = ADAPTER.from_wire_response(answer_body(ITEMS["shell"], ITEMS["shell output"]))
    asked = ADAPTER.from_wire_response(answer_body(ITEMS["shell"]))

    assert [part.executed_by for part in run.message.content] == ["provider", "provider"]
    assert asked.message.content[0].executed_by == "client"
    assert (run.choices[0].stop_reason, asked.choices[0].stop_reason) == (StopReason.END, StopReason.CALL)


@pytest.mark.spec("RSP-6")
@pytest.mark.parametrize(
    ("own", "runner"),
    [
        ({"environment": {"type": "container_auto"}}, "provider"),
        ({"environment": {"type": "container_reference", "container_id": "cntr_1"}}, "provider"),
        ({"environment": {}}, "provider"),
        ({"environment": "elsewhere"}, "provider"),
        ({"environment": {"type": "local"}}, "client"),
        ({"environment": None}, "client"),
        ({}, "client"),
    ],
)
def test_a_shell_runs_where_its_environment_is(own: dict[str, Any], runner: str) -> None:
    body = request_body(tools=[{"type": "shell", **own}])
    request = ADAPTER.from_wire_request(body)

    assert [tool.executed_by for tool in request.tools] == [runner]
    assert ADAPTER.to_wire(request) == body


@pytest.mark.spec("RSP-6")
def test_a_function_that_the_answer_holds_the_output_of_is_still_the_clients() -> None:
    response = assert_lossless_answer(answer_body(ITEMS["call"], ITEMS["result"], object="response.compaction"))

    assert [part.executed_by for part in response.message.content] == ["client", "client"]


@pytest.mark.spec("RSP-6")
def test_a_result_without_its_hosted_call_is_dropped_and_never_moved() -> None:
    parts = parts_of(ITEMS["mcp call"])

    with collecting() as losses:
        items = written(message(Role.ASSISTANT, parts[1], TextPart(text="so")))

    assert items == [{"role": "assistant", "content": "so"}]
    assert [loss.block_type for loss in losses] == ["tool_result"]


@pytest.mark.spec("RSP-7")
def test_a_result_takes_the_name_of_its_call_and_keeps_its_form() -> None:
    _, plain, listed = parts_of(ITEMS["call"], ITEMS["result"], ITEMS["result in parts"])

    assert isinstance(plain, ToolResultPart)
    assert isinstance(listed, ToolResultPart)
    assert (plain.tool_name, plain.content) == ("add", "3")
    assert [type(part) for part in listed.content] == [TextPart, ImagePart, DocumentPart, OpaquePart]


@pytest.mark.spec("RSP-8")
@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("compaction", Role.ASSISTANT),
        ("reference", Role.USER),
        ("mcp tools", Role.ASSISTANT),
        ("mcp approved", Role.USER),
        ("more tools", Role.DEVELOPER),
        ("tools found", Role.TOOL),
        ("program", Role.ASSISTANT),
        ("program output", Role.TOOL),
    ],
)
def test_items_without_a_canonical_shape_are_opaque(name: str, role: Role) -> None:
    (part,) = parts_of(ITEMS[name])
    (said,) = ADAPTER.from_wire_request(request_body(ITEMS[name])).messages

    assert isinstance(part, OpaquePart)
    assert part.value == ITEMS[name]
    assert said.role is role


@pytest.mark.spec("RSP-9")
def test_tools_come_back_as_they_were_and_each_has_its_view() -> None:
    request = assert_lossless_request(request_body(ITEMS["easy"], tools=TOOLS))

    uris = [view.uri for view in iter_views(request) if view.kind == "tool_definition"]
    assert {"tool://_/add", "tool://_/web_search", "tool://docs/mcp", "tool://crm/find", "tool://crm/note"} <= set(uris)
    assert [tool.executed_by for tool in request.tools].count("provider") == 5  # the last is unheard of


@pytest.mark.spec("RSP-9")
def test_a_tool_stripped_from_a_namespace_leaves_the_others() -> None:
    request = ADAPTER.from_wire_request(request_body(tools=[TOOLS[9]]))
    namespace, _, note = request.tools

    without_one = ADAPTER.to_wire(replace(request, tools=(namespace, note)))
    without_the_namespace = ADAPTER.to_wire(replace(request, tools=(note,)))

    assert without_one["tools"] == [{**TOOLS[9], "tools": [{"type": "custom", "name": "note"}]}]
    assert without_the_namespace["tools"][0]["name"] == "crm"


@pytest.mark.spec("RSP-9")
def test_a_tool_that_another_provider_runs_is_refused() -> None:
    tool = ToolDefinition(name="google_search", type="google_search", executed_by="provider")

    with pytest.raises(UnsupportedError):
        ADAPTER.to_wire(Request(tools=(tool,)))


@pytest.mark.spec("RSP-10")
def test_what_a_request_refers_to_is_shown() -> None:
    by_reference = {
        "previous_response_id": "resp_0",
        "conversation": {"id": "conv_1"},
        "prompt": {"id": "pmpt_1", "version": "2"},
        "background": True,
        "store": False,
    }

    request = assert_lossless_request(request_body(ITEMS["reference"], **by_reference))

    assert next(iter_views(request)).properties["extra"][FORMAT] == by_reference


def test_parameters_have_their_canonical_place() -> None:
    body = request_body(
        ITEMS["easy"],
        temperature=1,
        top_p=0.5,
        max_output_tokens=20,
        stream=True,
        reasoning={"effort": "low", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "out", "schema": {"type": "object"}, "strict": True},
            "verbosity": "low",
        },
        tool_choice={"type": "function", "name": "add"},
    )

    request = assert_lossless_request(body)

    assert request.sampling == Sampling(temperature=1, top_p=0.5, max_output_tokens=20)
    assert (request.reasoning_effort, request.stream) == ("low", True)
    assert (request.response_schema, request.response_schema_name) == ({"type": "object"}, "out")
    assert request.tool_choice == ToolChoice(mode="tool", name="add")


@pytest.mark.parametrize(
    "fields",
    [
        {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "a"}]}},
        {"tool_choice": {"type": "web_search_preview"}},
        {"tool_choice": "whatever"},
        {"tool_choice": None},
        {"text": {"format": {"type": "json_object"}}},
        {"text": {}},
        {"text": {"format": {"type": "json_schema", "schema": {}}}},
        {"reasoning": {}},
        {"reasoning": None},
        {"temperature": True},
        {"temperature": 1.0, "max_output_tokens": None},
        {"tools": None},
        {"tools": []},
        {"tools": ["add"]},
        {"stream": None},
        {"metadata": {"k": "v"}, "include": ["reasoning.encrypted_content"]},
        {"instructions": [{"role": "system", "content": "x"}]},
        {"input": {"role": "user"}},
    ],
)
def test_odd_parameters_survive(fields: dict[str, Any]) -> None:
    assert_lossless_request(request_body(ITEMS["easy"]) | fields)


def test_a_schema_that_is_taken_away_takes_its_switches_with_it() -> None:
    shape = {"type": "json_schema", "name": "out", "schema": {}, "strict": True}
    request = ADAPTER.from_wire_request(request_body(text={"format": shape, "verbosity": "low"}))

    body = ADAPTER.to_wire(replace(request, response_schema=None, response_schema_name=None))

    assert body["text"] == {"verbosity": "low"}


def test_the_model_of_the_call_counts_where_the_body_names_none() -> None:
    request = ADAPTER.from_wire_request({"input": "x"}, model="gpt-5")

    assert request.model == "gpt-5"
    assert ADAPTER.to_wire(request) == {"input": "x"}
    assert ADAPTER.to_http(request).path == "/v1/responses"
    assert ADAPTER.estimate_input_tokens(request) > 0


@pytest.mark.spec("ADP-6")
def test_a_redaction_of_arguments_does_not_come_back_by_layout() -> None:
    request = ADAPTER.from_wire_request(request_body(ITEMS["call"]))
    call = request.messages[0].content[0]
    edited = replace(request.messages[0], content=(call.edited(arguments=FrozenDict({"a": "[masked]", "b": 2.0})),))

    (item,) = ADAPTER.to_wire(replace(request, messages=(edited,)))["input"]

    assert item == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "add",
        "arguments": '{"a":"[masked]","b":2.0}',
    }
