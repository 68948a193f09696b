"""Opening a database: migrations, settings, and refusals."""

from __future__ import annotations

import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from tests.pipeline.run_records import made_record

from pipeline.errors import ConfigError, StoreError
from pipeline.store.engine import MIGRATIONS, SCHEMA, insert_rows, open_engine, upgrade
from pipeline.store.records import row_of
from pipeline.store.tables import METADATA, RECORDS


def url(file: Path) -> str:
    return f"sqlite:///{file}"


@pytest.mark.spec("REC-14")
def test_a_database_of_newer_code_is_refused_with_both_numbers(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    open_engine(url(file)).dispose()
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(StoreError) as refused:
        open_engine(url(file))

    assert refused.value.code == "store.newer-schema"
    assert "9999" in str(refused.value)
    assert SCHEMA in str(refused.value)


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

    for file, why in ((other, "no database"), (tmp_path / "missing" / "s.sqlite3", "No such file")):
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


@pytest.mark.spec("REC-13")
@pytest.mark.parametrize("first", [None, "0001"])
def test_an_empty_database_and_the_oldest_one_become_what_the_code_describes(tmp_path: Path, first: str | None) -> None:
    file = url(tmp_path / "s.sqlite3")
    if first is not None:
        oldest = sqlalchemy.create_engine(file)
        with oldest.begin() as connection:
            upgrade(connection, first)
        oldest.dispose()

    engine = open_engine(file)

    with engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), METADATA)
        made = set(sqlalchemy.inspect(connection).get_table_names())
        (version,) = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalars()

    assert differences == []
    assert made == {*METADATA.tables, "alembic_version"}
    assert version == SCHEMA
    assert _shapes(engine) == _described(tmp_path)
    engine.dispose()


@pytest.mark.spec("REC-13")
def test_the_newest_migration_is_the_one_that_the_code_knows() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == SCHEMA


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


def _shapes(engine: sqlalchemy.Engine) -> dict[str, object]:
    """Columns, keys and indexes of each table: what `compare_metadata` leaves out."""
    seen = sqlalchemy.inspect(engine)
    return {
        table: (
            [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(table)],
            seen.get_pk_constraint(table)["constrained_columns"],
            sorted(str(key["constrained_columns"]) for key in seen.get_foreign_keys(table)),
            sorted(str(key["column_names"]) for key in seen.get_unique_constraints(table)),
            sorted(str(index["column_names"]) for index in seen.get_indexes(table)),
        )
        for table in METADATA.tables
    }


def _described(directory: Path) -> dict[str, object]:
    engine = sqlalchemy.create_engine(url(directory / "described.sqlite3"))
    METADATA.create_all(engine)
    shapes = _shapes(engine)
    engine.dispose()
    return shapes


@pytest.mark.parametrize("count", [1, 3, 4, 90])
def test_rows_go_in_together_and_in_order(tmp_path: Path, count: int) -> None:
    rows = [row_of(made_record()) for _ in range(count)]
    engine = open_engine(url(tmp_path / "s.sqlite3"))
    with engine.connect() as connection, connection.begin():
        insert_rows(connection, RECORDS, rows)
    with engine.connect() as connection:
        kept = connection.execute(sqlalchemy.select(RECORDS).order_by(RECORDS.c.seq)).mappings().all()
    engine.dispose()

    assert [{name: one[name] for name in rows[0]} for one in kept] == rows
