"""Opening a database: settings that make commits durable, and migrations to this code's schema [E5].

Spec: docs/spec/recorder.md.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, partial
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote
from weakref import WeakKeyDictionary

import sqlalchemy
from sqlalchemy import Connection, Engine, LargeBinary, QueuePool, Table, event, insert
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError

from pipeline.decisions.errors import ConfigError, StoreError, needs
from pipeline.store.tables import METADATA

SCHEMA: Final = "initial"  # the newest migration; a test compares it with the folder
MIGRATIONS: Final = Path(__file__).parent / "migrations"
BUSY_SECONDS: Final = 2.0  # how long SQLite waits for another process's transaction
_RETRY_SECONDS: Final = 0.01
_WRITERS: Final = 0x636D66_73746F72  # advisory lock of PostgreSQL that each writer holds during its transaction
_ROWS_PER_INSERT: Final = 64  # most rows in one statement
_CACHED_STATEMENTS: Final = 256  # by the driver: inserts of different row counts are different statements
_PADDING: Final = "0" * 64 * 1024  # about the size of a few records with their head and indexes
_SCHEME: Final = re.compile(r"[A-Za-z][\w+.-]*://")  # the start of a URL, never of a file path
_URL_HINT: Final = "write a path, sqlite:////path/to/file, or postgresql://host/database"
_BEGIN: Final = "cmf_begin"  # execution option: how a SQLite transaction begins
_FILE_HINT: Final = "name a file, or use `MemorySessions` if sessions may be lost"
_SMALLEST: Final = 512  # bytes of a database; what is smaller has no page
Identity = tuple[int, int]  # of a file, whatever its name: its device, and its number there


def address_of(place: str | Path) -> URL:
    """The address of a database that a user names by URL, or by the path of a SQLite file.

    Raises:
        ConfigError: a URL of another kind.
    """
    if isinstance(place, str) and _SCHEME.match(place):
        return resolved(place)
    return resolved(URL.create("sqlite", database=str(place)))


def file_of(place: str | Path) -> Path | None:
    """The SQLite file that a user names by path or URL; None for a server. ConfigError as `address_of`."""
    target = address_of(place)
    return None if _is_server(target) else Path(str(target.database))


def open_engine(url: str | URL, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """An engine on a migrated database; a missing SQLite file is created, readable by its owner only.

    The URL is `sqlite:////absolute/path`, or `postgresql://host/database`. A transaction waits for another process's
    for `busy_seconds`.

    Raises:
        ConfigError: a URL of another kind. StoreError: the database cannot be opened, has a schema that this code
            cannot migrate (`store.other-schema`), or has something planted in it (`store.planted`).
    """
    target = resolved(url)
    try:
        engine = _postgres_engine(target, busy_seconds) if _is_server(target) else _sqlite_engine(target, busy_seconds)
        migrate(engine)
        try:
            with engine.connect() as connection, connection.begin():
                check_nothing_acts(connection)
        except StoreError:
            engine.dispose()
            raise
    except (SQLAlchemyError, OSError) as error:
        raise unavailable("the store cannot be opened", error, _display_name(target)) from error
    if _is_server(target):
        from pipeline.store.postgres import bound  # loads the driver

        engine.dispose()  # of connections without a limit: a migration may take long
        bound(engine)
    return engine


def _sqlite_engine(target: URL, busy_seconds: float) -> Engine:
    """An engine for a SQLite file on this machine; a missing one is created."""
    file = Path(str(target.database))
    _make_private(file)
    _check_names(file)
    engine = sqlalchemy.create_engine(
        target, connect_args={"timeout": busy_seconds, "cached_statements": _CACHED_STATEMENTS}
    )
    event.listen(engine, "do_connect", partial(_check_own, file))
    event.listen(engine, "connect", partial(_durable, busy_seconds))
    event.listen(engine, "begin", _begin)
    _engines[engine] = file
    return engine


def _postgres_engine(target: URL, busy_seconds: float, *, more: str = "") -> Engine:
    """An engine for a PostgreSQL server. As with SQLite, a lock lets one transaction write at a time."""
    settings = f"-c lock_timeout={round(busy_seconds * 1000)} -c synchronous_commit=on{more}"
    with needs("postgres"):
        engine = sqlalchemy.create_engine(
            target,
            isolation_level="REPEATABLE READ",
            pool_pre_ping=True,
            connect_args={"options": settings, "connect_timeout": max(2, round(busy_seconds))},
        )
    event.listen(engine, "begin", _take_lock)
    return engine


def open_to_read(place: str | Path) -> Engine:
    """A read-only engine on the database at a path or URL: neither it nor any file beside it is changed.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such database, or it has another schema than
            this code knows (`store.other-schema`).
    """
    engine, found = open_any_schema(place)
    if found != SCHEMA:
        engine.dispose()
        raise _other_schema(found, str(place))
    return engine


def check_is_store(place: str | Path) -> None:
    """Check that there is a store at `place`, of any schema version. Nothing is created or migrated.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is none, or it cannot be read.
    """
    open_any_schema(place)[0].dispose()


def check_can_write(place: str | Path) -> None:
    """Check that this user can write to the store now: a write is started and rolled back.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is none, or it cannot be written.
    """
    check_is_there(place)
    target = address_of(place)
    try:
        engine = _postgres_engine(target, BUSY_SECONDS) if _is_server(target) else _sqlite_engine(target, BUSY_SECONDS)
        try:
            with engine.connect() as connection, writing(connection).begin() as transaction:
                touch(connection)
                transaction.rollback()
        finally:
            engine.dispose()
    except (SQLAlchemyError, OSError) as error:
        raise unavailable("the store cannot be written", error, _display_name(target)) from error


def open_any_schema(place: str | Path) -> tuple[Engine, str]:
    """A read-only engine, and the store's schema version; see `open_to_read`."""
    file = file_of(place)
    if file is None:
        engine = _postgres_engine(address_of(place), BUSY_SECONDS, more=" -c default_transaction_read_only=on")
    else:
        check_is_there(place)
        reported = {"mode": "ro", "uri": "true"} | ({"immutable": "1"} if _is_at_rest(file) else {})
        to_read = URL.create("sqlite", database=f"file:{quote(str(file.absolute()))}", query=reported)
        if not _is_at_rest(file):
            _check_names(file)
        engine = sqlalchemy.create_engine(to_read, connect_args={"timeout": BUSY_SECONDS})
        event.listen(engine, "do_connect", partial(_check_own, file))
        event.listen(engine, "connect", _read_any_text)
        _engines[engine] = file
    shown = _display_name(engine.url, str(file))
    try:
        with engine.connect() as connection:
            found = _revision(connection)
    except SQLAlchemyError as error:
        raise unavailable("the store cannot be opened", error, shown) from error
    if found is None:
        engine.dispose()
        raise StoreError("there is no store in this database", path=shown, hint="check the name", code="store.none")
    return engine, found


def _read_any_text(connection: Any, _: object) -> None:
    # Text corrupted into invalid UTF-8 has to be found, and must not hide all other rows [AUD-32].
    connection.text_factory = lambda text: text.decode("utf-8", "backslashreplace")


def _is_at_rest(file: Path) -> bool:
    """Whether the file is a copy that nobody has open, in a directory where SQLite may not create files beside it."""
    return not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()


def check_is_there(place: str | Path) -> None:
    """Check that the store is a server or an existing file, so that a misspelt name does not create one.

    Raises:
        ConfigError: a URL of another kind. StoreError: there is no such file.
    """
    file = file_of(place)
    if file is not None and not file.is_file():
        hint = "check the name; programs that record create the store, such as `cmf serve`"
        raise StoreError("there is no store here", path=str(place), hint=hint)


def _display_name(target: URL, file: str | None = None) -> str:
    """The name of the database for messages: the file, or the server's URL without its password."""
    return target.render_as_string() if _is_server(target) else file or str(target.database)


def _is_server(target: URL) -> bool:
    return target.get_backend_name() == "postgresql"


def resolved(url: str | URL) -> URL:
    """The URL with the driver that we use, or the path of the file itself in place of a link to it.

    Raises:
        ConfigError: a URL of another kind.
    """
    try:
        target = make_url(url)
    except ArgumentError:
        raise ConfigError("not a database URL", hint=_URL_HINT) from None
    if target.drivername in ("postgresql", "postgresql+psycopg"):
        if not target.database:
            raise ConfigError("the store needs a database", hint="write postgresql://host/database")
        return target.set(drivername="postgresql+psycopg")
    if target.get_backend_name() != "sqlite":
        raise ConfigError("the store is SQLite or PostgreSQL", hint=_URL_HINT)
    if target.database in (None, "", ":memory:") or target.database.startswith("file:"):
        raise ConfigError("the store needs a file", hint=_FILE_HINT)
    if target.query:
        raise ConfigError("the URL of a SQLite file takes no options", hint=_URL_HINT)
    # SQLite follows links too: its journal, and our key, are beside the file itself.
    return target.set(database=os.path.realpath(target.database))


def _make_private(file: Path) -> None:
    """Create the file if it is missing: SQLite would let others read it. Its journal files get the same mode.

    A database is opened by SQLite alone: as soon as a process closes any descriptor of a file, it loses all its locks
    on it (POSIX). Another process's SQLite then deletes the journal, with all that this one goes on to write [REC-25].
    Nobody can have locked a file that is created here.
    """
    if file.exists():
        return
    with suppress(FileExistsError):  # another process was faster
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _check_names(file: Path) -> None:
    if file.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # Its journal is beside one of its names; whoever opens it by another one has a second journal.
    if (names := file.stat().st_nlink) > 1:
        hint = "remove the other names (hard links); copy a database with SQLite's `.backup`"
        raise StoreError(f"the database file has {names} names", path=str(file), code="store.linked", hint=hint)


def identity_of(file: str | Path) -> Identity | None:
    """The identity of the file; None if there is none. The file is not opened."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_database(file: Path) -> bool:
    """Whether the file is a SQLite database. Only SQLite opens it, because this process may have it open [REC-25]."""
    if not file.is_file() or file.stat().st_size < _SMALLEST:
        return False
    # Whoever only reads leaves a journal behind; so write, if nobody has a journal open: there is nothing to clear.
    mode = "ro" if file.with_name(f"{file.name}-wal").exists() else "rw"
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode={mode}", uri=True)) as connection:
            connection.execute("PRAGMA schema_version")
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorname", "") != "SQLITE_NOTADB"  # damaged, locked, or not ours to read
    return True


_engines: Final[WeakKeyDictionary[Engine, Path]] = WeakKeyDictionary()  # of SQLite files
_inherited: Final[set[Identity]] = set()  # files that the parent of this process had open when it forked
_kept: Final[list[object]] = []  # its connections


def keep_forever(connections: object) -> None:
    """Keep a parent's connections as they are: to close them here could undo what the parent is writing."""
    _kept.append(connections)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connections))  # also when the interpreter ends


def _leave_to_parent() -> None:
    """In a forked process: never use, nor close, the connections that the parent opened."""
    for engine, file in tuple(_engines.items()):
        pool = cast("QueuePool", engine.pool)
        found = identity_of(file)
        if pool.checkedin() + pool.checkedout():
            keep_forever(pool)
            engine.dispose(close=False)
            if found is not None:
                _inherited.add(found)


if hasattr(os, "register_at_fork"):  # pragma: no branch - Windows has no fork
    os.register_at_fork(after_in_child=_leave_to_parent)


def _check_own(file: Path, *_: object) -> None:
    # SQLite takes the parent's locks for this process's and asks for none: what this process wrote would be lost.
    if _inherited and identity_of(file) in _inherited:
        raise forked()


def forked() -> StoreError:
    """The error for using a store that the parent process had open when it forked."""
    hint = "open a store in each process, after the fork, and none before it; or start processes by `spawn`"
    return StoreError("the store was opened by the parent process", code="store.forked", hint=hint)


def _durable(busy_seconds: float, connection: Any, _: object) -> None:
    # The driver begins its transactions too late for a snapshot; ours begin where SQLAlchemy does.
    connection.isolation_level = None
    _enable_wal(connection, time.monotonic() + busy_seconds)
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA secure_delete=ON")  # erased content is overwritten in the file, not only unlinked


def _enable_wal(connection: Any, until: float) -> None:
    """Switch to write-ahead logging, retrying until `until`: if processes do so concurrently, SQLite fails some."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or time.monotonic() >= until:
                raise
        time.sleep(_RETRY_SECONDS)


def _begin(connection: Connection) -> None:
    statement = f"BEGIN {connection.get_execution_options().get(_BEGIN, 'DEFERRED')}"
    try:
        # `Connection.execute` would release the interpreter lock five times, and SQLAlchemy takes ten times as long.
        _driver(connection).executescript(statement)
    except sqlite3.Error as error:
        raise OperationalError(statement, None, error) from error


def _driver(connection: Connection) -> sqlite3.Connection:
    return cast("sqlite3.Connection", connection.connection.driver_connection)


def insert_rows(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert one or more rows with the same columns, at least two. A failure rolls back the whole transaction.

    SQLite's driver is called directly: SQLAlchemy takes many times as long to prepare a statement.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(insert(table), [dict(row) for row in rows])
        return
    driver, form, done = _driver(connection), _columns_of(table, rows), 0
    while done < len(rows):
        # Each statement releases the interpreter lock four times, and another thread may keep it for milliseconds.
        size = min(_ROWS_PER_INSERT, len(rows) - done)
        values = list(chain.from_iterable(map(form.given, rows[done : done + size])))
        for at in (
            form.blobs
        ):  # for `bytes` the driver searches for an adapter and raises internally: 3,300 instructions each
            column = values[at :: len(form.names)]
            values[at :: len(form.names)] = [None if blob is None else bytearray(blob) for blob in column]
        driver.executemany(_insertion(table, form.names, size), (values,))  # `execute` releases the lock once more
        done += size


class _Columns(NamedTuple):
    """Columns of a table: their names, a getter of their values, the positions that hold bytes, the nullable names."""

    names: tuple[str, ...]
    given: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    blobs: tuple[int, ...]
    nullable: tuple[str, ...]


def _columns_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> _Columns:
    """The columns in which any row has a value. The others are left out: each None costs the driver time too."""
    form, first = _all_columns(table, tuple(rows[0])), rows[0]
    lacking = [name for name in form.nullable if first[name] is None and all(row[name] is None for row in rows)]
    return _all_columns(table, tuple([name for name in first if name not in lacking])) if lacking else form


@cache
def _all_columns(table: Table, names: tuple[str, ...]) -> _Columns:
    blobs = tuple(at for at, name in enumerate(names) if isinstance(table.c[name].type, LargeBinary))
    return _Columns(names, itemgetter(*names), blobs, tuple(name for name in names if table.c[name].nullable))


@cache
def _insertion(table: Table, names: tuple[str, ...], size: int) -> str:
    # OR ROLLBACK: otherwise SQLite would copy each page before a statement of many rows changes it, to be able to undo
    # the statement alone. A failure here rolls back the whole transaction anyway.
    columns = ", ".join(f'"{table.c[name].name}"' for name in names)
    row = f"({', '.join('?' * len(names))})"
    return f'INSERT OR ROLLBACK INTO "{table.name}" ({columns}) VALUES {", ".join([row] * size)}'  # noqa: S608 - our own names


def touch(connection: Connection) -> None:
    """A no-op write that needs as much space as a few records: if it becomes durable, records can too."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("INSERT INTO alembic_version VALUES (?)", (_PADDING,))
        connection.exec_driver_sql("DELETE FROM alembic_version WHERE version_num = ?", (_PADDING,))
    else:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = version_num")


def _take_lock(connection: Connection) -> None:
    if _BEGIN in connection.get_execution_options():
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS})")


def writing(connection: Connection) -> Connection:
    """The connection, set to take the write lock when a transaction begins, so that what it reads stays true."""
    if connection.dialect.name == "postgresql":
        # READ COMMITTED is enough: nobody else commits while this transaction holds the lock.
        return connection.execution_options(isolation_level="READ COMMITTED", **{_BEGIN: "IMMEDIATE"})
    return connection.execution_options(**{_BEGIN: "IMMEDIATE"})


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection whose reads all see the database at one moment. Raises StoreError: the database cannot be read."""
    try:
        with engine.connect() as connection, connection.begin():
            yield connection
    except SQLAlchemyError as error:
        raise unavailable("the store cannot be read", error) from error


def scrub(engine: Engine) -> None:
    """Have SQLite empty its write-ahead log, which still holds deleted data, as far as no reader needs it."""
    if engine.dialect.name == "sqlite":
        connection = engine.raw_connection()
        try:
            connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        finally:
            connection.close()


_HINTS: Final[Mapping[object, str]] = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "this user may not write it",
    "SQLITE_READONLY_DIRECTORY": "this user may not write its directory",
    "SQLITE_CANTOPEN": "check that its directory exists and who owns it",
    "SQLITE_NOTADB": "this file is not a database",
    "SQLITE_CORRUPT": "the file is damaged: restore it from a backup",
    "SQLITE_BUSY": "another process has it locked",
    "No such file or directory": "create its directory first, with mkdir -p",
    "Permission denied": "this user may not write its directory",
    "Read-only file system": "use a writable directory, or a copy of it",
    "Is a directory": "name a file",
    "OperationalError": "check that the server runs and that this user may connect; `psql` with the same URL says more",
}


def unavailable(what: str, error: Exception, place: str = "") -> StoreError:
    """The error for a failed database. It names the driver's error without its message, which quotes values."""
    cause = getattr(error, "orig", None) or error
    reported = getattr(cause, "sqlite_errorname", None) or getattr(cause, "sqlstate", None)
    if reported is None and isinstance(cause, OSError):
        reported = cause.strerror
    reported = reported or type(error).__name__
    hint = f"the database reported {reported}"
    return StoreError(what, path=place, hint=f"{hint}: {_HINTS[reported]}" if reported in _HINTS else hint)


def migrate(engine: Engine) -> None:
    """Migrate the tables to this code's schema, in one transaction. Several processes may do so at once.

    Raises:
        StoreError: it has a schema that no migration begins with (`store.other-schema`).
    """
    with engine.connect() as connection, connection.begin():
        found = _revision(connection)
    if found == SCHEMA:
        return
    with engine.connect() as connection:
        connection = writing(connection)
        with connection.begin():
            found = _revision(connection)
            if found is not None:
                upgrade(connection, found)
            elif _is_new(connection):
                _create_tables(connection)
            else:  # tables of ours that no store made
                raise _other_schema(found, _display_name(engine.url))


def foreign_in(connection: Connection) -> Iterator[str]:
    """The kind and name of each trigger, view, rule or other object in the database that a store does not have."""
    if connection.dialect.name != "sqlite":
        for kind, name in connection.exec_driver_sql(_FOREIGN_ON_SERVER).all():
            if (table := name.partition(" on ")[2]) in METADATA.tables:
                yield f"{kind} {name}" if kind != "row security" else f"{kind} on {table}"
        return
    known = {*METADATA.tables, "alembic_version"}
    known |= {str(index.name) for table in METADATA.tables.values() for index in table.indexes}
    for kind, name, table in connection.exec_driver_sql("SELECT type, name, tbl_name FROM sqlite_master ORDER BY name"):
        is_own = kind in ("table", "index") and (name in known or str(name).startswith("sqlite_"))
        if not is_own:
            yield f"{kind} {name}" + (f" on {table}" if table != name else "")


_FOREIGN_ON_SERVER: Final = """
SELECT 'trigger', tgname || ' on ' || relname FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
    WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'rule', rulename || ' on ' || tablename FROM pg_rules WHERE schemaname = current_schema()
UNION ALL SELECT 'row security', ' on ' || relname FROM pg_class
    WHERE relrowsecurity AND relnamespace = current_schema()::regnamespace
UNION ALL SELECT 'view', ' on ' || viewname FROM pg_views WHERE schemaname = current_schema()
ORDER BY 1, 2
"""


def check_nothing_acts(connection: Connection) -> None:
    """Check that nothing in the database acts by itself on what a store writes, or is shown in place of its tables.

    Raises:
        StoreError: something does (`store.planted`, with its name).
    """
    planted = next(filter(_acts, foreign_in(connection)), None)
    if planted is not None:
        hint = "find out who made it and what it did (`cmf audit verify`), and drop it"
        problem, place = f"the database has a {planted}, which no store has", _display_name(connection.engine.url)
        raise StoreError(problem, path=place, code="store.planted", hint=hint)


def schema_version(connection: Connection) -> int | None:
    """A number that SQLite changes with each change of tables, triggers or views; None on a server, which has none."""
    if connection.dialect.name != "sqlite":
        return None
    version: int = _driver(connection).execute("PRAGMA schema_version").fetchone()[0]
    return version


def _acts(foreign: str) -> bool:
    kind, *_, name = foreign.split()
    return kind not in ("table", "index", "view") or (kind == "view" and name in METADATA.tables)


def _other_schema(found: str | None, place: str) -> StoreError:
    problem = f"the store has schema {found or 'unknown'}, this code knows {SCHEMA}"
    hint = "install the version that wrote it, or begin a new store"
    return StoreError(problem, path=place, code="store.other-schema", hint=hint)


def _is_new(connection: Connection) -> bool:
    """Whether there is nothing of a store in the database."""
    there = set(sqlalchemy.inspect(connection).get_table_names())
    return there.isdisjoint({*METADATA.tables, "alembic_version"})


def _create_tables(connection: Connection) -> None:
    """Create all tables as the migrations leave them, without loading Alembic, which costs time and memory."""
    METADATA.create_all(connection, checkfirst=False)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)"
    connection.exec_driver_sql(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key})")
    connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{SCHEMA}')")  # noqa: S608 - our own number


def upgrade(connection: Connection, found: str | None = None) -> None:
    """Run the migrations from the schema `found` on, in the connection's transaction. StoreError: none begins there."""
    if found == SCHEMA:  # another process was faster
        return
    # Imported here: loading Alembic takes a tenth of a second, and most databases need no migration.
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, SCHEMA)
    except CommandError:
        raise _other_schema(found, _display_name(connection.engine.url)) from None


def _revision(connection: Connection) -> str | None:
    if not sqlalchemy.inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return found
