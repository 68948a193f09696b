"""What other policies would have decided on recorded inputs: per entry, and in total. Spec: docs/spec/replay.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.decision import Action, Decision, Effect, Hit
from pipeline.decisions.errors import ReplayError
from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.replay.replay import Replay, agrees, spread
from pipeline.run.recorded_input import Entry, read_entry

MAX_IDS: Final = 10_000  # ids listed per kind of change; all are counted
_GOES_OUT: Final = frozenset({Action.FORWARD, Action.FORWARD_MODIFIED})
_STOPS: Final = frozenset({Effect.DENY, Effect.REQUIRE_APPROVAL})


class Change(StrEnum):
    """The effect of a policy change on one entry."""

    NEWLY_DENIED = "newly_denied"  # it was allowed, and is now refused or needs approval
    NEWLY_ALLOWED = "newly_allowed"
    CHANGED_EFFECT = "changed_effect"  # allowed or refused as before, but with different effects
    UNCHANGED = "unchanged"
    NOT_REPLAYABLE = "not_replayable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The comparison of one entry.

    `rules` made the difference; `hits` are all that hit under the head; `reason` is why it cannot be compared.
    """

    id: str
    change: Change
    subject: str = ""
    rules: tuple[str, ...] = ()
    hits: tuple[str, ...] = ()
    views: int = 0
    reason: str = ""


def compare(line: bytes, base: Replay, head: Replay) -> Compared:
    """The effect of the change from `base` to `head` on the entry in `line`. No line makes it raise."""
    try:
        entry = read_entry(line)
    except ReplayError as error:
        return Compared(id="", change=Change.NOT_REPLAYABLE, reason=f"{error.message} [{error.code}]")
    try:
        before = base.judged(entry)
        if base.revision == entry.decision["revision"] and entry.mode == "enforce" and not agrees(entry, before):
            raise ReplayError("these policies do not reproduce the recorded decision", code="replay.differs")
        after = before if head is base else head.judged(entry)
    except ReplayError as error:
        reason = f"{error.message} [{error.code}]"
        return Compared(id=entry.id, change=Change.NOT_REPLAYABLE, subject=entry.subject, reason=reason)
    return _compared(entry, before, after)


def _compared(entry: Entry, before: Decision, after: Decision) -> Compared:
    went, goes = before.action in _GOES_OUT, after.action in _GOES_OUT
    old, new = _by_effect(before), _by_effect(after)
    if went and not goes:
        change, differing = Change.NEWLY_DENIED, [hit for key, hit in new.items() if key not in old and _stops(hit)]
    elif goes and not went:
        change, differing = Change.NEWLY_ALLOWED, [hit for key, hit in old.items() if key not in new and _stops(hit)]
    elif before.action is not after.action or before.verdict is not after.verdict or old.keys() != new.keys():
        change = Change.CHANGED_EFFECT
        differing = [{**old, **new}[key] for key in old.keys() ^ new.keys()]
    else:
        change, differing = Change.UNCHANGED, []
    return Compared(
        id=entry.id,
        change=change,
        subject=entry.subject,
        rules=tuple(sorted({hit.rule for hit in differing})),
        hits=tuple(sorted({hit.rule for hit in new.values()})),
        views=len(after.views),
    )


def _stops(hit: Hit) -> bool:
    return hit.enforced and hit.effect in _STOPS


def _by_effect(decision: Decision) -> dict[tuple[object, ...], Hit]:
    """The hits, keyed by everything that affects the traffic; explanations do not count."""
    return {
        (view.path, hit.rule, hit.code, hit.effect.value, hit.mode.value, dumps(dict(hit.fields))): hit
        for view in decision.views
        for hit in view.hits
    }


@dataclass(slots=True)
class Impact:
    """The comparison of all entries: counts, and rules, subjects and ids by kind of change.

    `hits` are the rules that hit some entry under the head.
    """

    entries: int = 0
    views: int = 0
    counts: Counter[Change] = field(default_factory=Counter)
    rules: dict[Change, Counter[str]] = field(default_factory=dict)
    subjects: dict[Change, Counter[str]] = field(default_factory=dict)
    ids: dict[Change, list[str]] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    hits: set[str] = field(default_factory=set)

    def add(self, one: Compared) -> None:
        """Count one entry."""
        self.entries += 1
        self.hits.update(one.hits)
        self.views += one.views
        self.counts[one.change] += 1
        if one.change is Change.UNCHANGED:
            return
        if one.change is Change.NOT_REPLAYABLE:
            self.reasons[one.reason] += 1
        else:
            self.rules.setdefault(one.change, Counter()).update(one.rules)
            self.subjects.setdefault(one.change, Counter())[one.subject] += 1
        ids = self.ids.setdefault(one.change, [])
        if one.id and len(ids) < MAX_IDS:
            ids.append(one.id)

    def to_json(self) -> dict[str, Any]:
        """The whole as JSON."""
        shown: dict[str, Any] = {"entries": self.entries, "views": self.views}
        for change in (Change.NEWLY_DENIED, Change.NEWLY_ALLOWED, Change.CHANGED_EFFECT):
            shown[change.value] = {
                "count": self.counts[change],
                "rules": dict(self.rules.get(change, Counter()).most_common()),
                "subjects": dict(self.subjects.get(change, Counter()).most_common()),
                "ids": self.ids.get(change, []),
            }
        shown[Change.UNCHANGED.value] = {"count": self.counts[Change.UNCHANGED]}
        shown[Change.NOT_REPLAYABLE.value] = {
            "count": self.counts[Change.NOT_REPLAYABLE],
            "reasons": dict(self.reasons.most_common()),
            "ids": self.ids.get(Change.NOT_REPLAYABLE, []),
        }
        return shown


class Comparing:
    """Compares lines under two sets. PolicyError, ConfigError: a set or the profiles cannot be used."""

    def __init__(self, base: PolicySet, head: PolicySet, profiles: Path | None = None) -> None:
        known = Profiles.load(profiles) if profiles is not None else None
        self._base = Replay(base, profiles=known)
        self._head = self._base if base.revision == head.revision else Replay(head, profiles=known)

    def __call__(self, lines: list[bytes]) -> list[Compared]:
        """The comparison of each line."""
        return [compare(line, self._base, self._head) for line in lines]


def impact_of(
    found: Iterable[bytes],
    base: PolicySet,
    head: PolicySet,
    *,
    expected: int,
    profiles: Path | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int], None] = lambda _: None,
    ray: bool = False,
) -> Impact:
    """The effect of the change from `base` to `head` on the entries in the lines.

    `profiles` are for both sets; `expected` and `jobs` are as for `spread`; `on_progress` is called with the number of
    lines finished since its last call; `ray` uses a Ray cluster, an existing one or a local one [BAT-5].

    Raises:
        PolicyError, ConfigError: a set or the profiles cannot be used, or Ray is not installed. ReplayError: the lines
            cannot be read, or a process was lost (`replay.worker-lost`).
    """
    recipe = partial(Comparing, base, head, profiles)
    if ray:
        from pipeline.replay.batch_ray import spread_on_ray  # an optional dependency

        judged = spread_on_ray(found, recipe, jobs=jobs)
    else:
        judged = spread(found, recipe, expected=expected, jobs=jobs)
    impact = Impact()
    with closing(judged):
        for compared in judged:
            for one in compared:
                impact.add(one)
            on_progress(len(compared))
    return impact
