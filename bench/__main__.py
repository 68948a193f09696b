"""`python -m bench [--quick] [SCRIPT …]`: measure, print the tables, keep them in bench/results/.

`python -m bench page` writes docs/performance.md out of what is kept.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import json
import os
import platform
import signal
from pathlib import Path

from bench import page
from bench.rounds import FULL, QUICK

SCRIPTS = ("core", "decide", "translate", "pipeline", "turns", "gateway", "growth", "costs", "audit")
MINUTES = 25  # of one script; a full one takes less than half of it on a machine that has nothing else to do


def main() -> None:
    """Run what was named, or everything."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("scripts", nargs="*", choices=(*SCRIPTS, "page", []), help="by default all")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds; nothing is kept")
    chosen = parser.parse_args()
    if chosen.scripts == ["page"]:
        page.write()
        return
    effort = QUICK if chosen.quick else FULL
    for name in chosen.scripts or SCRIPTS:
        where = _machine()
        signal.alarm(MINUTES * 60)
        report = importlib.import_module(f"bench.{name}").measure(effort)
        text = f"{report.markdown()}\n{where}\n"
        print(text)
        if not chosen.quick:
            results = Path(__file__).parent / "results"
            (results / f"{name}.md").write_text(text)
            kept = {**report.to_json(), "machine": where}
            (results / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
            page.write()


def _machine() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    today = datetime.datetime.now(datetime.UTC).date()
    load = os.getloadavg()[0]
    return f"{today}; {os.cpu_count()} CPUs, {model}; load {load:.1f}; CPython {platform.python_version()}."


if __name__ == "__main__":
    main()
