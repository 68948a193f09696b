"""Judged inputs for the commands that judge them again: a file of them, or a store that kept them [AUD-71]."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pipeline.authority import holder
from pipeline.cli.audit import check_key, looking_through, other_key, reading
from pipeline.errors import ConfigError
from pipeline.replay.file import Entry, find, read_entry
from pipeline.store.contents import REVEAL
from pipeline.store.database import Store, key_beside
from pipeline.store.engine import file_of
from pipeline.store.evidence import StoreEvidence

_SQLITE: Final = b"SQLite format 3\x00"


def is_store(place: str) -> bool:
    """Whether a database is there, a file or a server, and no file of judged inputs; ConfigError: another URL."""
    file = file_of(place)
    if file is None:
        return True
    try:
        with file.open("rb") as opened:
            return opened.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


@contextmanager
def opened_store(place: str, key: Path | None) -> Iterator[Store]:
    """A store that is there, to put something on record in it; it has to be under a key that signed there before.

    Raises:
        ConfigError: its logs are under another key. StoreError: it cannot be opened.
    """
    with looking_through(place):  # a store that is missing is not made, and one of an older version brought up to date
        pass
    with reading(place) as engine:
        known = {log.key for log in StoreEvidence(engine).logs()}
    if known:
        check_key(key)
        database = file_of(place)
        if key is None and database is not None and not key_beside(database).is_file():
            raise other_key(place)  # one that is made now never signed here
    with Store.named(place, key=key) as store:
        if known and store.key_id not in known:
            raise other_key(place)
        yield store


@contextmanager
def lines_of(
    place: str, key: Path | None, read: Callable[[Path], Iterator[bytes]]
) -> Iterator[Callable[[], Iterator[bytes]]]:
    """A function that gives the lines; `read` gives those of a file. That those of a store were read is on record."""
    if not is_store(place):
        yield lambda: read(Path(place))
        return
    with opened_store(place, key) as store:
        yield store.contents().lines(actor=holder("cmf impact", REVEAL), reason="judged again under other policies")


def entry_in(place: str, key: Path | None, record: str, *, person: str | None, reason: str | None) -> Entry:
    """The entry of that id; out of a store with a record of who asked for it, and why.

    Raises:
        ReplayError, AuditError, StoreError: there is none, or it cannot be read. ConfigError: nobody said who asks.
    """
    if not is_store(place):
        return find(Path(place), record)
    if person is None or reason is None:
        raise ConfigError("content is shown to somebody, for a reason", path=place, hint="give --as and --reason")
    with opened_store(place, key) as store:
        return read_entry(store.contents().reveal(record, actor=holder(person, REVEAL), reason=reason))


__all__ = ["entry_in", "is_store", "lines_of", "opened_store"]
