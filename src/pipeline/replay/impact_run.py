"""Compares many entries, on all cores or on a Ray cluster; each process compiles both policy sets once.

Spec: docs/spec/replay.md, docs/spec/batch.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from pathlib import Path

from pipeline.policy_set import PolicySet
from pipeline.profiles import Profiles
from pipeline.replay.impact import Compared, Impact, compare
from pipeline.replay.replay import Replay
from pipeline.spreading import spread


class Comparing:
    """The work of comparing lines under two sets.

    Raises:
        PolicyError, ConfigError: a set or the profiles cannot be used.
    """

    def __init__(self, base: PolicySet, head: PolicySet, profiles: Path | None = None) -> None:
        known = Profiles.load(profiles) if profiles is not None else None
        self._base = Replay(base, profiles=known)
        self._head = self._base if base.revision == head.revision else Replay(head, profiles=known)

    def __call__(self, lines: list[bytes]) -> list[Compared]:
        """What came of each line."""
        return [compare(line, self._base, self._head) for line in lines]


def impact_of(
    found: Iterable[bytes],
    base: PolicySet,
    head: PolicySet,
    *,
    expected: int,
    profiles: Path | None = None,
    jobs: int | None = None,
    told: Callable[[int], None] = lambda _: None,
    ray: bool = False,
) -> Impact:
    """What the change from `base` to `head` is to the entries in the lines.

    Args:
        found: lines of a file of entries.
        base: the policies as they are.
        head: the policies as they are to be.
        expected: how many there are, about: a few are not worth other processes.
        profiles: a file of them, for both sets.
        jobs: processes; by default as many as there are cores to run on.
        told: called with the number of lines done since it was last called.
        ray: whether the processes are those of a Ray cluster: the one that is there, or a local one [BAT-5].

    Raises:
        PolicyError, ConfigError: a set or the profiles cannot be used, or Ray is not installed. ReplayError: the lines
            cannot be read, or a process was lost (`replay.worker-lost`).
    """
    recipe = partial(Comparing, base, head, profiles)
    if ray:
        from pipeline.batch_ray import spread_on_ray  # an extra

        judged = spread_on_ray(found, recipe, jobs=jobs)
    else:
        judged = spread(found, recipe, expected=expected, jobs=jobs)
    impact = Impact()
    with closing(judged):
        for compared in judged:
            for one in compared:
                impact.add(one)
            told(len(compared))
    return impact


__all__ = ["Comparing", "impact_of"]
