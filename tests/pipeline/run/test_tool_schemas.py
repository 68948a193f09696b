"""Arguments and the schemas of tools: as calls come, and after every edit."""

from __future__ import annotations

import json
from asyncio import run
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from threading import get_ident
from time import process_time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import calls, returns, says
from tests.pipeline.growth import calls_of, exponent

from cmf import Choice, Message, PromptResultPart, Request, Response, SubjectExtension, ToolDefinition, adapters
from cmf.json.value import replace
from cmf.message.message import ToolCallPart
from pipeline import Config, ConfigError, Context, Pipeline
from pipeline.conversation.history import History
from pipeline.decisions.decision import Action, Mode, Verdict
from pipeline.decisions.events import Events, ToolInputInvalid
from pipeline.provenance.profiles import Profiles
from pipeline.run.outcome import Outcome
from pipeline.run.tool_schemas import SchemaChecks

SCHEMA = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "to": {"type": "string", "pattern": "^[a-z@.]+$"}},
    "required": ["amount"],
}
RULES = {
    "unfit": """\
deny contains {"code": "test.unfit", "reason": "x"} if {
\tsome entry in input.origins
\tentry.fits == false
\tstartswith(input.name, "strict")
}
""",
    "mask": """\
redact contains {"code": "test.mask", "reason": "x", "pointer": "/arguments/to"} if input.arguments.to == "secret@x.com"
redact contains {"code": "test.hash", "reason": "x", "pointer": "/arguments/to", "replacement": "drop"} if {
\tinput.arguments.to == "drop@x.com"
}
""",
    "rewrite": """\
rewrite contains {"code": "test.cap", "reason": "x", "pointer": "/arguments/amount", "value": 100} if {
\tinput.arguments.amount > 100
}
""",
    "word": 'redact contains {"code": "w", "reason": "x", "spans": [[0, 6]]} if startswith(input.content, "hidden")',
}
HERE = Context(subject=SubjectExtension(id="ann"), session="s")
PAY = ToolDefinition(name="pay", input_schema=SCHEMA)
Seen = list[ToolInputInvalid]
SECONDS = 10  # of CPU: far beyond what it takes, and far below what a validation of each call would take


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), RULES, capabilities="read_labels")


@pytest.fixture
def piped(policies: Path) -> Callable[..., tuple[Pipeline, Seen]]:
    def make(**options: Any) -> tuple[Pipeline, Seen]:
        pipeline, seen = Pipeline(policies=policies, **options), []
        pipeline.events.subscribe(lambda event: seen.append(event) if isinstance(event, ToolInputInvalid) else None)
        return pipeline, seen

    return make


@pytest.mark.spec("TOOL-8")
def test_calls_that_were_settled_and_are_looked_at_later_are_not_held_against_schemas() -> None:
    seen: list[object] = []
    events = Events()
    events.subscribe(seen.append)
    request = Request(messages=[calls("pay", {}, "1"), calls("pay", {"amount": "x"}, "2")], tools=[PAY])
    fitting = SchemaChecks(request, cast(History, SimpleNamespace(tools=(), profiles=Profiles())), events)
    paths = [f"messages[{at}].content[0]" for at in range(2)]

    fitting.look(request, {})
    shown = fitting.look(request, {path: [{"path": path}] for path in paths})

    assert all("fits" not in shown[path][0] for path in paths)
    assert seen == []


def offered(arguments: Mapping[str, Any], name: str = "pay", schema: Any = SCHEMA) -> Request:
    tool = ToolDefinition(name=name, input_schema=schema)
    return Request(messages=[says("user", "go"), calls(name, arguments, "1")], tools=[tool])


def fits(outcome: Outcome) -> list[bool]:
    """Of each call, whether policy was not told that it does not fit."""
    return [view.origins[0].get("fits", True) for view in outcome.decision.views if view.origins is not None]


# -- after an edit -----------------------------------------------------------------------------------------------------


@pytest.mark.spec("TOOL-8")
def test_an_edit_that_leaves_a_call_unfit_is_refused(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()

    outcome = pipeline.run(offered({"amount": 1, "to": "secret@x.com"}), HERE)

    assert (outcome.value, outcome.decision.action) == (None, Action.REFUSE)
    (line,) = [view for view in outcome.decision.views if view.outcome is Action.REFUSE]
    assert (line.path, line.hits[-1].code) == ("messages[1].content[0]", "effect.tool-input-invalid")
    assert seen == [ToolInputInvalid(path="messages[1].content[0]", tool="tool://_/pay", problem="$.to")]


@pytest.mark.spec("TOOL-8")
def test_an_edit_after_which_the_call_still_fits_goes_out(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()

    capped = pipeline.run(offered({"amount": 500}))
    dropped = pipeline.run(offered({"amount": 1, "to": "drop@x.com"}))

    assert [one.decision.action for one in (capped, dropped)] == [Action.FORWARD_MODIFIED] * 2
    assert capped.request is not None
    assert capped.request.messages[1].content[0].arguments == {"amount": 100}
    assert seen == []


@pytest.mark.spec("TOOL-8")
def test_an_edit_elsewhere_does_not_make_an_unfit_call_the_edit_s_fault(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, seen = piped()
    request = offered({})

    outcome = pipeline.run(replace(request, messages=(says("user", "hidden"), *request.messages)))

    assert outcome.decision.action is Action.FORWARD_MODIFIED
    assert fits(outcome) == [False]
    assert len(seen) == 1


@pytest.mark.spec("TOOL-8")
def test_in_mode_observe_nothing_is_edited_and_nothing_breaks(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped(config=Config(mode=Mode.OBSERVE))

    assert pipeline.run(offered({"amount": 1, "to": "secret@x.com"})).decision.action is Action.FORWARD
    assert seen == []


# -- as it comes -------------------------------------------------------------------------------------------------------


@pytest.mark.spec("TOOL-7")
def test_policy_sees_that_a_call_does_not_fit_its_schema_and_decides(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, seen = piped()

    loose, strict = pipeline.run(offered({"amount": None})), pipeline.run(offered({"amount": None}, "strict_pay"))

    assert (loose.decision.action, strict.decision.action) == (Action.FORWARD, Action.REFUSE)
    assert fits(loose) == fits(strict) == [False]
    assert [event.problem for event in seen] == ["$.amount", "$.amount"]


@pytest.mark.spec("TOOL-9")
@pytest.mark.parametrize("name", ["multi_tool_use.parallel", "multi_tool_use_parallel", "batch"])
def test_a_call_that_wraps_calls_of_other_tools_is_refused(name: str) -> None:
    inner = [{"recipient_name": "functions.add", "parameters": {"amount": 1}}]
    function = {"name": name, "arguments": json.dumps({"tool_uses": inner})}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    answer = {"model": "gpt-5", "choices": [{"index": 0, "finish_reason": "tool_calls", "message": call}]}
    asked = {"model": "gpt-5", "messages": [{"role": "user", "content": "add"}, call]}
    adapter = adapters.get("openai_chat")

    for traffic in (adapter.from_wire_response(answer), adapter.from_wire_request(asked)):
        decision = Pipeline().run(traffic).decision
        assert [one.code for one in decision.reasons] == ["tools.input-invalid.wrapped"]


@pytest.mark.spec("TOOL-7")
def test_the_shipped_rule_refuses_it_where_the_call_is_about_to_run_and_warns_where_it_is_told() -> None:
    unfit, fit = offered({"amount": "1"}, "add"), offered({"amount": 1}, "add")
    reply = Response(choices=[Choice(message=unfit.messages[1])])
    asked = Context(history=replace(unfit, messages=unfit.messages[:1]))

    run = Pipeline().run(unfit.messages[1], asked).decision
    told = [Pipeline().run(reply, asked).decision, Pipeline().run(unfit).decision]
    passed = [Pipeline().run(fit).decision, Pipeline().run(fit.messages[1], asked).decision]

    assert (run.verdict, [hit.code for hit in run.reasons]) == (Verdict.DENY, ["tools.input-invalid"])
    for decision in told:
        assert "tools.input-invalid.unfit" in [hit.code for hit in decision.hits]
        assert "tools.input-invalid" not in [hit.code for hit in decision.hits]
    assert not [hit for decision in passed for hit in decision.hits if hit.code.startswith("tools.input-invalid")]


# -- arguments that are no strict JSON object --------------------------------------------------------------------------

UNREADABLE = [
    '{"amount": 1, "amount": 5000}',
    '{"amount": 1e400}',
    '{"amount": NaN}',
    '{"amount": 5000,}',
    "[1]",
    "7",
    "{",
]


def chat_call(text: str, id: str = "c") -> dict[str, Any]:
    function = {"name": "pay", "arguments": text}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def chat_reply(text: str) -> Any:
    choice = {"index": 0, "finish_reason": "tool_calls", "message": chat_call(text)}
    body = {"id": "r", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    return adapters.get("openai_chat").from_wire_response(body)


def chat_history(text: str, *more: dict[str, Any]) -> Any:
    asked = {"role": "user", "content": "pay"}
    return adapters.get("openai_chat").from_wire_request({"model": "m", "messages": [asked, chat_call(text), *more]})


RESULT = {"role": "tool", "tool_call_id": "c", "content": "error: no such amount"}


@pytest.mark.spec("TOOL-10")
@pytest.mark.parametrize("text", UNREADABLE)
def test_a_call_that_is_no_strict_json_object_is_refused_whatever_policies_are_loaded(
    piped: Callable[..., tuple[Pipeline, Seen]], text: str
) -> None:
    pipeline, _ = piped()
    call = Message.model_validate({"role": "assistant", "content": [ToolCallPart(name="pay", arguments_raw=text)]})
    both = ToolCallPart(name="pay", arguments={"amount": 1}, arguments_raw=text)
    inner = PromptResultPart(prompt_name="p", messages=[call])
    traffic = [
        chat_reply(text),
        chat_history(text),
        chat_history(text, RESULT, chat_call(text, "other")),
        call,
        replace(call, content=(both,)),
        Message.model_validate({"role": "user", "content": [inner]}),
    ]

    for value in traffic:
        decision = pipeline.run(value).decision
        assert (decision.verdict, decision.action) == (Verdict.DENY, Action.REFUSE)
        assert [(hit.rule, hit.code) for hit in decision.reasons] == [("pipeline", "tool_input_invalid")]


@pytest.mark.spec("TOOL-10")
def test_a_call_that_mcp_makes_is_refused_even_if_a_result_stands_beside_it(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, _ = piped()
    mcp = adapters.get("mcp")
    params = {"name": "pay", "arguments": [1]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    request = mcp.from_wire_request(body)
    answered = replace(
        request, messages=(*request.messages, returns("ok", request.messages[0].content[0].tool_call_id))
    )

    for value in (request, answered):
        assert "tool_input_invalid" in [hit.code for hit in pipeline.run(value).decision.reasons]


@pytest.mark.spec("TOOL-10")
def test_a_call_of_the_history_that_has_its_result_is_judged_as_text(
    piped: Callable[..., tuple[Pipeline, Seen]], tmp_path: Path
) -> None:
    pipeline, _ = piped()
    texts = {"text": 'deny contains {"code": "t", "reason": "x"} if contains(input.content, "5000")'}

    decision = pipeline.run(chat_history('{"amount": 5000,}', RESULT)).decision
    read = Pipeline(policies=write_rules(tmp_path, texts)).run(chat_history('{"amount": 5000,}', RESULT)).decision

    assert (decision.verdict, decision.action) == (Verdict.WARN, Action.FORWARD)
    assert [hit.code for hit in decision.hits] == ["tool_input_invalid"]
    assert [hit.code for hit in read.reasons] == ["t"]
    assert Pipeline().run(chat_history('{"amount": 5000,}', RESULT)).decision.action is not Action.REFUSE


@pytest.mark.spec("TOOL-10")
def test_a_call_whose_result_is_taken_away_is_refused_again(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, _ = piped()

    with_result = pipeline.run(chat_history('{"a": 1,}', RESULT), HERE)
    without = pipeline.run(chat_history('{"a": 1,}', {"role": "user", "content": "go on"}), HERE)

    assert (with_result.decision.action, without.decision.action) == (Action.FORWARD, Action.REFUSE)


@pytest.mark.spec("TOOL-10")
def test_an_operator_can_have_a_finding_instead_which_is_on_record(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, seen = piped(config=Config(unreadable_calls="warn"))

    for value in (chat_reply('{"a": 1,}'), chat_history('{"a": 1,}')):
        outcome = pipeline.run(value)
        assert (outcome.decision.verdict, outcome.decision.action) == (Verdict.WARN, Action.FORWARD)
        assert [(view.path, hit.code) for view in outcome.decision.views for hit in view.hits] == [
            (event.path, "tool_input_invalid") for event in seen[-1:]
        ]
    with pytest.raises(ConfigError, match="unreadable_calls"):
        Config(unreadable_calls="ignore")  # type: ignore[arg-type]


@pytest.mark.spec("PIPE-19")
def test_calls_that_cannot_be_read_and_have_no_result_cost_as_much_each_however_many_there_are(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, _ = piped()
    part = {"content_type": "tool_call", "name": "pay", "arguments_raw": "[1]"}
    few, many = (
        Request(messages=[Message.model_validate({"role": "assistant", "content": [part]})] * count)
        for count in (50, 200)
    )

    grown = exponent(calls_of(partial(pipeline.run, few)), calls_of(partial(pipeline.run, many)), times=4)

    assert grown <= 1.1


@pytest.mark.spec("TOOL-6")
def test_a_schema_that_multiplies_is_not_held_to_one_call_after_the_other(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, seen = piped()
    parts = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(14)}
    schema = {"$defs": {**parts, "d14": {"type": "object"}}, "$ref": "#/$defs/d0"}
    tool = ToolDefinition(name="strict_pay", input_schema=schema)
    begin = process_time()

    outcome = pipeline.run(Request(messages=[calls("strict_pay", {}, f"c{n}") for n in range(300)], tools=[tool]))

    assert process_time() - begin < SECONDS
    assert outcome.decision.action is Action.REFUSE
    assert len(seen) == 299  # what the first one takes is within the limits


@pytest.mark.spec("GW-68")
@pytest.mark.parametrize("session", [None, "s"])
def test_calls_are_held_to_their_schemas_beside_the_event_loop(
    piped: Callable[..., tuple[Pipeline, Seen]], session: str | None
) -> None:
    pipeline, _ = piped()
    threads: list[int] = []
    pipeline.events.subscribe(lambda event: threads.append(get_ident()) if event.type == "tool_input_invalid" else None)

    for value in (offered({}), Response(choices=[Choice(message=calls("pay", {}))])):
        run(pipeline.arun(value, Context(subject=HERE.subject, session=session, history=offered({}))))

    assert len(threads) == 2
    assert get_ident() not in threads


@pytest.mark.spec("TOOL-7")
def test_text_that_is_no_object_is_an_event_too(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()
    call = Message.model_validate({"role": "assistant", "content": [ToolCallPart(name="pay", arguments_raw="{")]})

    outcome = pipeline.run(Request(messages=[call], tools=[PAY]))

    assert fits(outcome) == [True]
    assert [(event.path, event.problem) for event in seen] == [("messages[0].content[0]", "$")]


@pytest.mark.spec("TOOL-7")
def test_a_call_inside_a_rendered_prompt_is_looked_at_too(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()
    prompt = PromptResultPart(prompt_name="p", messages=[calls("pay", {})])

    pipeline.run(Request(messages=[Message.model_validate({"role": "user", "content": [prompt]})], tools=[PAY]))

    assert [event.path for event in seen] == ["messages[0].content[0].messages[0].content[0]"]


@pytest.mark.spec("TOOL-7")
def test_a_reply_is_held_to_the_tools_of_the_request_that_the_context_names(
    piped: Callable[..., tuple[Pipeline, Seen]],
) -> None:
    pipeline, seen = piped()
    reply = Response(choices=[Choice(message=calls("pay", {}))])
    asked = Request(messages=[says("user", "pay")], tools=[PAY])

    assert fits(pipeline.run(reply, Context(history=asked))) == [False]
    assert fits(pipeline.run(reply, Context(history=tuple(asked.messages)))) == [True]
    assert fits(pipeline.run(calls("pay", {}), Context(history=asked))) == [False]
    assert [event.path for event in seen] == ["choices[0].message.content[0]", "content[0]"]


@pytest.mark.spec("TOOL-7")
def test_the_operator_s_schema_is_the_one_that_holds(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    profiles = Profiles.load({"profiles": {"pay": {"input_schema": {"required": ["reason"]}}}})
    pipeline, _ = piped(profiles=profiles)

    assert fits(pipeline.run(offered({"amount": 1}))) == [False]
    assert fits(pipeline.run(offered({"reason": "r"}))) == [True]


@pytest.mark.spec("TOOL-7")
@pytest.mark.parametrize(
    "request_",
    [
        offered({"amount": "1"}, schema={"type": "OBJECT"}),
        offered({"amount": "1"}, schema=None),
        Request(messages=[calls("pay", {})], tools=[replace(PAY, namespace="bank")]),
        Request(
            messages=[
                Message.model_validate(
                    {"role": "assistant", "content": [ToolCallPart(name="pay", executed_by="provider")]}
                )
            ],
            tools=[PAY],
        ),
    ],
)
def test_a_call_without_a_usable_schema_counts_as_fitting(
    piped: Callable[..., tuple[Pipeline, Seen]], request_: Request
) -> None:
    pipeline, seen = piped()

    assert fits(pipeline.run(request_)) == [True]
    assert seen == []


@pytest.mark.spec("TOOL-7")
@pytest.mark.parametrize(
    ("after", "held"),
    [
        ([returns("`amount` is missing", "1")], False),
        (
            [returns("`amount` is missing", "1"), calls("strict_pay", {}, "1")],
            True,
        ),  # the same id again: a call of its own
        ([returns("`amount` is missing", "2")], True),
        ([returns("`amount` is missing", tool_name="pay")], True),
        ([says("user", "try again")], True),
    ],
)
def test_a_call_that_was_answered_is_not_held_any_more(
    piped: Callable[..., tuple[Pipeline, Seen]], after: list[Message], held: bool
) -> None:
    """Agents answer a call that does not fit with an error, and the model tries again; and tools change."""
    pipeline, seen = piped()
    request = offered({}, "strict_pay")

    outcome = pipeline.run(replace(request, messages=(*request.messages, *after)))

    assert (outcome.decision.action is Action.REFUSE) is held
    assert bool(seen) is held


@pytest.mark.spec("TOOL-7")
def test_calls_without_ids_are_answered_in_their_order(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()
    tried = [calls("pay", {}), calls("pay", {}), returns("no", tool_name="pay")]

    pipeline.run(Request(messages=tried, tools=[PAY]))

    assert [event.path for event in seen] == ["messages[1].content[0]"]


@pytest.mark.spec("TOOL-7")
def test_what_went_out_before_is_not_looked_at_again(piped: Callable[..., tuple[Pipeline, Seen]]) -> None:
    pipeline, seen = piped()
    first = offered({})
    later = replace(first, messages=(*first.messages, returns("no", "1"), calls("pay", {"amount": None}, "2")))

    for request in (first, later, later):
        pipeline.run(request, HERE)

    assert [(event.path, event.problem) for event in seen] == [
        ("messages[1].content[0]", "$"),
        ("messages[3].content[0]", "$.amount"),
    ]
