"""Functions as tools: what is refused, before the call and after it."""

from __future__ import annotations

import datetime
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.pipeline.conftest import write_rules
from tests.pipeline.tool_rules import TOOL_RULES

from cmf import Message, TextPart, ToolCallPart
from cmf.json.value import replace
from pipeline import ApprovalRequired, Config, ConfigError, Context, Denied, Guard, PolicyUnavailable, as_stage
from pipeline.decisions.errors import CallError, StoreError, ToolInputError
from pipeline.decisions.events import ToolInputInvalid
from pipeline.sessions.base import MemorySessions


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard(write_rules(tmp_path_factory.mktemp("rules"), TOOL_RULES))


@pytest.mark.spec("GRD-7")
@pytest.mark.parametrize(("to", "error"), [("eve", Denied), ("ask", ApprovalRequired)])
def test_a_call_that_is_refused_is_never_made(guard: Guard, to: str, error: type[Denied | ApprovalRequired]) -> None:
    made = []

    @guard.tool
    def send(to: str) -> str:
        made.append(to)
        return "sent"

    with guard.session("s"), pytest.raises(error) as caught:
        send(to)

    assert made == []
    assert len(caught.value.approval_ids) == (to == "ask")


@pytest.mark.spec("GRD-7")
async def test_no_kind_of_function_runs_before_its_call_is_admitted(guard: Guard) -> None:
    made = []

    @guard.tool
    async def awaited(to: str) -> None:
        made.append(to)

    @guard.tool
    def yields(to: str) -> Iterator[str]:
        made.append(to)
        yield to

    @guard.tool
    async def yields_awaited(to: str) -> AsyncIterator[str]:
        made.append(to)
        yield to

    with pytest.raises(Denied):
        await awaited("eve")
    with pytest.raises(Denied):
        list(yields("eve"))
    with pytest.raises(Denied):
        _ = [item async for item in yields_awaited("eve")]
    assert made == []


@pytest.mark.spec("GRD-7")
@pytest.mark.spec("GRD-14")
def test_a_result_that_is_refused_is_withheld_and_the_error_has_none_of_it(guard: Guard) -> None:
    @guard.tool
    def read() -> dict[str, str]:
        return {"text": "forbidden canary-5521"}

    with pytest.raises(Denied) as caught:
        read()

    error = caught.value
    assert (error.code, error.user_message, error.retryable) == ("test.result", "Not to be read.", False)
    assert (error.decision_id, error.approval_ids) == (error.decision.id, ())
    assert "canary" not in str(error) + repr(error) + json.dumps(error.decision.to_json())


@pytest.mark.spec("GRD-2")
def test_a_tool_is_not_called_while_policy_cannot_be_asked(lenient: Path) -> None:
    class Down(MemorySessions):
        def read(self, context: Context) -> Any:
            raise StoreError("down")

    made = []
    guard = Guard(lenient, sessions=Down())

    @guard.tool
    def send() -> None:
        made.append(1)

    with pytest.raises(PolicyUnavailable) as caught:
        send()

    assert (made, caught.value.retryable) == ([], True)


@pytest.mark.spec("GRD-7")
@pytest.mark.parametrize(
    ("arguments", "path"),
    [({"to": 7}, "$.arguments.to"), ({"to": "x", "count": "many"}, "$.arguments.count"), ({"to": "number"}, ".to")],
)
def test_what_does_not_fit_the_schema_is_not_called(guard: Guard, arguments: dict[str, Any], path: str) -> None:
    """As given, and as a rule rewrote it."""
    seen: list[object] = []
    unsubscribe = guard.events.subscribe(seen.append)

    @guard.tool(namespace="mail")
    def send(to: str, count: int = 1) -> None:
        raise AssertionError("called")

    with pytest.raises(ToolInputError) as caught:
        send(**arguments)
    unsubscribe()

    assert caught.value.code == "tool_input_invalid"
    assert caught.value.path.endswith(path)
    assert [(type(event), event.tool) for event in seen if isinstance(event, ToolInputInvalid)] == [
        (ToolInputInvalid, "tool://mail/send")
    ]


def test_a_schema_that_is_given_counts_and_none_that_is_made(guard: Guard) -> None:
    @guard.tool(schema={"type": "object", "properties": {"to": {"enum": ["ann"]}}})
    def send(to: str) -> str:
        return to

    assert send("ann") == "ann"
    with pytest.raises(ToolInputError):
        send("bob")


@pytest.mark.spec("GRD-7")
def test_an_argument_that_policy_took_out_is_not_replaced_by_a_default(guard: Guard) -> None:
    @guard.tool(schema={})
    def send(to: str = "everybody") -> None:
        raise AssertionError("called")

    with pytest.raises(CallError) as caught:
        send("drop")

    assert caught.value.code == "guard.no-argument"


@pytest.mark.spec("GRD-9")
@pytest.mark.parametrize("value", [object(), b"\xff", float("nan"), {1: object()}, "\ud800", lambda: None])
def test_what_has_no_json_form_is_neither_passed_nor_given_back(guard: Guard, value: Any) -> None:
    made = []

    @guard.tool
    def take(it: Any) -> None:
        made.append(it)

    @guard.tool
    def give():  # type: ignore[no-untyped-def]
        return value

    for call in (lambda: take(value), give):
        with pytest.raises(CallError) as caught:
            call()
        assert caught.value.code == "guard.not-json"
    assert made == []


@pytest.mark.spec("GRD-7")
@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"arguments": None},
        {"arguments_raw": "{}"},
        None,
    ],
)
def test_a_stage_that_makes_another_call_of_it_stops_it(lenient: Path, other: dict[str, Any] | None) -> None:
    def change(message: Message, _: Context) -> Message:
        part = TextPart(text="x") if other is None else replace(message.content[0], **other)
        return message.model_copy(update={"content": (part,)})

    config = Config(unreadable_calls="warn")
    guard = Guard(lenient, stages=[as_stage("change", mode="transform")(change)], config=config)

    @guard.tool
    def send(to: str) -> None:
        raise AssertionError("called")

    with pytest.raises(CallError) as caught:
        send("x")

    assert caught.value.code == "guard.other-call"


def test_a_stage_that_makes_something_else_of_the_result_stops_it(lenient: Path) -> None:
    def change(message: Message, _: Context) -> Message | None:
        if isinstance(message.content[0], ToolCallPart):
            return None
        return message.model_copy(update={"content": (TextPart(text="x"),)})

    guard = Guard(lenient, stages=[as_stage("change", mode="transform")(change)])

    with pytest.raises(CallError) as caught:
        guard.tool(_nothing)()

    assert caught.value.code == "guard.other-result"


def _nothing() -> None:
    return None


def test_arguments_that_a_stage_adds_stop_the_call_where_nothing_takes_them(lenient: Path) -> None:
    def add(message: Message, _: Context) -> Message | None:
        part = message.content[0]
        if not isinstance(part, ToolCallPart):
            return None
        more = part.model_copy(update={"arguments": {**part.arguments, "more": 1}})
        return message.model_copy(update={"content": (more,)})

    guard = Guard(lenient, stages=[as_stage("add", mode="transform")(add)])

    @guard.tool(schema={})
    def closed() -> None:
        raise AssertionError("called")

    @guard.tool
    def open_ended(**fields: Any) -> dict[str, Any]:
        return fields

    with pytest.raises(CallError, match="added an argument"):
        closed()
    assert open_ended(a=2) == {"a": 2, "more": 1}


def test_a_call_whose_arguments_have_one_name_twice_is_not_made(guard: Guard) -> None:
    @guard.tool
    def send(to: str, /, **more: str) -> None:
        raise AssertionError("called")

    with pytest.raises(CallError) as caught:
        send("ann", to="eve")

    assert caught.value.code == "guard.same-name"


def test_a_function_that_cannot_be_a_tool_is_refused_at_decoration(guard: Guard) -> None:
    with pytest.raises(ConfigError) as nameless:
        guard.tool(partial(print))
    with pytest.raises(ConfigError) as unknown:
        guard.tool(private=("self",))(_nothing)

    assert (nameless.value.code, unknown.value.code) == ("guard.no-name", "guard.no-parameter")
    assert guard.tool(name="out")(partial(_nothing))() is None


@pytest.mark.spec("GRD-9")
def test_a_value_that_policy_left_unfit_for_its_type_is_refused(guard: Guard) -> None:
    @guard.tool
    def born() -> datetime.date:
        return datetime.date(2020, 1, 2)

    assert born() == datetime.date(2020, 1, 2)

    @guard.tool
    def kind() -> Keyed:
        return Keyed(key="secret")

    with pytest.raises(CallError) as caught:
        kind()
    assert caught.value.code == "guard.no-value"
    assert "MASKED" not in str(caught.value)


class Keyed(BaseModel):
    key: str

    def model_post_init(self, context: Any) -> None:
        if self.key != "secret":
            raise ValueError(self.key)
