"""Metrics for Prometheus. No label names a person, a session or a model. Spec: gateway.md [GW-61]."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pipeline.audit.record import Record
from pipeline.decisions.decision import OUTAGE_RULES, Action
from pipeline.decisions.events import Event, PoliciesChanged, PoliciesRefused, RecordUnavailable
from pipeline.gateway.http.incoming import CLIENT_CLOSED
from pipeline.run.recording import Records, SharingRecords, sharing
from pipeline.sessions.base import SessionStore

OUTCOMES: Final = ("decided", "refused", "failed", "own")


class Tally:
    """Counts each request once: `decided` if a decision about it is on record, else by how it was answered.

    `refused` requests were turned away before they were judged, `failed` ones likewise, by a fault of ours; `own` are
    the gateway's own answers, such as the list of models.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = {}  # requests in progress, and whether a decision is on record
        self._counts: Counter[tuple[str, str]] = Counter()
        self._gate = threading.Lock()

    def begun(self, request_id: str) -> None:
        """Count in a request that arrived."""
        self._open[request_id] = False

    def recorded(self, record: Record) -> None:
        """Note a durable record; records of other traffic (MCP) are ignored."""
        with self._gate:
            if record.request_id is not None and record.request_id in self._open:
                self._open[record.request_id] = True

    def over(self, route: str, request_id: str, status: int) -> None:
        """Count out a request that was answered, or whose client left."""
        own = "own" if status == 200 else "refused" if status < 500 else "failed"
        with self._gate:
            outcome = "decided" if self._open.pop(request_id, False) else own
            self._counts[route, outcome] += 1

    def take(self) -> dict[str, dict[str, int]]:
        """The counts since the last call: by route, `received` and each outcome; empty if there are none."""
        with self._gate:
            counts, self._counts = self._counts, Counter()
        routes: dict[str, dict[str, int]] = {}
        for (route, outcome), count in sorted(counts.items()):
            line = routes.setdefault(route, {"received": 0, **dict.fromkeys(OUTCOMES, 0)})
            line["received"] += count
            line[outcome] += count
        return routes

    def give_back(self, routes: dict[str, dict[str, int]]) -> None:
        """Add back counts that could not be put on record."""
        with self._gate:
            for route, line in routes.items():
                self._counts.update({(route, outcome): line[outcome] for outcome in OUTCOMES if line[outcome]})


BEAT_SECONDS: Final = 0.05  # between two looks at how punctual the event loop is
MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
PAUSE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
RUN_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
# Keys in a record: a quote within a text has a backslash before it, so that no text can look like one.
_RULE: Final = re.compile(rb'"rule":"([A-Za-z0-9_./-]+)"')
_OVERRIDDEN: Final = b'"override":"'
_INFERRED: Final = b'"inference":"'
_FORWARDED: Final = frozenset({Action.FORWARD.value, Action.FORWARD_MODIFIED.value})

_HELP: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())  # what each metric is, by name


class Counted(SharingRecords):
    """Records that call a function once they are durable.

    Args:
        on_record: called with each record; it must not raise.
    """

    def __init__(self, records: Records, on_record: Callable[[Record], None]) -> None:
        self._records = records
        self._on_record = on_record

    def record(self, record: Record) -> None:
        """See `Records`."""
        self._records.record(record)
        self._on_record(record)

    async def arecord(self, record: Record) -> None:
        """See `Records`."""
        await self._records.arecord(record)
        self._on_record(record)

    def shares(self, sessions: SessionStore) -> bool:
        """See `SharingRecords`."""
        records = sharing(self._records)
        return records is not None and records.shares(sessions)

    def kept(self, record: Record) -> None:
        """See `SharingRecords`."""
        self._on_record(record)


class Metrics:
    """What a gateway counted since it started. Every request received counts once, under its outcome."""

    def __init__(
        self,
        revisions: Callable[[], Mapping[str, str]],
        audit: Callable[[], Mapping[str, int]] = dict[str, int],
        upstreams: Callable[[], Mapping[str, bool]] = dict[str, bool],
        waiting: Callable[[], int] = int,
        notices: Callable[[], Mapping[str, int]] = dict[str, int],
    ) -> None:
        self.in_flight = 0
        self.tally = Tally()
        self._audit = audit
        self._upstreams = upstreams
        self._waiting = waiting
        self._notices = notices
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._unrecorded = Counter({"refused": 0, "released": 0})
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._rules: Counter[str] = Counter()
        self._on_failure = self._unevaluated = self._overridden = self._inferred = 0
        self._runs = _Histogram(RUN_BUCKETS)
        self._seconds = _Histogram(BUCKETS)
        self._pauses = _Histogram(PAUSE_BUCKETS)
        self._reloads = Counter({"done": 0, "refused": 0})
        self._reload_failed = 0
        self._revisions = revisions

    def on_event(self, event: Event) -> None:
        """For `Events.subscribe`: counts decisions that could not be recorded, and policy reloads."""
        if isinstance(event, RecordUnavailable):
            self._unrecorded["released" if event.released else "refused"] += 1
        elif isinstance(event, PoliciesChanged | PoliciesRefused):
            self._reload_failed = int(isinstance(event, PoliciesRefused))
            self._reloads["refused" if self._reload_failed else "done"] += 1

    def recorded(self, record: Record) -> None:
        """Count a durable decision: its outcome, the rules that hit, its time."""
        if record.kind != "decision":
            return
        self.tally.recorded(record)
        self._decisions[record.verdict, record.action] += 1
        if record.action in _FORWARDED:
            self._unevaluated += record.unevaluated
        self._inferred += record.body.count(_INFERRED)
        rules = rules_in(record)
        if rules:
            self._rules.update(rules)
            self._overridden += _OVERRIDDEN in record.body
            if record.action in _FORWARDED and not rules.isdisjoint(OUTAGE_RULES):
                self._on_failure += 1
        if record.run_ns is not None:
            self._runs.add(record.run_ns / 1e9)

    def count(self, route: str, dialect: str, status: int, code: str | None, seconds: float) -> None:
        """Count a finished request: answered, or refused with `code`."""
        self._requests[route, dialect, outcome_of(status)] += 1
        if code is not None:
            self._refusals[code] += 1
        self._seconds.add(seconds)

    async def beat(self) -> None:
        """Count the pauses of the event loop, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            begin = loop.time()
            await asyncio.sleep(BEAT_SECONDS)
            self._pauses.add(max(0.0, loop.time() - begin - BEAT_SECONDS))

    def text(self) -> str:
        """All metrics, in the text format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _counters("cmf_gateway_requests_total", self._requests, "route", "dialect", "outcome")
        yield from _counters("cmf_gateway_refusals_total", self._refusals, "code")
        yield from _figure("cmf_gateway_in_flight", self.in_flight)
        yield from _figure("cmf_gateway_waiting", self._waiting())
        yield from _counters("cmf_approval_notices_total", self._notices(), "outcome")
        yield from _counters("cmf_gateway_unrecorded_total", self._unrecorded, "outcome")
        for name, figure in self._audit().items():
            yield from _figure(f"cmf_audit_{name}", figure)
        infos = [({"route": route, "revision": revision}, 1) for route, revision in sorted(self._revisions().items())]
        yield from _family("cmf_policy_info", "gauge", infos)
        yield from _counters("cmf_policy_reloads_total", self._reloads, "outcome")
        yield from _figure("cmf_policy_reload_failed", self._reload_failed)
        yield from _counters("cmf_decisions_total", self._decisions, "verdict", "action")
        yield from _counters("cmf_rule_hits_total", self._rules, "rule")
        yield from _figure("cmf_forwarded_on_failure_total", self._on_failure)
        yield from _figure("cmf_forwarded_unevaluated_total", self._unevaluated)
        yield from _figure("cmf_decisions_overridden_total", self._overridden)
        yield from _figure("cmf_inferred_calls_total", self._inferred)
        ups = [({"upstream": name}, int(is_up)) for name, is_up in sorted(self._upstreams().items())]
        yield from _family("cmf_upstream_up", "gauge", ups)
        yield from self._runs.lines("cmf_decision_seconds")
        yield from self._seconds.lines("cmf_gateway_seconds")
        yield from self._pauses.lines("cmf_loop_pause_seconds")


class _Histogram:
    """A histogram of seconds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total += seconds

    def lines(self, name: str) -> Iterator[str]:
        yield from _head(name, "histogram")
        passed = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            passed += count
            yield f'{name}_bucket{{le="{bound}"}} {passed}'
        yield f"{name}_sum {self._total:.6f}"
        yield f"{name}_count {passed}"


def rules_in(record: Record) -> frozenset[str]:
    """The names of the rules that hit in a decision."""
    begin = record.body.find(b'"rule":"')  # most have none, and this finds out in no time
    return frozenset() if begin < 0 else frozenset(rule.decode() for rule in _RULE.findall(record.body, begin))


def outcome_of(status: int) -> str:
    """The outcome of a request, by the status of its answer: `gone` if the client disconnected."""
    known = {200: "answered", CLIENT_CLOSED: "gone", 403: "denied"}
    return known.get(status, "refused" if status < 500 else "failed")


def _counters(name: str, counts: Mapping[Any, int], *labels: str) -> Iterator[str]:
    """A family of counters; the key of a count holds the value of each label."""
    rows = ((key if len(labels) > 1 else (key,), count) for key, count in sorted(counts.items()))
    return _family(name, "counter", [(dict(zip(labels, values, strict=True)), count) for values, count in rows])


def _head(name: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {_HELP[name]}"
    yield f"# TYPE {name} {kind}"


def _figure(name: str, figure: int) -> Iterator[str]:
    return _family(name, "counter" if name.endswith("_total") else "gauge", [({}, figure)])


def _family(name: str, kind: str, rows: Iterable[tuple[Mapping[str, str], int]]) -> Iterator[str]:
    yield from _head(name, kind)
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    for labels, value in rows:
        pairs = ",".join(f'{key}="{text.translate(escapes)}"' for key, text in labels.items())
        yield f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"
