"""What of a run is kept: where stand-ins took the place of secrets is told without a word of the traffic."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.pipeline.conversations import calls, says
from tests.pipeline.run_records import decision, view

from cmf import Message
from pipeline.decisions.context import Context
from pipeline.decisions.errors import ReplayError
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.retention import FOREVER, NEVER, Keep, Span
from pipeline.run.outcome import Basis
from pipeline.run.recorded_input import Entry
from pipeline.run.recording import KeepingContent, Kept

DAY = 86_400 * 1_000_000
BASIS = Basis(SessionFacts(), frozenset(), FOREVER)


def kept(
    message: Message, other: Message | None = None, *, basis: Basis | None = BASIS, days: float | None = None
) -> Kept:
    """What is kept of a message, if masking makes `other` of it."""

    def mask(entry: Entry) -> Entry:
        if other is None:
            raise ReplayError("no", code="replay.unmaskable")
        return replace(entry, traffic=other, masked=True)

    return KeepingContent("claimed", mask, days).of(message, Context(), decision(view()), basis, 5)


@pytest.mark.spec("AUD-72")
@pytest.mark.parametrize(
    ("message", "other", "places"),
    [
        (says("user", "a"), says("user", "a"), ()),
        (says("user", "a"), says("user", "b"), ("/content/traffic/content/0/text",)),
        (says("user", "a"), says("assistant", "a"), ("/content/traffic",)),
        (calls("f", {"alice": "a"}), calls("f", {"alice": "b"}), ("/content/traffic/content/0/arguments",)),
        (calls("f", {"alice": "a"}), calls("f", {"bob": "a"}), ("/content/traffic/content/0/arguments",)),
        (calls("f", {"text": ["a", "b"]}), calls("f", {"text": ["a"]}), ("/content/traffic/content/0/arguments/text",)),
    ],
)
def test_places_end_before_the_first_name_that_is_not_ours(
    message: Message, other: Message, places: tuple[str, ...]
) -> None:
    assert kept(message, other).masked == places


@pytest.mark.spec("AUD-72")
def test_what_cannot_be_masked_is_left_out_with_the_reason() -> None:
    assert kept(says("user", "a")) == Kept(left_out="replay.unmaskable")


@pytest.mark.spec("AUD-77")
@pytest.mark.parametrize("keep", [NEVER, Keep(Span.TRANSIENT), Keep(Span.PERSISTENT, 5)])
def test_what_may_not_be_stored_is_left_out(keep: Keep) -> None:
    assert kept(says("user", "a"), says("user", "b"), basis=BASIS._replace(keep=keep)) == Kept(left_out="retention")


@pytest.mark.spec("AUD-77")
@pytest.mark.parametrize(
    ("keep", "days", "ends"),
    [(FOREVER, None, None), (FOREVER, 2, 5 + 2 * DAY), (Keep(Span.SESSION, 9), 2, 9), (Keep(Span.SESSION, 9), None, 9)],
)
def test_it_is_kept_no_longer_than_either_allows(keep: Keep, days: float | None, ends: int | None) -> None:
    found = kept(says("user", "a"), says("user", "b"), basis=BASIS._replace(keep=keep), days=days).content

    assert found is not None
    assert found.expires_at == ends
