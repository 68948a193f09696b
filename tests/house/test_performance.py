"""The page of measurements says what was measured, and the fit of a curve is the fit."""

from __future__ import annotations

import pytest
from bench import page
from bench.curves import Curve
from bench.rounds import Ratio

from tests.house.tree import ROOT


def test_the_page_and_its_pictures_are_what_the_kept_figures_make() -> None:
    stale = [str(place.relative_to(ROOT)) for place, text in page.made().items() if place.read_text() != text]

    assert stale == [], "run `python -m bench page`"


def test_what_missed_its_target_stands_before_all_that_met_it() -> None:
    text = page.PAGE.read_text()
    first, _, rest = text.partition("## What was measured")

    assert rest.count("| **no** |") == sum(line.startswith("| ") for line in first.splitlines()) - 1


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_the_exponent_is_that_of_the_largest_sizes(exponent: float) -> None:
    costs = {size: (3 * size**exponent,) for size in (10, 30, 100, 300)}
    curve = Curve("c", "Title", "things", "µs", {"line": {1: (500.0,), **costs}})

    assert curve.exponent("line") == pytest.approx(exponent)
    assert Curve.from_json(curve.to_json()) == curve
    assert f"exponent {exponent:.2f}" in curve.svg()


@pytest.mark.parametrize(("value", "target", "met"), [(6, "≥ 6", True), (5.9, "≥ 6", False), (0.6, "≤ 0.6", True)])
def test_a_target_is_met_from_its_bound_on(value: float, target: str, met: bool) -> None:
    assert Ratio("r", value, target).met is met
