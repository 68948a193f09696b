"""What must hold for every wire format, measured over recorded traffic. Spec: docs/spec/adapters.md [ADP-1] to [ADP-9].

Each `check_*` takes a format's name and records and gives a `Tally`; `Proof` runs them all as tests of one format:

    class TestWire(Proof):
        format_name = "gemini"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cmf.adapters import get
from cmf.errors import CmfError
from cmf.json.frozen import same_spelling
from cmf.views.iterate import iter_views
from tests.cmf.adapters.hostile import check_hostile, hostile_bodies
from tests.cmf.adapters.mediation import check_emitted, check_mediated
from tests.cmf.adapters.streams import check_folded, check_truncation
from tests.cmf.adapters.tally import Tally, cases, decoded, emitted
from tests.cmf.adapters.wiredata import (
    Record,
    Side,
    first_difference,
    records,
    sampled,
)

SAMPLED_SPOTS = 40  # places per body outside `make proof`


def check_accepted(format_name: str, chosen: Iterable[Record]) -> Tally:
    """Everything recorded decodes and gives views; what the provider itself refused (status ≥ 400) may be refused."""
    tally = Tally("accepted")
    adapter = get(format_name)
    for record in chosen:
        for side, body in record.sides:
            problem = ""
            try:
                list(iter_views(decoded(adapter, side, body)))
            except CmfError as error:
                if side == "request" and (record.status or 0) >= 400:
                    tally.count("refused as the provider did")
                else:
                    problem = f"refused: {error}"
            tally.case(f"{record.source} [{side}]", problem)
    return tally


def check_lossless(format_name: str, chosen: Iterable[Record], side: Side) -> Tally:
    """What was decoded encodes to the same JSON, spelling of numbers and absent against null included."""
    tally = Tally(f"lossless {side}s")
    for adapter, where, _, body, context in cases(format_name, chosen, side):
        try:
            again = emitted(adapter, decoded(adapter, side, body, context))
        except CmfError as error:
            tally.case(where, f"refused: {error}")
            continue
        tally.case(where, "" if same_spelling(again, body) else first_difference(again, body))
    return tally


class Proof:
    """The tests that every format passes; a subclass names the format."""

    format_name: ClassVar[str]
    lossless_share: ClassVar[float] = 0.995

    @pytest.fixture
    def chosen(self, proof_scale: float, proof_seed: int) -> list[Record]:
        """The records of this run: all of them in `make proof`."""
        return sampled(records(self.format_name), proof_scale, proof_seed)

    @pytest.fixture
    def at_most(self, proof_scale: float) -> int | None:
        """How many places of one body are tried."""
        return None if proof_scale >= 1 else SAMPLED_SPOTS

    @pytest.mark.spec("ADP-1")
    def test_everything_recorded_is_accepted(self, proof_row: Callable[..., None]) -> None:
        tally = check_accepted(self.format_name, records(self.format_name))
        proof_row(f"{self.format_name}: accepted", n=tally.checked, share=f"{tally.share:.2%}")
        tally.require()

    @pytest.mark.spec("ADP-2")
    @pytest.mark.parametrize("side", ["request", "response"])
    def test_what_was_decoded_encodes_to_the_same_json(self, side: Side, proof_row: Callable[..., None]) -> None:
        tally = check_lossless(self.format_name, records(self.format_name), side)
        proof_row(f"{self.format_name}: lossless {side}s", n=tally.checked, share=f"{tally.share:.2%}")
        tally.require(self.lossless_share)

    @pytest.mark.spec("ADP-3")
    def test_a_stream_folds_to_its_content(self, chosen: list[Record], proof_row: Callable[..., None]) -> None:
        tally = check_folded(self.format_name, chosen)
        proof_row(f"{self.format_name}: folded", n=tally.checked, share=f"{tally.share:.2%}")
        tally.require()

    @pytest.mark.spec("ADP-4")
    def test_a_cut_stream_is_never_complete(
        self, chosen: list[Record], at_most: int | None, proof_seed: int, proof_row: Callable[..., None]
    ) -> None:
        tally = check_truncation(self.format_name, chosen, at_most=at_most, seed=proof_seed)
        proof_row(f"{self.format_name}: truncation", n=tally.checked, share=f"{tally.share:.2%}")
        tally.require()

    @pytest.mark.spec("ADP-5")
    def test_every_string_is_shown_to_policy_or_refused(
        self, chosen: list[Record], at_most: int | None, proof_seed: int, proof_row: Callable[..., None]
    ) -> None:
        tally = check_mediated(self.format_name, chosen, at_most=at_most, seed=proof_seed)
        proof_row(f"{self.format_name}: mediated", n=tally.checked, share=f"{tally.share:.2%}", **tally.counts)
        tally.require()

    @pytest.mark.spec("ADP-8")
    def test_nothing_is_emitted_that_was_not_judged(self, chosen: list[Record], proof_row: Callable[..., None]) -> None:
        tally = check_emitted(self.format_name, chosen)
        proof_row(f"{self.format_name}: emitted", n=tally.checked, unjudged=len(tally.failed))
        tally.require()

    @pytest.mark.spec("ADP-9")
    @settings(suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def test_hostile_json_is_refused_or_read_whole(self, data: st.DataObject) -> None:
        side, body = data.draw(hostile_bodies(self.format_name))
        check_hostile(self.format_name, side, body)
