"""Two tenants whose sessions have equal names: whole runs, mixed at random, and none sees a label of the other."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import says

from cmf import SubjectExtension
from pipeline import Config, Context, Pipeline
from pipeline.sessions.base import MemorySessions, SessionStore
from pipeline.store.database import Store

DECISIONS = 100_000
KINDS = ("memory", "sqlite")
SESSIONS = 20
TENANTS = ("ann", "bob")
WORKERS = 8
EXPECTED = (("ann", "allow"), ("ann", "warn"), ("bob", "allow"))
OWN = 'sprintf("%s-secret", [input.extensions.security.subject.id])'
RULES = {
    "learn": f'label contains {{"code": "l", "reason": "x", "label": {OWN}}} if contains(input.content, "salary")',
    "own": f'warn contains {{"code": "own", "reason": "x"}} if {OWN} in input.session.labels',
    "other": f'deny contains {{"code": "o", "reason": "x"}} if {{ some one in input.session.labels; one != {OWN} }}',
}


@pytest.fixture(params=KINDS)
def sessions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SessionStore]:
    if request.param == "memory":
        yield MemorySessions()
        return
    with Store.at(tmp_path / "s.db") as store:
        yield store.sessions(timeout_seconds=60)


@pytest.mark.proof
@pytest.mark.spec("SES-1")
def test_no_decision_is_made_on_what_another_tenant_learned(
    sessions: SessionStore, tmp_path: Path, proof_scale: float, proof_seed: int, proof_row: Callable[..., None]
) -> None:
    rules = write_rules(tmp_path / "policy", RULES, kinds="text", capabilities="read_labels, read_subject")
    pipeline = Pipeline(policies=rules, sessions=sessions, config=Config(timeout_seconds=60))
    decisions = int(DECISIONS * proof_scale / len(KINDS))

    def turn(number: int) -> tuple[str, ...]:
        dice = random.Random(proof_seed + number)
        tenant, session = dice.choice(TENANTS), dice.randrange(SESSIONS)
        context = Context(subject=SubjectExtension(id=tenant), session=f"s{session}")
        # Only ann learns something, in half of the sessions: bob's of the same names have nothing to see.
        learns = tenant == "ann" and session % 2 == 0 and dice.random() < 0.05
        found = pipeline.run(says("user", "the salary" if learns else "hello"), context).decision
        return tenant, found.verdict.value

    with ThreadPoolExecutor(WORKERS) as pool:
        found = Counter(pool.map(turn, range(decisions)))

    crossed = sum(times for seen, times in found.items() if seen not in EXPECTED)
    saw_own = found["ann", "warn"]
    proof_row(
        f"two tenants, equal session ids, whole runs ({type(sessions).__name__})",
        decisions=decisions, crossed=crossed, saw_their_own=saw_own,
    )  # fmt: skip
    assert crossed == 0
    assert saw_own > decisions / 10  # what one learned was there to be seen
