"""Opening the stores that commands name, to read, to search or to record; and the recorded inputs in them [AUD-71].

The database is imported when a store is opened, so that help and completion are fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pipeline.decisions.errors import ConfigError

if TYPE_CHECKING:
    from cmf.message.security import SubjectExtension
    from pipeline.run.recorded_input import Entry
    from pipeline.store.database import Store


Permission: TypeAlias = Literal[
    "approve", "break-glass", "declassify", "erase", "hold", "override", "reveal", "two-people"
]


def check_key(named: Path | None) -> None:
    """Check that a named key exists: a store that has records already has a key, so none is created."""
    if named is not None and not named.is_file():
        raise ConfigError("no such key file", path=str(named), hint="check the path given with --signing-key")


def other_key(store: str) -> ConfigError:
    """The error for a key that is not the store's."""
    hint = "give the key that signs its records with --signing-key FILE"
    return ConfigError("this store's records are signed with another key", path=store, hint=hint)


@contextmanager
def reading(store: str) -> Iterator[Any]:
    """A read-only engine on the store."""
    from pipeline.store.engine import open_to_read

    engine = open_to_read(store)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def opened_for_search(store: str) -> Iterator[Store]:
    """An existing store, opened for searching: nothing is recorded, so no key is needed."""
    from pipeline.store.database import Store

    with reading(store):  # creates none, and refuses one of another schema
        pass
    with Store.named(store, keyless=True) as opened:
        yield opened


@contextmanager
def opened_store(place: str, key: Path | None) -> Iterator[Store]:
    """An existing store, opened for recording; the key must be one that has signed there before.

    Raises:
        ConfigError: its logs are signed with another key. StoreError: it cannot be opened.
    """
    from pipeline.store.database import Store, key_beside
    from pipeline.store.engine import check_is_store, file_of
    from pipeline.store.evidence import StoreEvidence

    check_is_store(place)  # a missing store is not created
    with reading(place) as engine:
        signers = {log.key for log in StoreEvidence(engine).logs()}
    if signers:
        check_key(key)
        database = file_of(place)
        if key is None and database is not None and not key_beside(database).is_file():
            raise other_key(place)  # a key created now would never have signed here
    with Store.named(place, key=key) as store:
        if signers and store.key_id not in signers:
            raise other_key(place)
        yield store


def is_store(place: str) -> bool:
    """Whether `place` is a database, file or server, and not a file of recorded inputs; ConfigError: another URL."""
    from pipeline.store.engine import file_of, is_database

    file = file_of(place)
    return file is None or is_database(file)


@contextmanager
def lines_of(
    place: str, key: Path | None, read: Callable[[Path], Iterator[bytes]], *, actor: str, reason: str
) -> Iterator[Callable[[], Iterator[bytes]]]:
    """A function that yields the lines; `read` yields those of a file. Reading a store's lines is recorded."""
    if not is_store(place):
        yield lambda: read(Path(place))
        return
    with opened_store(place, key) as store:
        yield store.contents().lines(actor=acting(actor, "reveal"), reason=reason)


def entry_in(place: str, key: Path | None, record: str, *, person: str | None, reason: str | None) -> Entry:
    """The entry of that id; reading it from a store records who asked for it, and why.

    Raises:
        ReplayError, AuditError, StoreError: there is none, or it cannot be read. ConfigError: person or reason missing.
    """
    from pipeline.run.recorded_input import find, read_entry

    if not is_store(place):
        return find(Path(place), record)
    if person is None or reason is None:
        raise ConfigError("reading content from a store is recorded", path=place, hint="give --as and --reason")
    with opened_store(place, key) as store:
        return read_entry(store.contents().reveal(record, actor=acting(person, "reveal"), reason=reason))


def acting(name: str, permission: Permission) -> SubjectExtension:
    """Somebody with the permission `cmf:…`: whoever can open the store is taken to be who they say [CLI-23]."""
    from pipeline.decisions.authority import holder

    return holder(name, f"cmf:{permission}")


def agreeing(name: str | None, permission: Permission) -> SubjectExtension | None:
    """A second person, who agrees; None if none is named."""
    return None if name is None else acting(name, permission)
