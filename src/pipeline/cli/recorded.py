"""Recorded inputs for the commands that judge them again: from a file, or from a store with content [AUD-71]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.cli.audit_store import check_key, other_key, reading
from pipeline.decisions.authority import holder
from pipeline.decisions.errors import ConfigError
from pipeline.run.recorded_input import Entry, find, read_entry
from pipeline.store.contents import REVEAL
from pipeline.store.database import Store, key_beside
from pipeline.store.engine import check_is_store, file_of, is_database
from pipeline.store.evidence import StoreEvidence


def is_store(place: str) -> bool:
    """Whether `place` is a database, file or server, and not a file of recorded inputs; ConfigError: another URL."""
    file = file_of(place)
    return file is None or is_database(file)


@contextmanager
def opened_store(place: str, key: Path | None) -> Iterator[Store]:
    """An existing store, opened for recording; the key must be one that has signed there before.

    Raises:
        ConfigError: its logs are signed with another key. StoreError: it cannot be opened.
    """
    check_is_store(place)  # a missing store is not created
    with reading(place) as engine:
        known = {log.key for log in StoreEvidence(engine).logs()}
    if known:
        check_key(key)
        database = file_of(place)
        if key is None and database is not None and not key_beside(database).is_file():
            raise other_key(place)  # a key created now would never have signed here
    with Store.named(place, key=key) as store:
        if known and store.key_id not in known:
            raise other_key(place)
        yield store


@contextmanager
def lines_of(
    place: str, key: Path | None, read: Callable[[Path], Iterator[bytes]]
) -> Iterator[Callable[[], Iterator[bytes]]]:
    """A function that yields the lines; `read` yields those of a file. Reading a store's lines is recorded."""
    if not is_store(place):
        yield lambda: read(Path(place))
        return
    with opened_store(place, key) as store:
        yield store.contents().lines(actor=holder("cmf impact", REVEAL), reason="judged again under other policies")


def entry_in(place: str, key: Path | None, record: str, *, person: str | None, reason: str | None) -> Entry:
    """The entry of that id; reading it from a store records who asked for it, and why.

    Raises:
        ReplayError, AuditError, StoreError: there is none, or it cannot be read. ConfigError: person or reason missing.
    """
    if not is_store(place):
        return find(Path(place), record)
    if person is None or reason is None:
        raise ConfigError("reading content from a store is recorded", path=place, hint="give --as and --reason")
    with opened_store(place, key) as store:
        return read_entry(store.contents().reveal(record, actor=holder(person, REVEAL), reason=reason))


__all__ = ["entry_in", "is_store", "lines_of", "opened_store"]
