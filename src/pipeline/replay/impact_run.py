"""Comparing many entries, on all cores or on a Ray cluster; each process compiles both policy sets once.

Spec: docs/spec/replay.md, docs/spec/batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from pipeline.policy.policy_set import PolicySet
from pipeline.provenance.profiles import Profiles
from pipeline.replay.impact import Compared, Impact, compare
from pipeline.replay.process_pool import spread
from pipeline.replay.replay import Replay


class Comparing:
    """Compares lines under two sets.

    Raises:
        PolicyError, ConfigError: a set or the profiles cannot be used.
    """

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

    Args:
        found: lines of a file of entries.
        base: the current policies.
        head: the changed policies.
        expected: the approximate number of lines: a few are not worth starting processes.
        profiles: a profiles file, for both sets.
        jobs: the number of processes; by default one per available core.
        on_progress: called with the number of lines finished since the last call.
        ray: whether to use a Ray cluster, an existing one or a local one [BAT-5].

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


__all__ = ["Comparing", "impact_of"]
