"""The Responses format: the proofs over recorded traffic, and what holds of every kind of item."""

from __future__ import annotations

import pytest

from cmf.adapters import get
from cmf.enums import MessageStatus
from cmf.errors import ShapeError
from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.mediation import unseen_strings
from tests.cmf.adapters.responses_bodies import (
    ADAPTER,
    FORMAT,
    ITEMS,
    TOOLS,
    answer_body,
    assert_lossless_answer,
    assert_lossless_request,
    request_body,
    said,
)
from tests.cmf.adapters.wiredata import CANARY, changed, planted, spots


class TestWire(Proof):
    format_name = FORMAT


@pytest.mark.spec("RSP-1")
@pytest.mark.parametrize("name", ITEMS)
def test_each_item_is_one_message_and_comes_back_as_it_was(name: str) -> None:
    request = assert_lossless_request(request_body(ITEMS[name]))

    assert len(request.messages) == 1


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize("name", [name for name, item in ITEMS.items() if "role" not in item])
def test_each_item_of_an_answer_comes_back_as_it_was_whole_and_streamed(name: str) -> None:
    response = assert_lossless_answer(answer_body(said("before"), ITEMS[name], said("after", id="msg_2")))

    assert len(response.choices) == 1


@pytest.mark.spec("ADP-5")
@pytest.mark.parametrize("name", ITEMS)
def test_no_string_of_any_item_is_hidden_from_policy(name: str) -> None:
    body = request_body(ITEMS[name])

    for spot in spots(body):
        try:
            request = ADAPTER.from_wire_request(planted(body, spot))
        except ShapeError:
            continue
        hidden = unseen_strings({"at": CANARY}, request, frozenset({"at"}))
        assert hidden == [], f"{spot}"


def test_all_items_together_keep_their_order() -> None:
    request = assert_lossless_request(request_body(*ITEMS.values()))

    assert len(request.messages) == len(ITEMS)


def test_the_adapter_is_found_by_its_name() -> None:
    assert get(FORMAT).name == FORMAT
    assert get(FORMAT).capabilities("gpt-unheard-of").supports_tools is False


def test_changing_a_leaf_does_not_change_the_shared_bodies() -> None:
    """The bodies of this file are shared by its tests, so no adapter may change what it is given."""
    body = request_body(*ITEMS.values(), tools=TOOLS)
    before = changed(body, (), lambda whole: str(whole))

    ADAPTER.to_wire(ADAPTER.from_wire_request(body))

    assert str(body) == before


@pytest.mark.spec("RSP-11")
@pytest.mark.parametrize("status", ["failed", "completed", "incomplete", "in_progress"])
def test_a_stream_cut_after_its_status_keeps_the_status(status: str) -> None:
    body = {"object": "response", "id": "r", "status": status, "output": []}
    responses = get("openai_responses")

    response = responses.from_wire_response({**body, "cmf_partial": True})

    assert response.message.status is MessageStatus.PARTIAL
    assert response.choices[0].stop_reason is None
    assert responses.to_wire_response(response) == body
