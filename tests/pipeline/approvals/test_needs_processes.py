"""Approvals between processes: kept over a restart, and used once by whoever comes first."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.pipeline.asking_process import HERE, PAY, sessions
from tests.pipeline.conftest import write_rules
from ulid import ULID

from cmf import Response, SubjectExtension
from cmf.message.request import Choice
from pipeline import Config, Pipeline
from pipeline.approvals.queue import Approvals
from pipeline.store.database import Store

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 300
BOB = SubjectExtension(id="bob", permissions={"cmf:approve"})
RULE = 'require_approval contains {"code": "t.pay", "reason": "Ask."} if input.name == "pay"'
REPLY = Response(choices=[Choice(message=PAY)])


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), {"pay": RULE})


@pytest.mark.spec("APR-5")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_of_64_runs_in_two_processes_one_uses_the_approval(
    kind: str, policies: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "s.sqlite3") if kind == "sqlite" else f"{request.getfixturevalue('redis_url')}|{ULID()}"
    store = sessions(kind, place)
    (waiting,) = Pipeline(policies=policies, sessions=store).run(PAY, HERE).decision.approval_ids
    Approvals(store).approve(waiting, BOB)

    command = [sys.executable, "-m", "tests.pipeline.asking_process", kind, place, str(policies)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    running = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    went = [json.loads(process.communicate(timeout=SECONDS)[0])["went"] for process in running]

    assert sum(went) == 1
    assert len(store.pending_approvals()) == 1


@pytest.mark.spec("APR-5")
@pytest.mark.spec("APR-10")
def test_approvals_and_suspended_replies_survive_a_restart(policies: Path, tmp_path: Path) -> None:
    file, config = tmp_path / "s.sqlite3", Config(seal_key=bytes(range(32)))

    with Store.at(file) as store:
        pipeline = Pipeline(policies=policies, sessions=store.sessions(), config=config)
        ids = [pipeline.run(REPLY, HERE).decision.approval_ids, pipeline.run(PAY, HERE).decision.approval_ids]
    assert ids[0] == ids[1]
    with Store.at(file) as store:
        Approvals(store.sessions()).approve(ids[0][0], BOB)
    with Store.at(file) as store:
        pipeline = Pipeline(policies=policies, sessions=store.sessions(), config=config)
        released = pipeline.release(ids[0][0], HERE).response
        again = pipeline.run(REPLY, HERE)

    assert released is not None
    assert released.choices[0].message.content == PAY.content
    assert again.value is None
    assert again.decision.approval_ids not in ids
