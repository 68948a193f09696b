"""Opening a database: settings that make a commit durable, and migrations up to what this code knows [E5].

Spec: docs/spec/recorder.md.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

import sqlalchemy
from sqlalchemy import Connection, Engine, LargeBinary, Table, event, insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from pipeline.errors import ConfigError, StoreError
from pipeline.store.tables import METADATA

SCHEMA: Final = "0007"  # the newest migration; a test compares it with the folder
MIGRATIONS: Final = Path(__file__).parent / "migrations"
BUSY_SECONDS: Final = 2.0  # how long SQLite waits for another process' transaction
_AGAIN_SECONDS: Final = 0.01
_WRITERS: Final = 0x636D66_73746F72  # advisory lock of PostgreSQL that each writer holds during its transaction
_TOGETHER: Final = 64  # rows in one statement, at most
_KNOWN: Final = 256  # statements that the driver caches: an insert of each number of rows is a statement of its own
_ROOM: Final = "0" * 64 * 1024  # about the bytes that a few records take, with their head and indexes
_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]*://")  # what a URL begins with, and no path of a file does
_NAMED_BY: Final = "write a path, sqlite:////path/to/file, or postgresql://host/database"
_BEGIN: Final = "cmf_begin"  # execution option: how a transaction of SQLite begins


def address_of(place: str | Path) -> URL:
    """The address of a database as its user names it: by a URL, or by the path of a SQLite file.

    Raises:
        ConfigError: a URL of another kind.
    """
    if isinstance(place, str) and _SCHEME.match(place):
        return _target(place)
    return URL.create("sqlite", database=str(Path(place).absolute()))


def file_of(place: str | Path) -> Path | None:
    """The SQLite file that a user names by its path or URL; None where it is a server. ConfigError as `address_of`."""
    target = address_of(place)
    return None if _is_shared(target) else Path(str(target.database))


def open_engine(url: str | URL, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine on a database that is migrated and ready; a missing SQLite file is made, readable by its owner alone.

    Args:
        url: `sqlite:////absolute/path`, or `postgresql://host/database`.
        busy_seconds: how long a transaction waits for that of another process.

    Raises:
        ConfigError: a URL of another kind. StoreError: the database cannot be opened, is newer than this code
            (`store.newer-schema`), or cannot be migrated.
    """
    target = _target(url)
    try:
        engine = _shared(target, busy_seconds) if _is_shared(target) else _own(target, busy_seconds)
        migrate(engine)
    except (SQLAlchemyError, OSError) as error:
        raise unavailable("the store cannot be opened", error, _named(target)) from error
    return engine


def _own(target: URL, busy_seconds: float) -> Engine:
    """An engine for SQLite: a file on this machine."""
    _make_private(Path(str(target.database)))
    engine = sqlalchemy.create_engine(target, connect_args={"timeout": busy_seconds, "cached_statements": _KNOWN})
    event.listen(engine, "connect", partial(_durable, busy_seconds))
    event.listen(engine, "begin", _begin)
    return engine


def _shared(target: URL, busy_seconds: float, *, more: str = "") -> Engine:
    """An engine for PostgreSQL: a server. One transaction writes at a time, under a lock, as with SQLite."""
    settings = f"-c lock_timeout={round(busy_seconds * 1000)} -c synchronous_commit=on{more}"
    engine = sqlalchemy.create_engine(
        target,
        isolation_level="REPEATABLE READ",
        pool_pre_ping=True,
        connect_args={"options": settings, "connect_timeout": max(2, round(busy_seconds))},
    )
    event.listen(engine, "begin", _take_lock)
    return engine


def open_to_read(place: str | Path) -> Engine:
    """An engine that cannot write: neither the database nor any file beside it is changed.

    `place` is a path or URL, as `address_of` takes it.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such database, or it has a newer schema than this
            code knows (`store.newer-schema`), or an older one (`store.other-schema`).
    """
    engine, found = looked_into(place)
    if found > SCHEMA:
        raise _newer(found, str(place))
    if found != SCHEMA:
        hint = "`cmf ledger list` brings it up to this one"
        raise StoreError(_schemas(found), path=str(place), code="store.other-schema", hint=hint)
    return engine


def check_is_store(place: str | Path) -> None:
    """Return if there is a store at `place`, of any schema. Nothing is created or migrated.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is none, or it cannot be read.
    """
    looked_into(place)[0].dispose()


def check_can_write(place: str | Path) -> None:
    """Return if this user can write to the store now: a write is begun and rolled back.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is none, or it cannot be written.
    """
    check_is_there(place)
    target = address_of(place)
    try:
        engine = _shared(target, BUSY_SECONDS) if _is_shared(target) else _own(target, BUSY_SECONDS)
        try:
            with engine.connect() as connection, writing(connection).begin() as transaction:
                touch(connection)
                transaction.rollback()
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        raise unavailable("the store cannot be written", error, _named(target)) from error


def looked_into(place: str | Path) -> tuple[Engine, str]:
    """An engine that cannot write, and the store's schema version; see `open_to_read`."""
    file = file_of(place)
    if file is None:
        engine = _shared(address_of(place), BUSY_SECONDS, more=" -c default_transaction_read_only=on")
    else:
        check_is_there(place)
        absolute = quote(str(file.absolute()))
        said = {"mode": "ro", "uri": "true"} | ({"immutable": "1"} if _is_at_rest(file) else {})
        to_read = URL.create("sqlite", database=f"file:{absolute}", query=said)
        engine = sqlalchemy.create_engine(to_read, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "connect", _read_any_text)
    try:
        with engine.connect() as connection:
            found = _revision(connection)
    except SQLAlchemyError as error:
        raise unavailable("the store cannot be opened", error, _named(engine.url, str(file))) from error
    if found is None:
        hint = "check the name; what an older version made is brought up to date by what records there"
        raise StoreError("there is no store in this database", path=_named(engine.url, str(file)), hint=hint)
    return engine, found


def _read_any_text(connection: Any, _: object) -> None:
    # A text that somebody made into none is to be found, and is not to hide all others [AUD-32].
    connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")


def _is_at_rest(file: Path) -> bool:
    """Whether the file is a copy that nobody has open, in a place where SQLite may not make its files beside it."""
    return not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()


def check_is_there(place: str | Path) -> None:
    """Return if the store is a server or an existing file, so that a misspelt name creates none.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such file.
    """
    file = file_of(place)
    if file is not None and not file.is_file():
        hint = "check the name; what keeps records makes a store, `cmf serve` say"
        raise StoreError("there is no store here", path=str(place), hint=hint)


def _named(target: URL, file: str | None = None) -> str:
    """The name of the database for messages: the file, or the server's URL without its password."""
    return target.render_as_string() if _is_shared(target) else file or str(target.database)


def _is_shared(target: URL) -> bool:
    return target.get_backend_name() == "postgresql"


def _target(url: str | URL) -> URL:
    try:
        target = make_url(url)
    except ArgumentError:
        raise ConfigError("this is no database URL", hint=_NAMED_BY) from None
    if target.drivername in ("postgresql", "postgresql+psycopg"):
        if not target.database:
            raise ConfigError("the store needs a database", hint="write postgresql://host/database")
        return target.set(drivername="postgresql+psycopg")
    if target.get_backend_name() != "sqlite":
        raise ConfigError("the store is SQLite or PostgreSQL", hint=_NAMED_BY)
    if target.database in (None, "", ":memory:"):
        raise ConfigError("the store needs a file", hint="sessions that may be lost are `MemorySessions`")
    return target


def _make_private(file: Path) -> None:
    # SQLite gives its journal files the mode of the database.
    os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))


def _durable(busy_seconds: float, connection: Any, _: object) -> None:
    # The driver's own transactions begin too late for a snapshot; ours begin where SQLAlchemy says so.
    connection.isolation_level = None
    _keep_journal(connection, time.monotonic() + busy_seconds)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA secure_delete=ON")  # erased content is overwritten in the file, not only unlinked


def _keep_journal(connection: Any, until: float) -> None:
    """Turn write-ahead logging on, trying until `until`: if several processes do so at once, SQLite lets some fail."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() >= until:
                raise
        time.sleep(_AGAIN_SECONDS)


def _begin(connection: Connection) -> None:
    statement = f"BEGIN {connection.get_execution_options().get(_BEGIN, 'DEFERRED')}"
    try:
        # By `execute`, others may take the interpreter five times meanwhile; by way of SQLAlchemy it takes ten times as
        # long.
        _driver(connection).executescript(statement)
    except sqlite3.Error as error:
        raise OperationalError(statement, None, error) from error


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that name the same columns, two or more; at least one row. What fails undoes the transaction.

    They go to SQLite's driver directly: SQLAlchemy takes many times as long to prepare a statement.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(insert(table), [dict(row) for row in rows])
        return
    driver, form, done = _driver(connection), _form_of(table, rows), 0
    while done < len(rows):
        # At each statement another thread may take the interpreter, four times, and keep it for milliseconds.
        size = min(_TOGETHER, len(rows) - done)
        values = list(chain.from_iterable(map(form.given, rows[done : done + size])))
        for at in form.blobs:  # for bytes the driver looks for an adapter, and raises within: 3,300 instructions each
            column = values[at :: len(form.names)]
            values[at :: len(form.names)] = [None if blob is None else bytearray(blob) for blob in column]
        driver.executemany(_insertion(table, form.names, size), (values,))  # `execute` gives way once more
        done += size


class _Form(NamedTuple):
    """Some columns of a table: their names, a function for their values, which hold bytes, and which may be None."""

    names: tuple[str, ...]
    given: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    blobs: tuple[int, ...]
    nullable: tuple[str, ...]


def _form_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> _Form:
    """The columns in which any of the rows has a value. Others are left out: each None costs the driver time too."""
    form, first = _form(table, tuple(rows[0])), rows[0]
    lacking = [name for name in form.nullable if first[name] is None and all(row[name] is None for row in rows)]
    return _form(table, tuple([name for name in first if name not in lacking])) if lacking else form


@cache
def _form(table: Table, names: tuple[str, ...]) -> _Form:
    blobs = tuple(at for at, name in enumerate(names) if isinstance(table.c[name].type, LargeBinary))
    return _Form(names, itemgetter(*names), blobs, tuple(name for name in names if table.c[name].nullable))


@cache
def _insertion(table: Table, names: tuple[str, ...], size: int) -> str:
    # To be undone alone, a statement of many rows would first copy each page that it changes, to a file if these are
    # many. Whoever inserts here undoes the whole transaction.
    columns = ", ".join(f'"{table.c[name].name}"' for name in names)
    row = f"({', '.join('?' * len(names))})"
    return f'INSERT OR ROLLBACK INTO "{table.name}" ({columns}) VALUES {", ".join([row] * size)}'  # noqa: S608 - our own names


def touch(connection: Connection) -> None:
    """A write that changes nothing and is no record, and takes the room of some: once it is durable, others can be."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (_ROOM,))
        connection.exec_driver_sql("DELETE FROM alembic_version WHERE version_num = ?", (_ROOM,))
    else:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


def _take_lock(connection: Connection) -> None:
    if _BEGIN in connection.get_execution_options():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")


def writing(connection: Connection) -> Connection:
    """The connection, its transactions taking the write lock when they begin: what they read stays true."""
    if connection.dialect.name == "postgresql":
        # Each statement sees what was committed before it: nobody commits while this one holds the lock.
        return connection.execution_options(isolation_level="READ COMMITTED", **{_BEGIN: "IMMEDIATE"})
    return connection.execution_options(**{_BEGIN: "IMMEDIATE"})


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose reads all see the database as it is at one moment.

    Raises:
        StoreError: the database cannot be read.
    """
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except SQLAlchemyError as error:
        raise unavailable("the store cannot be read", error) from error


def scrub(engine: Engine) -> None:
    """Have SQLite empty its write-ahead log, which still has what was deleted, as far as nobody reads from it."""
    if engine.dialect.name == "sqlite":
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        finally:
            connection.close()


_REPORTED: Final[Mapping[object, str]] = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it may not be written by this user",
    "SQLITE_READONLY_DIRECTORY": "its directory may not be written by this user",
    "SQLITE_CANTOPEN": "look at its directory, and whose it is",
    "SQLITE_NOTADB": "this file is no database",
    "SQLITE_BUSY": "another process holds it",
    "No such file or directory": "make its directory first, with mkdir -p",
    "Permission denied": "its directory may not be written by this user",
    "Read-only file system": "name one that can be written, or a copy of it",
    "Is a directory": "name a file",
    "OperationalError": "does the server run, and may this user connect? `psql` with the same URL says more",
}


def unavailable(what: str, error: Exception, place: str = "") -> StoreError:
    """The error for a database that failed. It names the driver's error without its text, which quotes values."""
    cause = getattr(error, "orig", None) or error
    said = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    if said is None and isinstance(cause, OSError):
        said = cause.strerror
    said = said or type(error).__name__
    hint = f"the database reported {said}"
    return StoreError(what, path=place, hint=f"{hint}: {_REPORTED[said]}" if said in _REPORTED else hint)


def migrate(engine: Engine) -> None:
    """Migrate the tables to this code's schema, in one transaction. Several processes may do so at once.

    Raises:
        StoreError: the database was migrated by newer code (`store.newer-schema`).
    """
    with engine.connect() as connection, connection.begin():
        found = _revision(connection)
    if found == SCHEMA:
        return
    if found is not None and found > SCHEMA:
        raise _newer(found, _named(engine.url))
    with engine.connect() as connection:
        connection = writing(connection)
        with connection.begin():
            if _is_new(connection):
                _make(connection)
            else:
                upgrade(connection)


def _newer(found: str, place: str) -> StoreError:
    hint = "install the version that wrote it, or go back to a copy from before"
    return StoreError(_schemas(found), path=place, code="store.newer-schema", hint=hint)


def _schemas(found: str) -> str:
    return f"the store has schema {found}, this code knows {SCHEMA}"


def _is_new(connection: Connection) -> bool:
    """Whether the database is empty; the first version had tables, but no revision."""
    there = set(sqlalchemy.inspect(connection).get_table_names())
    return there.isdisjoint({*METADATA.tables, "alembic_version"})


def _make(connection: Connection) -> None:
    """Create all tables as the migrations leave them, without loading Alembic, which takes time and memory."""
    METADATA.create_all(connection, checkfirst=False)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    connection.exec_driver_sql(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key})")
    connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{SCHEMA}')")  # noqa: S608 - our own number


def upgrade(connection: Connection, revision: str = SCHEMA) -> None:
    """Run the migrations up to `revision` within the connection's transaction."""
    # Loading Alembic costs a tenth of a second, and most openings need no migration.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def _revision(connection: Connection) -> str | None:
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return found
