"""Sessions when a writer dies, and when there is more than one process of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 300


def started(*arguments: str) -> subprocess.Popen[str]:
    """`tests.pipeline.killed` on its way."""
    command = [sys.executable, "-m", "tests.pipeline.killed", *arguments]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What it printed."""
    printed, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    result: dict[str, Any] = json.loads(printed)
    return result


@pytest.mark.spec("SES-14")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_a_writer_killed_between_any_two_operations_leaves_old_or_new(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, proof_row: Callable[..., None]
) -> None:
    where = str(tmp_path) if kind == "sqlite" else request.getfixturevalue("redis_url")

    result = finished(started("commit", kind, where))

    before, left = result["before"], result["left"]
    after = left[-1]
    assert before != after
    assert left[0] == before
    assert {*left} == {before, after}
    moment = left.index(after)
    assert left[moment:] == [after] * (len(left) - moment), "new once, new from then on"
    assert len(left) > 10
    proof_row(f"kill -9 within a commit ({kind})", moments=len(left) - 1, old=moment, mixed=0)


@pytest.mark.spec("REC-22")
@pytest.mark.parametrize("kind", ["beside", "redis"])
def test_a_run_killed_around_any_of_its_commits_leaves_no_changed_session_without_a_record(
    kind: str, tmp_path: Path, lenient: Path, request: pytest.FixtureRequest
) -> None:
    sessions = kind if kind == "beside" else request.getfixturevalue("redis_url")

    left = [tuple(one) for one in finished(started("runs", sessions, str(tmp_path), str(lenient)))["left"]]

    between = set() if kind == "beside" else {(0, 1)}  # calls that the session has counted, decisions on record
    assert (left[0], left[-1]) == ((0, 0), (1, 1))
    assert set(left) == {(0, 0), (1, 1), *between}


@pytest.mark.spec("REC-24")
def test_a_child_of_the_process_that_opened_a_store_lets_nothing_out_and_spoils_nothing(
    tmp_path: Path, lenient: Path
) -> None:
    result = finished(started("fork", str(tmp_path / "s.sqlite3"), str(lenient)))

    assert result == {
        "parent": ["forward", "forward"], "child": "refuse,record.unavailable", "records": 2, "verifies": True
    }  # fmt: skip


@pytest.mark.spec("SES-3")
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_at_most_n_holds_for_64_writers_in_two_processes(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "s.sqlite3") if kind == "sqlite" else f"{request.getfixturevalue('redis_url')}|{ULID()}"

    processes = [started("at-most", kind, place) for _ in range(2)]

    assert sum(finished(process)["got"] for process in processes) == 10
