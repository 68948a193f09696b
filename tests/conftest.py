"""What every test shares: reproducible randomness, the size of the proofs, and the OPA binary."""

from __future__ import annotations

import gc
import json
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from typer.main import get_command

ROOT = Path(__file__).resolve().parent.parent
SEED_VARIABLE = "CMF_PROOF_SEED"
SCALE_VARIABLE = "CMF_PROOF_SCALE"  # 1 is full size; `make test` runs at a tenth [F6]
TABLE_VARIABLE = "CMF_PROOF_TABLE"  # where `make proof` wants its table
LONG = ("proof", "slow", "opa", "no_cover")  # marks of tests that take their time
MEASURED_VARIABLE = "COVERAGE_PROCESS_CONFIG"  # how coverage tells processes of their own what to measure

# Wall-clock deadlines measure the machine, not the code: limits that matter have tests of their own.
# `derandomize` is said because Hypothesis turns it on under CI. At a desk and in `make proof` every run looks somewhere
# new; `.ci/run` takes the profile `landing`, where the same examples are tried each time: a change is not to be refused
# for an old defect that chance finds that day. The proofs' own seed is fresh everywhere [F6].
settings.register_profile(
    "house",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("landing", settings.get_profile("house"), derandomize=True)
settings.register_profile("full", settings.get_profile("house"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))


def pytest_configure(config: pytest.Config) -> None:
    """Choose the proofs' seed once, before xdist starts its workers, which inherit it."""
    os.environ.setdefault(SEED_VARIABLE, str(secrets.randbits(32)))
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was collected stays: no garbage collection looks at 800,000 objects, which took a quarter of collecting."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Proofs look somewhere new each time: the coverage gate does not count what they reach by chance.

    Files with long tests come first: a worker that takes one last would work alone for as long.
    """
    for item in items:
        if "proof_seed" in getattr(item, "fixturenames", ()):
            item.add_marker("no_cover")
    long = {item.path for item in items if any(map(item.get_closest_marker, LONG))}
    items.sort(key=lambda item: item.path not in long)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Measure the processes that a test starts where the test is measured: it takes a quarter of their time."""
    measured = os.environ.pop(MEASURED_VARIABLE, None) if item.get_closest_marker("no_cover") else None
    try:
        return (yield)
    finally:
        if measured is not None:
            os.environ[MEASURED_VARIABLE] = measured


def pytest_report_header(config: pytest.Config) -> str:
    return f"proofs: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]} {SCALE_VARIABLE}={_scale()}"


@pytest.fixture(scope="session")
def proof_seed() -> int:
    """The fresh seed of this run, printed in the header; set CMF_PROOF_SEED to repeat a run."""
    return int(os.environ[SEED_VARIABLE])


@pytest.fixture(scope="session")
def proof_scale() -> float:
    """The fraction of full size at which proofs run: 1.0 under `make proof`, else 0.1."""
    return _scale()


@pytest.fixture
def proof_row(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """A function `(claim, **figures)` that puts one line into the table of proofs of this run."""

    def record(claim: str, **figures: object) -> None:
        record_property("proof", json.dumps({"claim": claim, **figures}, default=str))

    return record


@pytest.fixture(scope="session")
def opa_binary() -> Path:
    """The pinned OPA binary. Its absence is a failure: a skipped comparison proves nothing."""
    pinned = ROOT / ".tools" / "bin" / "opa"
    found = pinned if pinned.exists() else shutil.which("opa")
    if found is None:
        pytest.fail("no OPA binary: run `make opa`")
    return Path(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = _proof_rows(terminalreporter)
    if not rows:
        return

    lines = ["| claim | figures |", "| --- | --- |"]
    for row in rows:
        figures = ", ".join(f"{name} {value}" for name, value in row.items() if name != "claim")
        lines.append(f"| {row['claim']} | {figures} |")
    terminalreporter.section("proofs")
    terminalreporter.write_line("\n".join(lines))

    destination = os.environ.get(TABLE_VARIABLE)
    if destination:
        title = f"# Proofs\n\nSeed {os.environ[SEED_VARIABLE]}, scale {_scale()}.\n\n"
        Path(destination).write_text(title + "\n".join(lines) + "\n", encoding="utf-8")


def _scale() -> float:
    return float(os.environ.get(SCALE_VARIABLE, "0.1"))


def _proof_rows(reporter: pytest.TerminalReporter) -> list[dict[str, object]]:
    reports = [report for outcome in ("passed", "failed") for report in reporter.stats.get(outcome, [])]
    properties = [entry for report in reports if report.when == "call" for entry in report.user_properties]
    return [json.loads(str(value)) for name, value in properties if name == "proof"]


@pytest.fixture(autouse=True, scope="session")
def commands_built_once() -> Iterator[None]:
    """`CliRunner` builds every command of an app at each call, which takes a twelfth of a second for `cmf`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(autouse=True)
def logs_as_before() -> Iterator[None]:
    """No test leaves a handler behind that writes into a stream of its own, which is closed by then."""
    loggers = [logging.getLogger(name) for name in ("pipeline", "cmf", "uvicorn")]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers[:] = handlers
        logger.setLevel(level)
