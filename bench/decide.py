"""Wire JSON to decision with the shipped rules, against the raw calls of a stock regorus binding."""

from __future__ import annotations

import tempfile

from bench.rounds import Effort, Ratio, Report, Side, interleaved


def measure(effort: Effort) -> Report:
    """Both sides judge the same four views under the same policies; ours does everything else as well."""
    with (
        tempfile.NamedTemporaryFile(suffix=".json") as exchange,
        Side("cmf_decide", exchange.name) as own,
        Side("regorus_decide", exchange.name, peer="regorus") as raw,
    ):
        if own.ask("verdicts", call=True) != raw.ask("verdicts", call=True):
            raise RuntimeError("the two sides do not decide alike")
        pairs = [
            ("cmf: message JSON to decision", own, "decide"),
            ("cmf: Anthropic response to decision, 5 views", own, "decide_response"),
            ("regorus: 4 × set_input_json + eval_rule", raw, "decide"),
        ]
        figures = interleaved(pairs, effort)
    ours, _, theirs = (figure.median for figure in figures.values())
    return Report(
        "Message to decision, against a stock regorus binding",
        "The shipped policies, embedded engine. Ours: parse, validate, cut into views, project, evaluate, decide, seal."
        " Theirs: gordon-to-regorus 0.13.0 (a rebuild of upstream's binding), inputs ready as JSON text, interpreter,"
        " the same modules and data; verdicts are checked to be the same first. CPU time.",
        list(figures.values()),
        [Ratio("decision: cmf / raw regorus", ours / theirs, "≤ 0.6")],
    )
