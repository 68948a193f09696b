"""Overrides: two people suspend the denials of one rule in an emergency. Spec: docs/spec/exceptions.md [E6].

An exception is part of the policies' data, and covered by their revision and signature. An override is made while they
are in service, so its scope is narrower: one rule, one subject or session, denials only, a day at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from cmf.views.uris import matches
from pipeline.decisions.decision import Effect, Excused, Hit
from pipeline.decisions.timestamps import iso


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Until `expires_at`, denials by `rule` are not enforced for a subject, a session, or a subject in a session.

    Attributes:
        id: the id of the record that made it. actor, second: the two people who approved it.
        expires_at: in microseconds since the epoch.
        subject, session: matched exactly, `*` included. uri: a pattern as in `views.md`.
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
        """Whether it applies to a run of that subject in that session at that moment. None applies to everybody."""
        if self.subject is None and self.session is None:
            return False
        if not 0 < moment < self.expires_at:
            return False
        return self.subject in (None, subject) and self.session in (None, session)

    def lifts(self, hit: Hit, uri: str | None) -> bool:
        """Whether it lifts that hit on a view with that URI: only denials by its rule, never edits or approvals."""
        if hit.effect is not Effect.DENY or hit.rule != self.rule:
            return False
        return self.uri is None or (uri is not None and matches(uri, self.uri))

    @property
    def excused(self) -> Excused:
        """What is recorded with each hit that it lifts."""
        return Excused(owner=self.actor, until=iso(self.expires_at), override=self.id)


class Overrides(Protocol):
    """Where overrides are kept. Safe to use from any thread."""

    @property
    def due(self) -> bool:
        """Whether the next `holding` will query the store, which may take time."""

    def holding(self) -> tuple[Override, ...]:
        """The overrides in force. Never raises: if the store cannot be read there are none, and policy is enforced."""
