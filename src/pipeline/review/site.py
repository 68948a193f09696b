"""What pages are built from: the store and its catalog, policies, contents, approvals, and recording."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeAlias

from cmf.errors import DecodeError
from cmf.json.codec import loads
from cmf.message.ids import Clock
from cmf.message.security import SubjectExtension
from pipeline.approvals.queue import Approvals
from pipeline.audit.heads import PublicKey
from pipeline.audit.query import Query, parse
from pipeline.audit.record import act_of
from pipeline.audit.verification import Report
from pipeline.decisions.authority import as_recorded, is_legible
from pipeline.review.access import Person, Refused, Role
from pipeline.review.annotations import MAX_TEXT
from pipeline.review.catalog import Catalog
from pipeline.review.contents import Rejudging
from pipeline.review.rules import PoliciesAtHand
from pipeline.review.summary import Json, readable
from pipeline.sessions.base import SessionStore, wall_clock
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import ContentRules
from pipeline.store.recorder import Recorder
from pipeline.store.records import Placed, bodies_of

PAGE: Final = 50


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of an authenticated user: the URL's parameters, and the form, if there is one."""

    person: Person
    params: Mapping[str, str]
    path: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> SubjectExtension:
        """The person as the subject of records."""
        return SubjectExtension(id=self.person.name, roles=frozenset({self.person.role.value}))

    @property
    def q(self) -> str:
        """The query in the URL."""
        return self.params.get("q", "").strip()


@dataclass(frozen=True, slots=True)
class Page:
    """A page: its template, and its data, which is also its `.json` form. `rows`: all rows, for downloads."""

    template: str
    data: Json
    status: int = 200
    rows: Iterable[Json] = ()


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirect. `path` is below the site's root."""

    path: str
    params: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Download:
    """A file to download."""

    content: bytes
    name: str
    type: str


Answer: TypeAlias = Page | Redirect | Download


@dataclass(slots=True)
class Verified:
    """The last verification of the log by this process."""

    report: Report
    at: datetime
    seconds: float


class Site:
    """The review site of one store, which the caller closes.

    Of rules in other revisions than those of `policies` only the id is known. `sessions` is the store of approvals, by
    default the same, and `seal_key` opens their content. `heads` is the file of exported heads.
    """

    def __init__(
        self,
        store: Store,
        *,
        policies: PoliciesAtHand | None = None,
        sessions: SessionStore | None = None,
        seal_key: bytes | None = None,
        heads: Path | None = None,
        keys: Sequence[PublicKey] | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        self.store = store
        self.catalog = Catalog(store)
        self.policies = (policies or PoliciesAtHand()).with_kept(StoreEvidence(store.engine).policies)
        self.contents = store.contents(rules=ContentRules(reveal=_has_role), clock=clock)
        self.again = Rejudging(self.policies)
        kept = store.sessions(clock=clock) if sessions is None else sessions
        self._recorder = Recorder(store)
        self.approvals = Approvals(kept, _has_role, seal_key=seal_key, record=self._recorder.record, clock=clock)
        self.opens_sealed = seal_key is not None
        self.overrides = store.overrides(may=_has_role, clock=clock)
        self.heads = heads
        self.keys = keys
        self.clock = clock
        self.verified: Verified | None = None
        self.turn = threading.Lock()

    def query(self, text: str) -> Query:
        """The parsed query; AuditError if it is not valid."""
        return parse(text, self.clock())

    def bodies(self, rows: Sequence[Placed]) -> dict[int, Json | None]:
        """The bodies of records, by number; None if one was erased or cannot be read."""
        stored = bodies_of(self.store.engine, [row.seq for row in rows])
        bodies: dict[int, Json | None] = dict.fromkeys(stored)
        for seq, body in stored.items():
            with suppress(DecodeError):
                parsed = None if body is None else loads(body)
                bodies[seq] = parsed if isinstance(parsed, dict) and readable(parsed) else None
        return bodies

    def changed(self, rows: Sequence[Placed]) -> frozenset[str]:
        """The ids of those records that are not stored any more as the log signed them."""
        return StoreEvidence(self.store.engine).changed(rows, self.keys)

    def record(self, visit: Visit, kind: str, action: str, details: Json) -> str:
        """Write a record of `kind` and return its id once it is durable. StoreError: it may not be."""
        details = {"by": as_recorded(visit.subject), **details}
        record = act_of(kind, kind, action, details, self.clock().astimezone(UTC), subject=visit.person.name)
        self._recorder.record(record)
        self.catalog.catch_up()
        return record.id


def need(visit: Visit, role: Role) -> None:
    """Check that the person has that role or a higher one; Refused otherwise."""
    if not visit.person.role.covers(role):
        raise Refused(403, "review.role", f"This needs the role {role.value}; yours is {visit.person.role.value}.")


def form_text(visit: Visit, name: str, *, needed: bool = False) -> str:
    """A text field of the form, stripped; Refused if it is too long, or needed and nothing of it can be seen."""
    text = visit.form.get(name, "").strip()
    if len(text) > MAX_TEXT:
        raise Refused(422, "review.too-long", f"At most {MAX_TEXT} characters.")
    if needed and not is_legible(text):
        raise Refused(422, "review.missing", f"Fill in “{name}”.")
    return text


def _has_role(_: object) -> bool:
    """Allows everybody: the site has checked the role already."""
    return True
