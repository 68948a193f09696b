"""The policies in use, by revision, so that exported evidence can include them. Spec: docs/spec/audit.md [AUD-50]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Connection

from pipeline.audit.record import Record
from pipeline.decisions.timestamps import micros
from pipeline.store.records import row_of
from pipeline.store.sessions import insert_missing
from pipeline.store.tables import POLICY_SETS
from pipeline.store.writer import Recorded, waited

if TYPE_CHECKING:
    from pipeline.store.database import Store


def keep_policies(store: Store, revision: str, bundle: bytes, record: Record) -> None:
    """Store the bundle of that revision unless it is there, and its record, in one commit.

    Raises:
        StoreError: neither was stored.
    """
    row = {"revision": revision, "at": micros(record.timestamp), "bundle": bundle}

    def job(connection: Connection) -> Recorded[None]:
        insert_missing(connection, POLICY_SETS, [row])
        return Recorded(None, [row_of(record)])

    waited(store.writer.recorded(job))
