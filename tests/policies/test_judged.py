"""A secret at any free-text leaf or key of real traffic makes the shipped rule hit the view that shows it [F5]."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.cmf.adapters.mediation import check_mediated
from tests.cmf.adapters.wiredata import records, sampled
from tests.policies.judge import SECRETS

from cmf.adapters import FORMATS

SHARE = 0.99  # the rest are tokens that a stream glues to a word, where they are no token any more


@pytest.mark.spec("POL-40")
@pytest.mark.parametrize("name", FORMATS)
def test_a_planted_secret_is_hit_where_it_is_shown(
    name: str, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    found = records(name)
    chosen = sampled(found, max(0.04, proof_scale - 0.1, 2 / len(found)), proof_seed)  # one may be too short

    tally = check_mediated(name, chosen, at_most=100, seed=proof_seed, judge=SECRETS)

    proof_row(f"{name}: judged canary", n=tally.checked, share=f"{tally.share:.4f}", missed=len(tally.failed))
    assert tally.checked > 10
    assert tally.share >= SHARE, [str(each) for each in tally.failed[:5]]
