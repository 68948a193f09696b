"""Wire JSON to decision, against a stock regorus binding and cpex with OPA; and what threads and size cost."""

from __future__ import annotations

import contextlib
import http.client
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import medium
from bench.rounds import TOOLS, Effort, Figure, Ratio, Report, Side, interleaved
from pipeline.decisions.decision import Effect

OPA = TOOLS.parent / "bin" / "opa"
PORT = 18_181
NOTES = (
    f"A message of four parts with rich extensions, {medium.RULES} rules (the shipped ones on"
    f" {', '.join(medium.CATEGORIES)}), embedded engine. Ours: parse, validate, cut into views, project, evaluate,"
    " decide, seal; each message is new, and nothing is kept from the one before. Regorus: gordon-to-regorus 0.13.0 (a"
    " rebuild of upstream's binding), inputs ready as JSON text, interpreter, the same modules and data; both must give"
    " the same verdicts first. CPU time. cpex 0.1.4: its own views and inputs, its OPA resolver, one HTTP query a view"
    " to an OPA server with the same policies, no session; clock on the wall, ours beside it in the same rounds. A turn"
    " is one message of a session that is kept; resent is the whole conversation as one request."
)


def measure(effort: Effort) -> Report:
    """The sides judge the same four views under the same policies; ours does everything else as well."""
    report = Report("Message to decision, against a stock regorus binding and cpex with OPA", NOTES)
    _against_a_binding(report, effort)
    with Side("cmf_engine") as engine:
        _against_a_server(report, engine, effort)
        _threads(report, engine, effort)
        _growth(report, engine, effort)
    return report


def _against_a_binding(report: Report, effort: Effort) -> None:
    with contextlib.ExitStack() as stack:
        sides: dict[str, Side] = {}
        for policies in ("medium", "shipped"):
            exchange = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".json")).name
            own = stack.enter_context(Side("cmf_decide", exchange, policies))
            raw = stack.enter_context(Side("regorus_decide", exchange, peer="regorus"))
            if own.ask("verdicts", call=True) != raw.ask("verdicts", call=True):
                raise RuntimeError("the two sides do not decide alike")
            sides |= {f"cmf {policies}": own, f"raw {policies}": raw}
        own, raw = sides["cmf medium"], sides["raw medium"]
        pairs = [
            ("cmf: message JSON to decision", own, "decide"),
            ("cmf: the same, in a session", own, "decide_in_session"),
            ("cmf: the same message again, verdicts kept", own, "decide_again"),
            ("cmf: Anthropic response to decision, 5 views", own, "decide_response"),
            ("regorus: 4 × set_input_json + eval_rule", raw, "decide"),
            ("cmf: message JSON to decision, all shipped rules", sides["cmf shipped"], "decide"),
            ("regorus: 4 × set_input_json + eval_rule, all shipped rules", sides["raw shipped"], "decide"),
        ]
        figures = interleaved(pairs, effort)
    ours, in_session, _, _, theirs, all_ours, all_theirs = figures.values()
    report.figures += figures.values()
    report.ratios += [
        Ratio("decision: cmf / raw regorus", ours.over(theirs), "≤ 0.6"),
        Ratio("decision in a session: cmf / raw regorus", in_session.over(theirs), "≤ 0.6"),
        Ratio("decision, all shipped rules: cmf / raw regorus", all_ours.over(all_theirs), "≤ 0.6"),
    ]


def _against_a_server(report: Report, own: Side, effort: Effort) -> None:
    with _serving() as url, Side("cpex_decide", url, peer="cpex") as peer:
        if peer.ask("answers", call=True) != [sorted(effect.value for effect in Effect)] * 4:
            raise RuntimeError("the server does not give a decision for each view")
        samples: dict[str, list[float]] = {"wall": [], "wall_in_session": [], "cpex": []}
        for _ in range(_few(effort)):
            samples["cpex"].append(peer.ask("wall", call=True) * 1e6)
            for operation in ("wall", "wall_in_session"):
                samples[operation].append(own.ask(operation, call=True) * 1e6)
    ours = Figure("cmf: message JSON to decision, wall", "µs", tuple(samples["wall"]))
    kept = Figure("cmf: the same, in a session, wall", "µs", tuple(samples["wall_in_session"]))
    theirs = Figure("cpex + OPA over HTTP per view, wall", "µs", tuple(samples["cpex"]))
    report.figures += [ours, kept, theirs]
    report.ratios += [
        Ratio("decision: cpex with OPA / cmf", theirs.over(ours), "≥ 12"),
        Ratio("decision: cpex with OPA / cmf in a session", theirs.over(kept), "≥ 12"),
    ]


def _threads(report: Report, own: Side, effort: Effort) -> None:
    stalls, threads, processes = [], [], []
    for _ in range(_few(effort)):
        stalls.append(own.ask("stall", call=True))
        threads.append(own.ask("threads", call=True))
        processes.append(own.ask("processes", call=True))
    report.figures += [
        Figure("stall of another thread, part of a call", "1", tuple(stalls)),
        Figure("engine in two threads", "calls/s", tuple(threads)),
        Figure("engine in two processes", "calls/s", tuple(processes)),
    ]
    together = statistics.median(a / b for a, b in zip(threads, processes, strict=True))
    report.ratios += [
        Ratio("another thread stands still: part of a call", statistics.median(stalls), "≤ 0.1"),
        Ratio("throughput: two threads / two processes", together, "≥ 0.8"),
    ]


def _growth(report: Report, own: Side, effort: Effort) -> None:
    """A row for each size; all sizes in turn within a round."""
    turns, resent, rules = _rows(own, "turns", effort), _rows(own, "resent", effort), _rows(own, "rules", effort)

    def figure(name: str, of: Any, unit: str = "µs", scale: float = 1e6) -> Figure:
        report.figures.append(Figure(name, unit, tuple(each * scale for each in of)))
        return report.figures[-1]

    kept = {size: figure(f"a turn after {size}, session kept", of) for size, of in turns.items()}
    anew = {}
    for size, of in resent.items():
        figure(f"{size} messages resent and one more", [each["seconds"] for each in of])
        name = f"{size} messages resent: views judged anew by local rules"
        anew[size] = figure(name, [each["judged_anew"] for each in of], "1", 1)
    asked = {size: figure(f"a text, {medium.RULES} rules for texts of {size}", of) for size, of in rules.items()}
    for name, of, target in (
        ("a turn, session kept", kept, "≤ 1.5"),
        ("views judged anew, all resent", anew, "≤ 1"),
        (f"{medium.RULES} rules for texts among so many", asked, "≤ 1.2"),
    ):
        sizes = sorted(of, key=int)
        grown = of[sizes[-1]].over(of[sizes[0]])
        report.ratios.append(Ratio(f"{name}: {sizes[-1]} / {sizes[0]}", grown, target))


def _rows(own: Side, operation: str, effort: Effort) -> dict[str, list[Any]]:
    rounds = [own.ask(operation, call=True) for _ in range(max(3, effort.rounds // 6))]
    return {size: [one[size] for one in rounds] for size in rounds[0]}


def _few(effort: Effort) -> int:
    return max(3, effort.rounds // 3)


@contextlib.contextmanager
def _serving() -> Iterator[str]:
    """The URL of an OPA server with the policies of the measurement."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in medium.policies().bundle().items():
            place = Path(folder) / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        arguments = ["run", "--server", "--bundle", folder, "--addr", f"127.0.0.1:{PORT}", "--skip-version-check"]
        process = subprocess.Popen([OPA, *arguments, "--log-level", "error"], stdout=subprocess.DEVNULL)
        try:
            _await(PORT)
            yield f"http://127.0.0.1:{PORT}"
        finally:
            process.terminate()
            process.wait()


def _await(port: int) -> None:
    for _ in range(400):
        with contextlib.suppress(OSError):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/health?bundles")
            if connection.getresponse().status == 200:
                return
        time.sleep(0.05)
    raise RuntimeError("the OPA server did not come up")
