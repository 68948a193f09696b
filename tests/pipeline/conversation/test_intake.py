"""Labels on messages: nothing is made anew where nothing is added."""

from __future__ import annotations

import pytest
from tests.pipeline.conversations import says

from cmf import Request
from pipeline.conversation.intake import stamp
from pipeline.decisions.context import labelled
from pipeline.decisions.traffic import labels_of


@pytest.mark.spec("PIPE-4")
def test_a_request_whose_messages_each_have_their_labels_stays_the_same_object() -> None:
    first, second = labelled(says("user", "one"), frozenset("a")), labelled(says("user", "two"), frozenset("ab"))
    request = Request(messages=[first, second])

    assert stamp(request, {"messages[0]": frozenset("a"), "messages[1]": frozenset("b")}) is request
    assert stamp(request, {"messages[0]": frozenset("b")}) is not request


@pytest.mark.spec("PIPE-4")
def test_messages_between_two_that_have_a_label_get_it_too() -> None:
    label = frozenset("a")
    request = Request(messages=[says("user", "one"), says("user", "two"), labelled(says("user", "three"), label)])

    stamped = stamp(request, {"messages[0]": label, "messages[2]": label})

    assert isinstance(stamped, Request)
    assert [labels_of(message) for message in stamped.messages] == [label] * 3
