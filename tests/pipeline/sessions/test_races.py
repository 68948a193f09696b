"""Many runs at once on a few sessions, on every store: what one learned is missed by none, and stays its subject's."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.pipeline.session_stores import WRITERS, count, taint, who

from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes, Count, Taint

SESSIONS = 50
PAIRS = 10_000
READS = 100_000
STORES = 4


@pytest.mark.proof
@pytest.mark.spec("SES-3")
def test_no_run_that_begins_after_a_taint_misses_it(
    store: SessionStore, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    """A taints and answers; only then B reads, and what B did not see it cannot commit over."""
    pairs = int(PAIRS * proof_scale)

    def pair(number: int) -> tuple[int, int]:
        context, label = who("ann", f"s{number % SESSIONS}"), f"label-{number}"
        stale = store.read(context)
        assert store.commit(context, None, taint(label, f"e{number}"))
        missed = label not in store.read(context).labels
        slipped = store.commit(context, stale.version, count("sent"))
        return missed, slipped

    with ThreadPoolExecutor(WRITERS) as pool:
        missed, slipped = (sum(column) for column in zip(*pool.map(pair, range(pairs)), strict=True))

    assert (missed, slipped) == (0, 0)
    proof_row(f"taint then use ({type(store).__name__})", pairs=pairs, missed=missed, slipped=slipped)


@pytest.mark.proof
@pytest.mark.spec("SES-1")
def test_no_subject_ever_reads_what_another_learned(
    store: SessionStore, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    reads = int(READS * proof_scale / STORES)

    def turn(number: int) -> bool:
        dice = random.Random(proof_seed + number)
        subject, session = dice.choice(("ann", "bob")), f"s{dice.randrange(SESSIONS)}"
        context = who(subject, session)
        if dice.random() < 0.1:
            label = Taint(f"{subject}-{number % 5}", "e")
            own = Count(name=f"{subject}-calls", amount=count("x").counts[0].amount)
            store.commit(context, None, Changes(taints=frozenset({label}), counts=(own,), events=({"by": subject},)))
        facts = store.read(context)
        seen = [*facts.labels, *facts.counters, *(f"{event['by']}-" for event in facts.events)]
        return all(one.startswith(f"{subject}-") for one in seen)

    with ThreadPoolExecutor(WRITERS) as pool:
        clean = sum(pool.map(turn, range(reads)))

    assert clean == reads
    proof_row(f"two subjects, equal session ids ({type(store).__name__})", reads=reads, crossed=reads - clean)
