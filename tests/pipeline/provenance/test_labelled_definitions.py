"""What is inferred of tools that other people wrote agrees with what a careful reader says of them.

The shares are what was reached, so that no change makes it worse unseen; docs/efficacy.md has the figures.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.tool_definitions import compare

DEFINITIONS = Path(__file__).resolve().parents[3] / "bench" / "definitions"


@pytest.mark.spec("PRF-15")
@pytest.mark.parametrize(("half", "share"), [("dev", 0.95), ("held_back", 0.91)])
def test_what_acts_and_what_reads_is_told_as_a_reader_tells_it(half: str, share: float) -> None:
    acts = compare(DEFINITIONS / f"{half}.jsonl").facts["acts"]

    assert acts.share >= share
    assert acts.lax <= acts.strict


@pytest.mark.spec("PRF-16")
@pytest.mark.parametrize(("half", "share"), [("dev", 0.91), ("held_back", 0.84)])
def test_control_arguments_are_told_as_a_reader_tells_them(half: str, share: float) -> None:
    control = compare(DEFINITIONS / f"{half}.jsonl").facts["control"]

    assert control.share >= share
    assert control.lax <= control.strict
