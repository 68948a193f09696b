"""Alert rules and the dashboard for operators: they speak of what /metrics has, and of nothing else."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from tests.pipeline.conftest import write_rules
from tests.pipeline.gateway.processes import CHAT, asked, said
from tests.pipeline.gateway.servers import script, serving

from pipeline.decisions.decision import Verdict
from pipeline.gateway.operations.metrics import outcome_of
from pipeline.gateway.processes import workers

Exported: TypeAlias = dict[str, dict[str, set[str]]]
OPERATIONS = Path(__file__).parents[3] / "examples" / "operations"
RULES = [
    rule
    for group in yaml.safe_load((OPERATIONS / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
BOARD = json.loads((OPERATIONS / "dashboard.json").read_text(encoding="utf-8"))
ASKED = [target["expr"] for panel in BOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [rule["expr"] for rule in RULES] + ASKED
SCRAPED = {"job", "instance", "worker", "le"}  # labels that Prometheus, several processes and histograms add
METRIC = re.compile(r"\b(cmf_\w+|up)\b(?:\{([^}]*)\})?")
LABEL = re.compile(r'(\w+)=(~?)"([^"]*)"')
GROWING = re.compile(r"(?:rate|increase)\((cmf_\w+)")
FAMILY = re.compile(r"^# TYPE (\w+) ", re.MULTILINE)
LINE = re.compile(r"^(\w+)(?:\{(.*)\})? \S+$", re.MULTILINE)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """Every metric with its labels, and of each the values that were seen or can be."""
    home = tmp_path_factory.mktemp("gateway")
    denies = 'deny contains {"code": "t.no", "reason": "No."} if contains(input.content, "no")'
    policies = write_rules(home / "policy", {"denies": denies}, kinds="text")
    with serving(home, {"upstreams": {"up": script(home, {"text": "x"})}, "policies": [str(policies)]}) as url:
        asked(url, "POST", CHAT, said("no"))
        text = asked(url, "GET", "/metrics")[1]
    crew = Path(workers.__file__).read_text(encoding="utf-8")
    found: Exported = {"up": {}}
    for name in [*FAMILY.findall(text), *re.findall(r"# TYPE (\w+) ", crew)]:
        found[name] = {}
    for name, labels in LINE.findall(text):
        for label, _, value in LABEL.findall(labels):
            found.setdefault(name, {}).setdefault(label, set()).add(value)
        found.setdefault(name, {})
    found["cmf_gateway_requests_total"]["outcome"] |= {outcome_of(status) for status in (200, 404, 403, 500)}
    found["cmf_decisions_total"]["verdict"] |= set(Verdict)
    return found


@pytest.mark.spec("GW-225")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_expression_names_metrics_labels_and_values_that_there_are(exported: Exported, expression: str) -> None:
    named = METRIC.findall(expression)

    assert named
    assert expression.count("(") == expression.count(")")
    assert [
        name for name in GROWING.findall(expression) if not name.endswith(("_total", "_bucket", "_sum", "_count"))
    ] == []
    for metric, matchers in named:
        assert metric in exported
        for label, by_pattern, value in LABEL.findall(matchers):
            known = exported[metric].get(label)
            assert label in SCRAPED or by_pattern or value in (known or ()), (metric, label, value)
    labels = {label for metric, _ in named for label in exported[metric]} | SCRAPED
    for group in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(group.split(", ")) <= labels, group


@pytest.mark.spec("GW-225")
def test_a_metric_that_there_is_not_would_be_found(exported: Exported) -> None:
    for wrong in ("rate(cmf_denials_total[5m])", 'cmf_decisions_total{verdict="denied"}', "sum by (who) (up)"):
        with pytest.raises(AssertionError):
            test_each_expression_names_metrics_labels_and_values_that_there_are(exported, wrong)


@pytest.mark.spec("GW-225")
def test_what_has_to_stay_0_raises_an_alert_and_is_on_the_dashboard() -> None:
    stay = (
        "forwarded_unevaluated_total",
        "forwarded_on_failure_total",
        "gateway_unrecorded_total",
        "policy_reload_failed",
    )
    more = (
        "audit_own_record_failures_total",
        "audit_head_export_failures_total",
        "upstream_up",
        "decision_seconds_bucket",
    )

    for name in (*stay, *more, "audit_overrides", "decisions_total"):
        assert any(f"cmf_{name}" in rule["expr"] for rule in RULES), name
        assert any(f"cmf_{name}" in expression for expression in ASKED), name


@pytest.mark.spec("GW-225")
def test_alerts_and_panels_are_whole() -> None:
    names = [rule["alert"] for rule in RULES]
    ids = [panel["id"] for panel in BOARD["panels"]]
    places = [_cells(panel["gridPos"]) for panel in BOARD["panels"]]

    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"Cmf[A-Z][A-Za-z]+", name) for name in names)
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "ticket"}
    assert all(rule["annotations"].keys() == {"summary", "description"} for rule in RULES)
    assert len(set(ids)) == len(ids)
    assert all(not one & other for one, other in itertools.combinations(places, 2))
    assert max(x for cells in places for x, _ in cells) < 24
    used: Iterator[Any] = (target["datasource"] for panel in BOARD["panels"] for target in panel["targets"])
    assert all(one == {"type": "prometheus", "uid": "${datasource}"} for one in used)


def _cells(at: dict[str, int]) -> set[tuple[int, int]]:
    return set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
