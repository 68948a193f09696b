"""Instructions of fixed workloads under callgrind, compared with the figures that are kept: a gate, not a timing.

`python -m bench.instructions [--keep]`; needs `valgrind`. Not in CI: what counts is the same build on the same machine.
An instruction count hardly depends on what else a machine does, but it does on its libraries and compiler: the figures
are kept with what they were counted on, and where that differs they are shown and decide nothing.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALLOWED = 0.03
KEPT = Path(__file__).parent / "results" / "instructions.json"
TIMES = 40  # of a workload, after as many that warm what is kept between calls
SECONDS = 600


def workloads() -> dict[str, Callable[[], Any]]:
    """What is counted: names are those of the figures. Made late: the process that counts imports nothing of it."""
    from bench import documents, medium
    from cmf import Message
    from cmf.adapters import get
    from pipeline import Config, Context, Guard
    from pipeline.audit.record import Run, record_of
    from pipeline.store.records import row_of

    numbers = iter(range(1_000_000))
    texts = [documents.message_bytes(index) for index in range(50)]
    context = Context.model_validate({"subject": documents.extensions(0)["security"]["subject"]})
    # Nothing is remembered, and no deadline is near: under callgrind everything takes fifty times as long.
    guard = Guard(medium.policies(), config=Config(max_verdicts=0, timeout_seconds=600))
    openai, anthropic = get("openai_chat"), get("anthropic_messages")
    request = documents.openai_request()
    decided = guard.run(Message.model_validate_json(texts[0]), context=context).decision
    ran = Run(
        timestamp=datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC),
        input_digest="0" * 64,
        output_digest="1" * 64,
        timings={"stages_ns": 1_000, "evaluate_ns": 100_000, "run_ns": 1_000_000},
        model="openai:gpt",
    )

    def read() -> object:
        return [view.path for view in Message.model_validate_json(texts[next(numbers) % 50]).iter_views()]

    def decide() -> object:
        return guard.run(Message.model_validate_json(texts[next(numbers) % 50]), context=context)

    def translate() -> object:
        return anthropic.to_wire(openai.from_wire_request(request))

    def put_on_record() -> object:
        return row_of(record_of(decided, context, ran))

    return {
        "read a message and its views": read,
        "decide about a message, 25 rules": decide,
        "translate 20 messages": translate,
        "make the record of a decision": put_on_record,
    }


def main() -> None:
    """Count, print, and leave with 1 where a count is off by more than is allowed."""
    parser = argparse.ArgumentParser(prog="bench.instructions", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the counts as those to compare with")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        _work(workloads()[chosen.work])
        return
    counts = {name: round(_counted(name)) for name in workloads()}
    found = {"where": where(), "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}", "instructions": counts}
    if chosen.keep:
        KEPT.write_text(json.dumps(found, indent=1) + "\n")
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else found
    off = print_against(kept, counts)
    if kept["where"] != found["where"]:
        print(f"counted on {found['where']}, kept from {kept['where']}: not compared")
    elif off:
        sys.exit(
            f"off by more than {ALLOWED:.0%}: {', '.join(off)}; if that is meant, `make bench-instructions KEEP=1`"
        )


def print_against(kept: dict[str, Any], counts: dict[str, int]) -> list[str]:
    """Print each count beside the one that is kept; gives the names of those that are off."""
    off = []
    for name, count in counts.items():
        before = kept["instructions"].get(name)
        if before is None:
            print(f"{name}: {count:,} instructions, none kept")
            continue
        change = count / before - 1
        print(f"{name}: {count:,} instructions, {change:+.1%} of {before:,}")
        if abs(change) > ALLOWED:
            off.append(name)
    return off


def where() -> str:
    """What counts depend on besides the code."""
    libc = " ".join(platform.libc_ver())
    return f"CPython {platform.python_version()}, {libc}, {platform.machine()}, {_valgrind()}"


def _valgrind() -> str:
    done = subprocess.run(["valgrind", "--version"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _counted(name: str) -> float:
    """Instructions of one call. Counting begins when everything is loaded and warm."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "bench.instructions", "--work", name]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, timeout=SECONDS)
    match = re.search(r"Collected : (\d+)", done.stderr)
    if match is None:
        raise RuntimeError(done.stderr[-500:])
    return int(match[1]) / TIMES


def _work(workload: Callable[[], Any]) -> None:
    """What runs under callgrind: `TIMES` calls to get warm, and as many that are counted."""
    for _ in range(TIMES):
        workload()
    gc.collect()
    gc.disable()  # when it would run depends on all that was made before
    _control("on")
    for _ in range(TIMES):
        workload()
    _control("off")


def _control(state: str) -> None:
    command = ["callgrind_control", f"--instr={state}", str(os.getpid())]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
