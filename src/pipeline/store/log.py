"""The Merkle log of one writer: each record gets a place, each commit a signed head [E3]. Spec: docs/spec/audit.md.

All of this runs in the writer's thread and inside its transactions: a record, its place and the head over it become
durable together or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import Connection, func, insert, select, update

from cmf.json.codec import dumps
from cmf.message.ids import Clock
from pipeline.audit.evidence import fields_of, leaves_of
from pipeline.audit.heads import Head, Signer, Tree, batch_digest
from pipeline.decisions.timestamps import micros, new_ulid
from pipeline.store.engine import insert_rows
from pipeline.store.tables import HEADS, LOGS

Row = Mapping[str, Any]
_NO_DECISION: Final = {"subject": "anonymous", "session": None, "verdict": "none", "revision": ""}


@dataclass(frozen=True, slots=True)
class _Pending:
    """The tree, and its head, as they will be once the transaction under way commits."""

    tree: Tree
    head: Head


class Log:
    """One Merkle log. Its first leaf, written with the first record, names its key and the heads of earlier logs.

    Args:
        signer: returns the key; called once, when the log is opened.
        clock: the time of heads.
        offer: called with each durable head.
    """

    def __init__(self, signer: Callable[[], Signer], *, clock: Clock, offer: Callable[[Head], None]) -> None:
        self._make_signer = signer
        self._clock = clock
        self._offer = offer
        self._signer: Signer | None = None
        self._reset()

    def _reset(self) -> None:
        self._id = f"log_{new_ulid()}"
        self._tree = Tree()
        self._pending: _Pending | None = None

    @property
    def id(self) -> str:
        """The id of the log."""
        return self._id

    @property
    def size(self) -> int:
        """The number of its durable records."""
        return self._tree.size

    def append(self, connection: Connection, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows with their places in the log; also inserts a signed head over them."""
        signer = self._signer = self._signer or self._make_signer()
        if self._pending is not None:
            self._resolve_pending(connection)
        tree = self._tree.copy()
        entered = [dict(row) for row in rows]
        if not tree.size:
            entered.insert(0, self._opening(connection, signer))
        first = tree.size
        hashes = leaves_of(map(fields_of, entered))
        tree.extend(hashes)
        leaves = b"".join(hashes)
        for place, row in enumerate(entered, start=first):
            row["log"], row["place"] = self._id, place
        head = signer.sign(
            Head(
                log=self._id,
                size=tree.size,
                root=tree.root().hex(),
                first=first,
                batch=batch_digest(leaves),
                at=self._now(),
                key=signer.public_key.id,
            )
        )
        insert_rows(connection, HEADS, [{**head.to_json(), "leaves": leaves}])
        self._pending = _Pending(tree, head)
        return entered

    def committed(self) -> None:
        """Accept the rows of the last `append`: their transaction is durable."""
        pending, self._pending = cast("_Pending", self._pending), None
        self._offer(pending.head)
        self._tree = pending.tree

    def _resolve_pending(self, connection: Connection) -> None:
        """Find out whether the last transaction is durable: unknown if its commit raised."""
        pending = self._pending
        newest = select(func.max(HEADS.c.size)).where(HEADS.c.log == self._id)
        found = connection.execute(newest).scalar() or 0
        if pending is not None and found == pending.tree.size:
            self.committed()
        elif found == self._tree.size:
            self._pending = None
        else:  # somebody else changed this log: start a new one rather than build on it
            self._reset()

    def _opening(self, connection: Connection, signer: Signer) -> dict[str, Any]:
        """The first leaf. It notes the heads of other logs, so that none of them can disappear unnoticed."""
        seen = _grown_logs(connection)
        for other in seen:
            connection.execute(update(LOGS).where(LOGS.c.id == other["log"]).values(seen=other["size"]))
        key, now = signer.public_key, self._now()
        row = {"id": self._id, "key": key.id, "public_key": key.pem, "opened_at": now, "seen": 0}
        connection.execute(insert(LOGS), row)
        fields = {"log": self._id, "key": key.id, "public_key": key.pem, "at": now, "seen": seen}
        body = dumps({"schema": 1, **fields})
        opening = {"id": self._id, "kind": "log", "at": now, "action": "open", "body": body}
        return {**_NO_DECISION, **opening, "digest": hashlib.sha256(body).hexdigest()}

    def _now(self) -> int:
        return micros(self._clock())


def _grown_logs(connection: Connection) -> list[dict[str, Any]]:
    """The newest heads of logs that grew since a later log noted them: id, size, root."""
    newest = select(HEADS.c.log, func.max(HEADS.c.size).label("size")).group_by(HEADS.c.log).subquery()
    pending = (
        select(HEADS.c.log, HEADS.c.size, HEADS.c.root)
        .join(newest, (HEADS.c.log == newest.c.log) & (HEADS.c.size == newest.c.size))
        .join(LOGS, LOGS.c.id == HEADS.c.log)
        .where(LOGS.c.seen < HEADS.c.size)
        .order_by(HEADS.c.log)
    )
    return [row._asdict() for row in connection.execute(pending)]
