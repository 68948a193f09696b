"""The worked examples of the source texts, cell by cell [F3]."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cmf import Message, Request, adapters, iter_views
from cmf.errors import UnsupportedError
from cmf.interop.agent_threads import children, from_agent_threads, leaves, linearise, path_to_root, to_agent_threads
from cmf.json.codec import loads
from cmf.message.ids import IdMap, unstamp
from cmf.message.invariants import validate
from cmf.models.capabilities import ModelCapabilities, check_swap
from cmf.models.pricing import shipped_table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "spec"


def example(name: str) -> dict[str, Any]:
    body: dict[str, Any] = loads((EXAMPLES / name).read_bytes())
    return body


@pytest.mark.spec("EVO-2")
@pytest.mark.parametrize("name", ["metis_8_1.json", "metis_8_2.json", "metis_8_3.json"])
def test_the_metis_examples_are_read_from_version_1_cell_by_cell(name: str) -> None:
    shown = example(name)

    read = [Message.model_validate(message) for message in shown["version_1"]]

    assert [message.model_dump() for message in read] == shown["version_2"]
    assert [Message.model_validate(message) for message in shown["version_2"]] == read
    assert validate(read, "wire") == ()


@pytest.mark.spec("PRICE-1")
def test_the_answer_of_8_1_costs_what_it_says() -> None:
    shown = example("metis_8_1.json")
    _, answer = (Message.model_validate(message) for message in shown["version_1"])

    priced = shipped_table().price(answer)

    assert priced == answer
    assert priced.extensions is not None
    assert priced.extensions.completion is not None
    assert priced.extensions.completion.cost_usd == Decimal(shown["cost_usd"])


def test_the_result_of_8_2_answers_its_call() -> None:
    shown = example("metis_8_2.json")

    read = [Message.model_validate(message) for message in shown["version_1"]]

    assert [message.parent_tool_use_id for message in read] == shown["parent_tool_use_ids"]
    for message, old in zip(read, shown["version_1"], strict=True):
        assert message.parent_tool_use_id == old["metadata"].get("parent_tool_use_id")


@pytest.mark.spec("ID-2")
def test_the_session_of_8_3_goes_to_another_provider() -> None:
    shown = example("metis_8_3.json")
    messages = [*example(shown["before"])["version_1"], *shown["version_1"]]
    request = Request(model="gpt-5", messages=messages)

    wire = adapters.get("openai_chat").to_wire(
        unstamp(request, IdMap.from_json(shown["id_map"]), provider="openai_chat")
    )

    assert wire["messages"] == shown["openai_messages"]
    assert validate(request, "wire") == ()


@pytest.mark.spec("CAP-6")
def test_the_swap_of_8_4_is_refused_in_its_words() -> None:
    shown = example("metis_8_4.json")
    messages = [Message.model_validate(message) for message in shown["messages"]]

    with pytest.raises(UnsupportedError) as caught:
        check_swap(messages, ModelCapabilities.model_validate(shown["capabilities"]), name=shown["target"])

    assert (caught.value.message, caught.value.code, caught.value.path) == (
        shown["refused"],
        shown["code"],
        shown["path"],
    )


@pytest.mark.spec("VIEW-2")
@pytest.mark.spec("VIEW-8")
def test_the_message_of_4_1_gives_the_views_of_its_table() -> None:
    shown = example("cmf_4_1.json")

    views = list(Message.model_validate(shown["message"]).iter_views())

    assert [
        {column: getattr(view, column) for column in row} for view, row in zip(views, shown["views"], strict=True)
    ] == (shown["views"])
    assert [view.is_post for view in views] == [not row["is_pre"] for row in shown["views"]]
    for view, row in zip(views, shown["views"], strict=True):
        given = view.to_opa_input()["input"]
        assert {column: given.get(column) for column in row} == row
    (alone,) = iter_views(Message.model_validate(shown["one_action_a_message"]))
    assert (alone.kind, alone.name, alone.get_arg("id")) == ("tool_call", "get_user", "123")


@pytest.mark.spec("THR-1")
@pytest.mark.spec("THR-4")
@pytest.mark.parametrize("name", ["threads_linear.json", "threads_branched.json"])
def test_the_conversations_of_agent_threads_are_trees(name: str) -> None:
    shown = example(name)

    messages = [from_agent_threads(body) for body in shown["messages"]]

    assert [message.parent_id for message in messages] == shown["parents"]
    assert [message.id for message in children(messages, None)] == shown["roots"]
    assert [message.id for message in leaves(messages)] == shown["leaves"]
    for leaf, line in zip(shown["leaves"], shown["lines"], strict=True):
        branch = path_to_root(messages, leaf)
        assert [message.id for message in branch] == line
        assert linearise(messages, {message.parent_id: str(message.id) for message in branch}) == branch
    assert [to_agent_threads(message) for message in messages] == shown["messages"]


def test_every_example_is_compared() -> None:
    source = Path(__file__).read_text(encoding="utf-8")

    assert [path.name for path in sorted(EXAMPLES.glob("*.json")) if f'"{path.name}"' not in source] == []
