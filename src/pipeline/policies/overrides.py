"""Overrides: in an emergency, two people let go on what one rule denies, for hours. Spec: docs/spec/exceptions.md [E6].

An exception is data of the policies, and has their revision and signature. An override is made while they serve, so it
is held to less: one rule, one subject or session, a denial and nothing else, a day at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cmf.uris import matches
from pipeline.decision import Effect, Hit
from pipeline.excused import Excused
from pipeline.moments import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """That denials by `rule` are not enforced for a subject, a session, or both, before `expires_at`.

    Attributes:
        id: of the record that made it. actor, second: who answers for it.
        expires_at: in microseconds since the epoch.
        subject, session: exactly these; a word such as `*` has no meaning in them. uri: a pattern as in `views.md`.
    """

    id: str
    rule: str
    actor: str
    second: str
    expires_at: int
    subject: str | None = None
    session: str | None = None
    uri: str | None = None

    def holds_for(self, subject: str | None, session: str | None, moment: int) -> bool:
        """Whether it is about a run of that subject in that session, at that moment. About everybody, none is."""
        if self.subject is None and self.session is None:
            return False
        if not 0 < moment < self.expires_at:
            return False
        return self.subject in (None, subject) and self.session in (None, session)

    def lifts(self, hit: Hit, uri: str | None) -> bool:
        """Whether it lifts that hit on a view with that URI: a denial by its rule. What edits or asks goes on."""
        if hit.effect is not Effect.DENY or hit.rule != self.rule:
            return False
        return self.uri is None or (uri is not None and matches(uri, self.uri))

    @property
    def excused(self) -> Excused:
        """What is on record of each hit that it lifts."""
        return Excused(owner=self.actor, until=iso(self.expires_at), override=self.id)


class Overrides(Protocol):
    """Where overrides are kept. Safe to use from any thread."""

    @property
    def due(self) -> bool:
        """Whether `holding` is going to ask a store, which may take time."""

    def holding(self) -> tuple[Override, ...]:
        """Those that hold. It never raises: where nobody can tell, there are none, and policy is enforced."""


__all__ = ["Override", "Overrides"]
