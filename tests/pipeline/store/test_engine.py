"""Opening a database: migrations, settings, and refusals."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from tests.pipeline.postgres_server import Postgres
from tests.pipeline.run_records import made_record
from typer.testing import CliRunner

from pipeline.cli.app import app
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.store.database import Store, condition_of, disk_space_of
from pipeline.store.engine import (
    SCHEMA,
    check_can_write,
    insert_rows,
    open_engine,
    open_to_read,
    upgrade,
)
from pipeline.store.records import row_of
from pipeline.store.tables import METADATA, RECORDS


def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.mark.spec("REC-14")
@pytest.mark.parametrize("schema", ["0007", "9999"])
def test_a_store_of_another_schema_is_refused_with_both_names_and_not_changed(tmp_path: Path, schema: str) -> None:
    file = tmp_path / "s.sqlite3"
    open_engine(url(file)).dispose()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (schema,))
    before = file.read_bytes()

    for opened in (lambda: open_engine(url(file)), lambda: open_to_read(file)):
        with pytest.raises(StoreError, match=f"schema {schema}.* {SCHEMA}") as refused:
            opened()
        assert (refused.value.code, refused.value.path) == ("store.other-schema", str(file))
    for command in (["audit", "sweep"], ["audit", "find"], ["audit", "holds"], ["ledger", "list"]):
        done = CliRunner().invoke(app, [*command, str(file), *(["verdict:deny"] if "find" in command else [])])
        assert (done.exit_code, "store.other-schema" in done.stderr) == (5, True), done.stderr
    assert file.read_bytes() == before


@pytest.mark.spec("REC-14")
def test_tables_of_ours_in_a_database_without_a_schema_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY)")

    with pytest.raises(StoreError, match="schema unknown") as refused:
        open_engine(url(file))

    assert refused.value.code == "store.other-schema"


@pytest.mark.spec("REC-13")
def test_a_new_database_and_a_migrated_one_have_the_tables_that_the_code_describes(tmp_path: Path) -> None:
    migrated = sqlalchemy.create_engine(url(tmp_path / "migrated.sqlite3"))
    with migrated.begin() as connection:
        upgrade(connection)
    engines = [open_engine(url(tmp_path / "new.sqlite3")), migrated]

    for engine in engines:
        with engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), METADATA) == []
            assert MigrationContext.configure(connection).get_current_revision() == SCHEMA
    made, again = (_statements(engine) for engine in engines)
    assert made == again


@pytest.mark.spec("CLI-24")
def test_nothing_is_made_in_a_database_that_is_no_store(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.sqlite3"
    with closing(sqlite3.connect(foreign)) as connection:
        connection.execute("CREATE TABLE theirs (a)")

    done = CliRunner().invoke(app, ["ledger", "list", str(foreign)])

    assert (done.exit_code, "no store in this database" in done.stderr) == (5, True)
    with closing(sqlite3.connect(foreign)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


def _statements(engine: sqlalchemy.Engine) -> set[str]:
    """The statements that made the tables and indexes of a SQLite file."""
    with engine.connect() as connection:
        made = {str(sql) for sql in connection.exec_driver_sql("SELECT sql FROM sqlite_master").scalars()}
    engine.dispose()
    return {" ".join(sql.split()) for sql in made if "alembic_version" not in sql}


@pytest.mark.spec("REC-15")
@pytest.mark.parametrize(
    "bad", ["", "no url", "sqlite://", "sqlite:///:memory:", "mysql://host/db", "postgresql://host"]
)
def test_a_url_of_another_kind_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError):
        open_engine(bad)


@pytest.mark.spec("REC-15")
def test_a_file_that_is_no_database_or_has_no_folder_cannot_be_opened(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("something else entirely, and long enough to be looked at\n" * 100, encoding="utf-8")

    for file, why in ((other, "not a database"), (tmp_path / "missing" / "s.sqlite3", "mkdir -p")):
        with pytest.raises(StoreError, match=why) as refused:
            open_engine(url(file))
        assert (refused.value.code, refused.value.path) == ("store.unavailable", str(file))
    assert other.read_text(encoding="utf-8").startswith("something else")


@pytest.mark.spec("REC-15")
def test_commits_are_durable_and_the_file_is_private(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    engine = open_engine(url(file))

    with engine.connect() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}

    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    assert modes == {0o600}
    engine.dispose()


@pytest.mark.spec("CLI-78")
def test_a_server_tells_how_it_does_and_whether_it_can_be_written(postgres: Postgres, tmp_path: Path) -> None:
    place = postgres.new()
    with Store.named(place, key=tmp_path / "key") as store:
        store.put_on_record(made_record())

    check_can_write(place)
    found, engine = condition_of(place), open_engine(place)
    with engine.connect() as connection:
        database = connection.exec_driver_sql("SELECT current_database()").scalar()
        connection.exec_driver_sql(f'ALTER DATABASE "{database}" SET default_transaction_read_only = on')
        connection.commit()
    engine.dispose()

    assert (found.schema, found.is_current, disk_space_of(place)) == (SCHEMA, True, None)
    assert found.head is not None
    assert found.newest is not None
    with pytest.raises(StoreError, match="the store cannot be written"):
        check_can_write(place)


@pytest.mark.spec("AUD-51")
def test_a_copy_is_read_where_nothing_may_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.sqlite3"
    open_engine(url(file)).dispose()
    monkeypatch.setattr(
        "os.access", lambda place, mode: (Path(place), mode) != (tmp_path, os.W_OK)
    )  # root may anywhere

    engine = open_to_read(file)
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.select(RECORDS)).all() == []
        assert [one.name for one in tmp_path.iterdir()] == [file.name]  # as it cannot, where it may not
    engine.dispose()


@pytest.mark.spec("REC-13")
def test_several_may_open_an_empty_database_at_once(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"

    with ThreadPoolExecutor(8) as pool:
        engines = list(pool.map(lambda _: open_engine(url(file), busy_seconds=30), range(8)))

    with engines[0].connect() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars().all() == [SCHEMA]
    for engine in engines:
        engine.dispose()


@pytest.mark.spec("REC-13")
def test_opening_again_keeps_what_is_there(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    open_engine(url(file)).dispose()
    with sqlite3.connect(file) as connection:
        columns = "(subject, session, version, updated_at)"
        connection.execute(f"INSERT INTO session_state {columns} VALUES ('id:ann', 's1', 4, 0)")

    engine = open_engine(url(file))

    with engine.connect() as again:
        assert again.exec_driver_sql("SELECT version FROM session_state").scalar() == 4
    engine.dispose()


def kept_of(rows: Sequence[Mapping[str, Any]], file: Path) -> list[dict[str, Any]]:
    """The rows as they come out of a new store that they went into together."""
    engine = open_engine(url(file))
    with engine.connect() as connection, connection.begin():
        insert_rows(connection, RECORDS, rows)
    with engine.connect() as connection:
        kept = connection.execute(sqlalchemy.select(RECORDS).order_by(RECORDS.c.seq)).mappings().all()
    engine.dispose()
    return [{name: one[name] for name in rows[0]} for one in kept]


@pytest.mark.parametrize("count", [1, 3, 4, 90])
def test_rows_go_in_together_and_in_order(tmp_path: Path, count: int) -> None:
    rows = [row_of(made_record()) for _ in range(count)]
    assert kept_of(rows, tmp_path / "s.sqlite3") == rows


@pytest.mark.parametrize("sessions", [(None, None), (None, "s"), ("", None), (None, "")])
@pytest.mark.parametrize("bodies", [(None, b"\x00"), (b"", None), (None, None)])
def test_what_a_row_lacks_is_null_and_what_is_empty_is_not(
    tmp_path: Path, sessions: tuple[str | None, ...], bodies: tuple[bytes | None, ...]
) -> None:
    given = zip(sessions, bodies, strict=True)
    rows = [row_of(made_record()) | {"session": session, "body": body} for session, body in given]
    assert kept_of(rows, tmp_path / "s.sqlite3") == rows


@pytest.mark.spec("REC-10")
def test_a_server_that_says_nothing_is_given_up(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.postgres.SILENT_SECONDS", 0.2)
    engine = open_engine(postgres.new())
    with engine.connect() as before:
        pid = before.exec_driver_sql("SELECT pg_backend_pid()").scalar()
        with pytest.raises(sqlalchemy.exc.OperationalError):
            before.exec_driver_sql("SELECT pg_sleep(60)")

    with engine.connect() as after:
        assert after.exec_driver_sql("SELECT pg_backend_pid()").scalar() != pid
    engine.dispose()


@pytest.mark.spec("REC-10")
def test_a_server_that_answers_with_an_error_keeps_its_connection(postgres: Postgres) -> None:
    engine = open_engine(postgres.new())
    with engine.connect() as holder, engine.connect() as other:
        holder.exec_driver_sql("SELECT pg_advisory_lock(1)")
        other.exec_driver_sql("SET lock_timeout = 20")
        with pytest.raises(sqlalchemy.exc.OperationalError, match="lock timeout"):
            other.exec_driver_sql("SELECT pg_advisory_lock(1)")

        assert not other.invalidated
    engine.dispose()
