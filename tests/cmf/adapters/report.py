"""The table of `make wire-report`: what holds of each wire format over all its recorded traffic, and what differs.

python -m tests.cmf.adapters.report [--scale 0.1] [--judge module:name] [format …]
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable

from cmf.adapters import FORMATS
from tests.cmf.adapters import harness
from tests.cmf.adapters.harness import SAMPLED_SPOTS
from tests.cmf.adapters.mediation import Judge, check_emitted, check_mediated
from tests.cmf.adapters.streams import check_folded, check_truncation
from tests.cmf.adapters.tally import Tally
from tests.cmf.adapters.wiredata import records, sampled

COLUMNS = ("format", "n", "accepted", "lossless req", "lossless resp", "folded", "truncation ok",
           "mediated (leaves, found / refused)", "judged canary", "emitted unjudged")  # fmt: skip
LISTED = 8  # differing cases printed per claim


def main() -> None:
    """Print the table, then the differing records with their reasons."""
    options = _options()
    judge: Judge | None = None
    if options.judge:
        module, name = options.judge.split(":")
        judge = getattr(importlib.import_module(module), name)
    print(f"seed {options.seed}, scale {options.scale}\n")
    print(f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}")
    failed: list[tuple[str, Tally]] = []
    for name in options.formats or FORMATS:
        started = time.perf_counter()
        tallies = _measured(name, options.scale, options.seed, judge)
        print(f"| {' | '.join(_row(name, tallies))} |  <!-- {time.perf_counter() - started:.0f} s -->", flush=True)
        failed += [(name, tally) for tally in tallies.values() if tally is not None and tally.failed]
    for name, tally in failed:
        print(f"\n{name}: {tally.claim}: {len(tally.failed)} of {tally.checked}")
        for where, problem in tally.failed[:LISTED]:
            print(f"  - {where}: {problem}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", help="by default all")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the records; below 1 places are sampled")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", help="module:name of a harness.Judge")
    return parser.parse_args()


def _measured(name: str, scale: float, seed: int, judge: Judge | None) -> dict[str, Tally | None]:
    everything = records(name)
    chosen = sampled(everything, scale, seed)
    at_most = None if scale >= 1 else SAMPLED_SPOTS
    checks: dict[str, Callable[[], Tally | None]] = {
        "accepted": lambda: harness.check_accepted(name, everything),
        "requests": lambda: harness.check_lossless(name, everything, "request"),
        "responses": lambda: harness.check_lossless(name, everything, "response"),
        "folded": lambda: check_folded(name, chosen),
        "truncated": lambda: check_truncation(name, chosen, at_most=at_most, seed=seed),
        "mediated": lambda: check_mediated(name, chosen, at_most=at_most, seed=seed),
        "judged": lambda: judge and check_mediated(name, chosen, at_most=at_most, seed=seed, judge=judge),
        "emitted": lambda: check_emitted(name, chosen),
    }
    return {claim: _guarded(claim, check) for claim, check in checks.items()}


def _guarded(claim: str, check: Callable[[], Tally | None]) -> Tally | None:
    """The tally; an exception that no adapter may let out becomes a failed case, so that the other figures are seen."""
    try:
        return check()
    except Exception as error:  # noqa: BLE001  (a report shows what is broken)
        return Tally(claim, checked=1, failed=[("crashed", f"{type(error).__name__}: {error}")])


def _row(name: str, tallies: dict[str, Tally | None]) -> list[str]:
    mediated = tallies["mediated"]
    assert mediated is not None
    shares = {claim: "-" if tally is None else _share(tally) for claim, tally in tallies.items()}
    leaves = max(1, mediated.checked)
    found, refused = mediated.counts.get("found", 0), mediated.counts.get("refused", 0)
    shown = f"{shares['mediated']} ({mediated.checked}, {found / leaves:.1%} / {refused / leaves:.1%})"
    emitted = tallies["emitted"]
    accepted = tallies["accepted"]
    return [
        name, str(accepted.checked if accepted else 0), shares["accepted"], shares["requests"], shares["responses"],
        shares["folded"], shares["truncated"], shown, shares["judged"], str(len(emitted.failed) if emitted else 0),
    ]  # fmt: skip


def _share(tally: Tally) -> str:
    return f"{tally.share:.2%}" if tally.checked else "none"


if __name__ == "__main__":
    main()
