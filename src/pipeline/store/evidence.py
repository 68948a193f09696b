"""A database as evidence: its logs, heads and records, exactly as stored. Spec: docs/spec/audit.md."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, Engine, Select, inspect, or_, select

from cmf.json.codec import dumps
from pipeline.audit.evidence import FIELDS, Held, Kept, Leaf, LogRow, StoredHead, leaf_of
from pipeline.audit.heads import Head, PublicKey, batch_digest
from pipeline.audit.record import plain, session_changes_in
from pipeline.decisions.approval import ApprovalScope, ApprovalStatus
from pipeline.decisions.errors import StoreError
from pipeline.decisions.timestamps import instant_of
from pipeline.store.engine import foreign_in, snapshot
from pipeline.store.records import PLACED, Placed, damage_in, misindexed
from pipeline.store.tables import (
    APPROVALS,
    CONTENTS,
    HEADS,
    HOLDS,
    LOGS,
    METADATA,
    POLICY_SETS,
    RECORDS,
    SESSION_COUNTERS,
    SESSION_GRANT_SOURCES,
    SESSION_GRANTS,
    SESSION_LABELS,
    SESSION_STATE,
)

SessionId = tuple[str, str]  # the subject's key and the session's id, as rows have them
_PAGE_SIZE: Final = 2_000  # rows fetched per query
_IDS: Final = 500  # in one statement
_GAP: Final = 64  # places between two records whose heads are fetched together
_HASH: Final = 32  # bytes of a leaf hash
_BARE: Final = select(RECORDS.c.place, RECORDS.c.seq, *(RECORDS.c[name] for name in FIELDS), RECORDS.c.body)
_BODY: Final = 2 + len(FIELDS)  # index of the body in a row of it; the fields of a leaf come before
_WITH_CONTENT: Final = (
    _BARE.add_columns(
        CONTENTS.c.salt, CONTENTS.c.body, *(CONTENTS.c[name] for name in ("subject", "session", "at", "expires_at"))
    )
    .select_from(RECORDS)
    .outerjoin(CONTENTS, CONTENTS.c.record == RECORDS.c.id)
)


class StoredApproval(NamedTuple):
    """An approval as it was decided: who, `approve`, `deny` or `pending`, and for what it stands, if for anything."""

    id: str
    digest: str
    by: str
    act: str
    stands: str = ""


def standing_of(body: Mapping[str, Any]) -> str:
    """For what a row or a record says that an approval stands, as one text; empty for nothing."""
    parts = [body.get(name) for name in ("scope", "until", "target", "repeat", "owner")]
    return dumps(parts).decode() if parts[0] else ""


class SessionRows(NamedTuple):
    """A session as stored: labels with their sources, counters by name, and the approvals that were used."""

    version: Any
    labels: set[tuple[str, str]]
    counters: dict[str, Any]
    used: set[str]


class LiftedLabel(NamedTuple):
    """A grant: which label it lifts, in which session, of which events, until when."""

    id: str
    label: str
    session: SessionId
    sources: frozenset[str]
    until: str


class StoreEvidence:
    """The logs in a database. Each call reads the current state; with `at_one_moment`, all read the same one."""

    has_contents: Final = True

    def __init__(self, engine: Engine, connection: Connection | None = None) -> None:
        self._engine = engine
        self._connection = connection

    @classmethod
    @contextmanager
    def at_one_moment(cls, engine: Engine) -> Iterator[StoreEvidence]:
        """Evidence from a snapshot, unaffected by concurrent writes.

        So the records of every head are present, and so is the erasure of any content that is gone, in whichever log.

        Raises:
            StoreError: the database cannot be read, or lacks tables (`store.incomplete`).
        """
        with snapshot(engine) as connection:
            if lacking := sorted(METADATA.tables.keys() - inspect(connection).get_table_names()):
                problem = f"tables of the store are missing: {', '.join(lacking)}"
                place = engine.url.render_as_string()
                raise StoreError(problem, path=place, code="store.incomplete", hint="restore a backup")
            yield cls(engine, connection)

    def logs(self) -> Iterator[LogRow]:
        """Every log."""
        for row in self._rows(select(LOGS).order_by(LOGS.c.opened_at, LOGS.c.id)):
            yield LogRow(**row)

    def heads(self, log: str) -> Iterator[StoredHead]:
        """The heads of a log, by size."""
        for row in self._rows(select(HEADS).where(HEADS.c.log == log).order_by(HEADS.c.size)):
            yield StoredHead.of(row)

    def leaves(self, log: str) -> Iterator[Leaf]:
        """The records of a log, by place."""
        return self._leaves(RECORDS.c.log == log, RECORDS.c.place)

    def strays(self) -> Iterator[Leaf]:
        """The records of no log, or of one that is not among `logs`, in order."""
        known = select(LOGS.c.id)
        of_none = or_(RECORDS.c.log.is_(None), RECORDS.c.place.is_(None), RECORDS.c.log.not_in(known))
        return self._leaves(of_none, RECORDS.c.seq)

    def holds(self) -> Iterator[Held]:
        """The holds in force, as an erasure sees them."""
        live = select(*(HOLDS.c[name] for name in Held._fields)).where(HOLDS.c.released_at.is_(None))
        return (Held(*row.values()) for row in self._rows(live.order_by(HOLDS.c.id)))

    def policies(self) -> dict[str, bytes]:
        """The stored policy bundles (`.tar.gz`), by the revision that they claim to be."""
        kept = select(POLICY_SETS.c.revision, POLICY_SETS.c.bundle)
        return {row["revision"]: row["bundle"] for row in self._rows(kept)}

    def approvals(self) -> Iterator[tuple[StoredApproval, str | None]]:
        """The stored approvals, as records have what was decided, each with who revoked it."""
        acts = {"pending": "pending", "denied": "deny"}
        for row in self._rows(select(APPROVALS).order_by(APPROVALS.c.id)):
            act = acts.get(row["status"], "approve")
            stands = {**row, "until": row["scope_until"]} if row["scope"] != ApprovalScope.ONCE.value else {}
            known = StoredApproval(row["id"], row["digest"], row["approver"] or "", act, standing_of(stands))
            yield known, row["revoker"]

    def session_changes(self) -> Iterator[tuple[SessionId, Any]]:
        """What each record of a decision says that it changed in its session; the ids are as rows have them."""
        columns = (RECORDS.c.subject, RECORDS.c.session, RECORDS.c.body)
        for row in self._rows(select(*columns).where(RECORDS.c.kind == "decision", RECORDS.c.session.is_not(None))):
            if type(row["body"]) is bytes and (made := session_changes_in(row["body"])) is not None:
                yield (row["subject"], row["session"]), made

    def sessions(self, wanted: Collection[SessionId]) -> dict[SessionId, SessionRows]:
        """Those of the sessions that are stored, with what they have named as records name it."""
        found = {}
        for row in self._rows(select(SESSION_STATE)):
            if (key := (row["subject"], row["session"])) in wanted:
                found[key] = SessionRows(row["version"], set(), {}, set())
        for row in self._rows(select(SESSION_LABELS)):
            if (session := found.get((row["subject"], row["session"]))) is not None:
                session.labels.add((plain(str(row["label"])), plain(str(row["source"]))))
        for row in self._rows(select(SESSION_COUNTERS)):
            if (session := found.get((row["subject"], row["session"]))) is not None:
                session.counters[plain(str(row["name"]))] = row["amount"]
        for row in self._rows(select(APPROVALS).where(APPROVALS.c.status == ApprovalStatus.USED.value)):
            if (session := found.get((row["subject"], row["session"]))) is not None:
                session.used.add(row["id"])
        return found

    def grants(self) -> Iterator[LiftedLabel]:
        """The stored grants, as their records tell of them."""
        sources: defaultdict[str, set[str]] = defaultdict(set)
        for row in self._rows(select(SESSION_GRANT_SOURCES)):
            sources[row["grant_id"]].add(row["source"])
        for row in self._rows(select(SESSION_GRANTS).order_by(SESSION_GRANTS.c.id)):
            session = row["subject"], row["session"]
            until = row["expires_at"]
            shown = instant_of(until).isoformat() if type(until) is int else str(until)
            yield LiftedLabel(row["id"], plain(str(row["label"])), session, frozenset(sources[row["id"]]), shown)

    def acts(self, kind: str) -> Iterator[tuple[str, str, bytes | None]]:
        """The action, revision and bytes of each record of a kind, oldest first."""
        some = select(RECORDS.c.action, RECORDS.c.revision, RECORDS.c.body).where(RECORDS.c.kind == kind)
        for row in self._rows(some.order_by(RECORDS.c.seq)):
            yield row["action"], row["revision"], row["body"]

    def revisions(self) -> frozenset[str]:
        """The revisions of policies that decided."""
        some = select(RECORDS.c.revision).where(RECORDS.c.kind == "decision").distinct()
        return frozenset(str(row["revision"]) for row in self._rows(some))

    def foreign(self) -> Iterator[str]:
        """The kind and name of each object in the database that no store has, such as a trigger."""
        with self._reading() as connection:
            yield from foreign_in(connection)

    def misindexed(self) -> Iterator[str | None]:
        """The ids of records whose index entries do not match them; None for an entry without a record."""
        with self._reading() as connection:
            yield from misindexed(connection)

    def damage(self) -> Iterator[tuple[str | None, str]]:
        """What SQLite finds wrong in its file, such as rows missing from an index, and the ids of the records."""
        with self._reading() as connection:
            yield from damage_in(connection)

    def changed(self, rows: Sequence[Placed], keys: Collection[PublicKey] | None = None) -> frozenset[str]:
        """The ids of those records, as read before, of which what is stored now is another, or not what a head signed.

        The keys are those whose signatures count; by default the one that each log names.
        """
        with self._reading() as connection:
            wanted = sorted((row for row in rows if row.log is not None), key=attrgetter("log", "place"))
            signed = _signed_leaves(connection, wanted, None if keys is None else {key.pem for key in keys})
            found: dict[str, Any] = {}
            for start in range(0, len(rows), _IDS):
                ids = [row.id for row in rows[start : start + _IDS]]
                some = PLACED.add_columns(RECORDS.c.body).where(RECORDS.c.id.in_(ids))
                found |= {row["id"]: row for row in connection.execute(some).mappings()}
            return frozenset(row.id for row in rows if not _is_kept(row, found.get(row.id), signed))

    def orphans(self) -> Iterator[str]:
        """The ids of missing records that content is still stored for."""
        without = select(CONTENTS.c.record).where(CONTENTS.c.record.not_in(select(RECORDS.c.id)))
        return (str(row["record"]) for row in self._rows(without.order_by(CONTENTS.c.record)))

    def _rows(self, query: Select[Any]) -> Iterator[Any]:
        with self._reading() as connection:
            yield from connection.execute(query.execution_options(yield_per=_PAGE_SIZE)).mappings()

    def _leaves(self, wanted: ColumnElement[bool], order: Column[int]) -> Iterator[Leaf]:
        with self._reading() as connection:
            # Without separate contents, skip the join.
            some = connection.execute(select(CONTENTS.c.record).limit(1)).first()
            query = (_BARE if some is None else _WITH_CONTENT).where(wanted).order_by(order)
            # By the page: handing rows over one by one would take as long as reading them.
            for rows in connection.execute(query.execution_options(yield_per=_PAGE_SIZE)).partitions():
                yield from map(_bare if some is None else _leaf, rows)

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with snapshot(self._engine) as connection:
            yield connection


def _signed_leaves(
    connection: Connection, rows: Sequence[Placed], keys: Collection[str] | None
) -> dict[tuple[str | None, int | None], bytes]:
    """The leaf hashes that valid heads cover, by log and place, at least where these records are, in order."""
    public = {row.id: row.public_key for row in connection.execute(select(LOGS.c.id, LOGS.c.public_key))}
    signed: dict[tuple[str | None, int | None], bytes] = {}
    for log, first, last in _runs(rows):
        pem = public.get(log)
        if pem is None or (keys is not None and pem not in keys):
            continue
        around = (HEADS.c.log == log) & (HEADS.c.size > first) & (HEADS.c.first <= last)
        for row in connection.execute(select(HEADS).where(around)).mappings():
            stored = StoredHead.of(row)
            head, leaves = stored.head, stored.leaves
            if _is_signed(pem, head) and batch_digest(leaves) == head.batch:
                for place in range(head.first, head.size):
                    at = (place - head.first) * _HASH
                    signed[log, place] = leaves[at : at + _HASH]
    return signed


def _runs(rows: Sequence[Placed]) -> Iterator[tuple[str, int, int]]:
    """Log, first and last place of records that are close to one another."""
    begun: list[Any] = []
    for row in rows:
        if begun and (row.log != begun[0] or (row.place or 0) - begun[2] > _GAP):
            yield (begun[0], begun[1], begun[2])
            begun = []
        begun = [row.log, begun[1] if begun else row.place or 0, row.place or 0]
    if begun:
        yield (begun[0], begun[1], begun[2])


@lru_cache(maxsize=1 << 16)
def _is_signed(pem: str, head: Head) -> bool:
    try:
        return PublicKey.of(pem).signed(head)
    except ValueError:
        return False


def _is_kept(row: Placed, stored: Any, signed: dict[tuple[str | None, int | None], bytes]) -> bool:
    """Whether the record is stored as it was read before, its bytes are those of its digest, and the log signed it."""
    if stored is None or any(getattr(row, name) != stored[name] for name in (*FIELDS, "log", "place")):
        return False
    if type(stored["body"]) is not bytes or hashlib.sha256(stored["body"]).hexdigest() != row.digest:
        return False
    return row.log is None or signed.get((row.log, row.place)) == leaf_of(stored)


def _leaf(row: Any) -> Leaf:
    salt, content, *filed = row[_BODY + 1 :]
    kept = None if salt is None and content is None else Kept(salt, content, tuple(filed))
    return _bare(row)._replace(content=kept)


def _bare(row: Any) -> Leaf:
    place = row[0]
    return Leaf(place if type(place) is int else -1, row[1], row[2:_BODY], row[_BODY])
