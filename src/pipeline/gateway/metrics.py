"""Counters, as Prometheus reads them; no name of a person, session or model is a label. Spec: gateway.md [GW-61]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from pipeline.events import Event, RecordUnavailable

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """What a gateway counted since it began. Every request that came is in `requests` once, under what became of it.

    Args:
        revisions: the revision of the policies of each route, as it is now.
    """

    def __init__(self, revisions: Callable[[], Mapping[str, str]]) -> None:
        self.in_flight = 0
        self._requests: Counter[tuple[str, str, str]] = Counter()
        self._refusals: Counter[str] = Counter()
        self._seconds: Counter[float] = Counter()
        self._total_seconds = 0.0
        self._unrecorded: Counter[str] = Counter()
        self._revisions = revisions

    def heard(self, event: Event) -> None:
        """For `Events.subscribe`: counts what went out, or did not, because it could not be put on record."""
        if isinstance(event, RecordUnavailable):
            self._unrecorded["released" if event.released else "refused"] += 1

    def count(self, route: str, dialect: str, status: int, code: str | None, seconds: float) -> None:
        """One request that is over: answered, or refused with `code`."""
        self._requests[route, dialect, outcome_of(status)] += 1
        if code is not None:
            self._refusals[code] += 1
        self._total_seconds += seconds
        self._seconds[next((bound for bound in BUCKETS if seconds <= bound), float("inf"))] += 1

    def text(self) -> str:
        """All of it, in the text format."""
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        rows = [({"route": r, "dialect": d, "outcome": o}, n) for (r, d, o), n in sorted(self._requests.items())]
        yield from _family("cmf_gateway_requests_total", "counter", rows)
        refusals = [({"code": code}, count) for code, count in sorted(self._refusals.items())]
        yield from _family("cmf_gateway_refusals_total", "counter", refusals)
        yield from _family("cmf_gateway_in_flight", "gauge", [({}, self.in_flight)])
        unrecorded = [({"outcome": one}, self._unrecorded[one]) for one in ("refused", "released")]
        yield from _family("cmf_gateway_unrecorded_total", "counter", unrecorded)
        infos = [({"route": route, "revision": revision}, 1) for route, revision in sorted(self._revisions().items())]
        yield from _family("cmf_policy_info", "gauge", infos)
        yield "# TYPE cmf_gateway_seconds histogram"
        passed = 0
        for bound in BUCKETS:
            passed += self._seconds[bound]
            yield f'cmf_gateway_seconds_bucket{{le="{bound}"}} {passed}'
        passed += self._seconds[float("inf")]
        yield f'cmf_gateway_seconds_bucket{{le="+Inf"}} {passed}'
        yield f"cmf_gateway_seconds_sum {self._total_seconds:.6f}"
        yield f"cmf_gateway_seconds_count {passed}"


def outcome_of(status: int) -> str:
    """What became of a request, by how it was answered: `gone` is for clients that did not wait."""
    if status == 200:
        return "answered"
    if status == 499:
        return "gone"
    if status == 403:
        return "denied"
    return "refused" if status < 500 else "failed"


def _family(name: str, kind: str, rows: Iterable[tuple[Mapping[str, str], int]]) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    for labels, value in rows:
        said = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{name}{{{said}}} {value}" if said else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["BUCKETS", "MEDIA_TYPE", "Metrics", "outcome_of"]
