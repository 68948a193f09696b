"""Lifting a label: who, which label, brought by which events, why, until when [C3, E6]. Spec: sessions.md.

Nothing is removed. A grant joins a set that only grows, and names the events for which the label does not count any
more; what brings the label later is not among them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from cmf.message.security import SubjectExtension
from pipeline.audit.record import Record, act_of, plain
from pipeline.decisions.authority import (
    DECLASSIFY,
    MAX_REASON,
    Authorise,
    as_recorded,
    holding,
    is_legible,
    is_same_person,
    name_of,
)
from pipeline.decisions.context import Context, session_key
from pipeline.decisions.errors import DeclassificationError, StoreBusy
from pipeline.decisions.events import Declassified, Events
from pipeline.decisions.policy_input import SessionFacts
from pipeline.decisions.timestamps import MICROSECOND, instant_of, new_ulid
from pipeline.sessions.base import SessionStore
from pipeline.sessions.state import Changes, Grant, no_session, unknown_source

ALL_ON_RECORD: Final = "all on record"
KIND: Final = "declassify"  # of the records
_MAY: Final = holding(DECLASSIFY)
_log: Final = logging.getLogger("pipeline.approvals.declassification")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclassificationRules:
    """Who may lift labels, and for how long.

    Attributes:
        authorise: who may; by default whoever has the permission `cmf:declassify`.
        four_eyes: whether a second person, who may as well, has to be named [E6].
        longest: of any grant.
    """

    authorise: Authorise = _MAY
    four_eyes: bool = False
    longest: timedelta = timedelta(days=1)


def declassify(
    store: SessionStore,
    context: Context,
    *,
    label: str,
    actor: SubjectExtension,
    reason: str,
    expires_in: timedelta,
    sources: Collection[str] | str = ALL_ON_RECORD,
    scope: str = "session",
    seconder: SubjectExtension | None = None,
    rules: DeclassificationRules | None = None,
    events: Events | None = None,
    record: Callable[[Record], None] | None = None,
) -> Grant:
    """The grant that was made: until it expires, `label` does not count for `sources` in the context's session.

    Args:
        store: where the sessions are kept.
        context: whose session it is, and which.
        label: the label that is lifted.
        actor: who lifts it, authenticated by the host.
        reason: why, for the record.
        expires_in: how long the grant holds.
        sources: the events that brought the label (`SessionFacts.label_sources`), or `ALL_ON_RECORD`: all that are on
            record now, and none that comes later.
        scope: for what it is lifted, for the record.
        seconder: the second person where the rules ask for one, authenticated by the host.
        rules: who may lift labels, and for how long at most.
        events: told of the grant.
        record: puts it on record before it counts (`Recorder.record`, say); by default only the session keeps it.

    Raises:
        DeclassificationError: `declassify.not-authorised`, `declassify.four-eyes`, `declassify.too-long`,
            `declassify.no-reason`, `declassify.nothing`: nothing was changed. SessionError: no session
            (`session.none`), or sources that are not on record (`session.unknown-source`). StoreError: the store
            failed, or cannot put it on record: nothing is lifted then.
    """
    _check(rules or DeclassificationRules(), actor, seconder, reason, scope, expires_in)
    facts = store.read(context)
    grant = Grant(
        id=f"grt_{new_ulid()}",
        label=label,
        sources=_wanted(facts, context, label, sources),
        actor=name_of(actor),
        seconder=None if seconder is None else name_of(seconder),
        reason=reason,
        scope=scope,
        expires_at=facts.moment + expires_in // MICROSECOND,
    )
    if record is not None:
        # On record first: what is done was never undocumented. Only a store that fails just then undoes it.
        record(_record(grant, context, actor, seconder, facts.moment))
    # Whatever labels the session got meanwhile: the grant names the one that it lifts, and that stays on record.
    if not store.commit(context, None, Changes(grants=(grant,))):
        raise StoreBusy("too many change the same session", hint="try again shortly")
    _log.warning("label lifted: grant %s", grant.id)
    if events is not None:
        lifted = Declassified(
            grant=grant.id,
            label=grant.label,
            session=context.session,
            actor=grant.actor,
            seconder=grant.seconder,
            sources=len(grant.sources),
            expires_at=grant.expires_at,
        )
        events.publish(lifted)
    return grant


def _wanted(facts: SessionFacts, context: Context, label: str, sources: Collection[str] | str) -> frozenset[str]:
    if context.session is None:
        raise no_session()
    in_force = facts.label_sources.get(label, frozenset())
    named = frozenset({sources} if isinstance(sources, str) else sources)
    wanted = in_force if sources == ALL_ON_RECORD else named
    if not wanted:
        hint = "look at what the session has on record"
        raise DeclassificationError("no event brought this label", code="declassify.nothing", hint=hint)
    if not wanted <= in_force | {source for lifted, source in facts.lifted if lifted == label}:
        raise unknown_source()
    return wanted


def _record(
    grant: Grant, context: Context, actor: SubjectExtension, seconder: SubjectExtension | None, now: int
) -> Record:
    """Who lifts which label, of what and until when, as it goes on record; the row is the person's."""
    details: dict[str, Any] = {
        "by": as_recorded(actor),
        "grant": grant.id,
        "label": plain(grant.label),
        "session": {"subject": session_key(context).subject, "id": context.session},
        "sources": sorted(grant.sources),
        "scope": grant.scope,
        "reason": grant.reason,
        "until": instant_of(grant.expires_at).isoformat(),
    }
    if seconder is not None:
        details["second"] = as_recorded(seconder)
    return act_of(KIND, "dcl", "lift", details, instant_of(now), subject=grant.actor, session=context.session)


def _check(
    rules: DeclassificationRules,
    actor: SubjectExtension,
    seconder: SubjectExtension | None,
    reason: str,
    scope: str,
    expires_in: timedelta,
) -> None:
    for person in (actor, seconder):
        if person is not None and not (name_of(person) and rules.authorise(person)):
            hint = "it takes somebody who has the permission for it"
            raise DeclassificationError("this subject may not", code="declassify.not-authorised", hint=hint)
    if seconder is not None and is_same_person(name_of(seconder), name_of(actor)):
        raise DeclassificationError(
            "nobody seconds a step of their own", code="declassify.four-eyes", hint="name another person"
        )
    if rules.four_eyes and seconder is None:
        raise DeclassificationError("this takes two people", code="declassify.four-eyes", hint="name a second one")
    if not timedelta(0) < expires_in <= rules.longest:
        hint = f"ask for more than nothing and at most {rules.longest / timedelta(hours=1):g} hours"
        raise DeclassificationError("not a time that may be asked for", code="declassify.too-long", hint=hint)
    if not (is_legible(reason) and is_legible(scope)) or len(reason) > MAX_REASON or len(scope) > MAX_REASON:
        hint = f"say why and for what, in at most {MAX_REASON} characters each"
        raise DeclassificationError("a reason and a scope are needed", code="declassify.no-reason", hint=hint)
