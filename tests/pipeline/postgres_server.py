"""A real PostgreSQL server on a socket of its own, for the length of a test run; it never runs as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.engine import URL
from ulid import ULID

from pipeline.store.engine import open_engine

USER = "postgres"


class Postgres:
    """A server that runs; each database of it is new."""

    def __init__(self, binaries: Path, home: Path) -> None:
        self._binaries = binaries
        self.home = home
        self._template = ""

    def url(self, database: str = "postgres") -> str:
        """Of a database, over the socket."""
        made = URL.create("postgresql", username=USER, database=database, query={"host": str(self.home)})
        return made.render_as_string(hide_password=False)

    def new(self) -> str:
        """The URL of a new database with our tables in it."""
        if not self._template:
            self._template = self.empty()
            open_engine(self.url(self._template)).dispose()
        return self.url(self.empty(self._template))

    def empty(self, template: str = "template0") -> str:
        """The name of a new database: empty, or a copy. Its order of texts is a language's, as most servers have it."""
        name = f"t{ULID()}".lower()
        engine = sqlalchemy.create_engine(
            self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            of_language = "LOCALE_PROVIDER icu ICU_LOCALE 'en'"
            connection.exec_driver_sql(f'CREATE DATABASE "{name}" TEMPLATE "{template}" {of_language}')
        engine.dispose()
        return name

    def control(self, *words: str) -> None:
        """Have `pg_ctl` do something."""
        _as_user([str(self._binaries / "pg_ctl"), "-D", str(self.home / "data"), "-w", "-s", *words])

    def start(self) -> None:
        """Begin; it answers when this returns."""
        options = f"-k {self.home} -c listen_addresses= -c max_connections=200"
        self.control("-l", str(self.home / "log"), "-o", options, "start")


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server. Where none is installed, tests that need one are skipped and say so; under CI that is a failure."""
    binaries = _binaries()
    if binaries is None:
        reason = "no PostgreSQL here: make postgres"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    home = Path(tempfile.mkdtemp(prefix="cmf-pg-"))  # a socket's path has to be short
    if os.geteuid() == 0:
        shutil.chown(home, USER)
    server = Postgres(binaries, home)
    try:
        words = ["-D", str(home / "data"), "-U", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "-N"]
        _as_user([str(binaries / "initdb"), *words])
        server.start()
        yield server
        server.control("-m", "immediate", "stop")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _binaries() -> Path | None:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).resolve().parent
    return max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda one: int(one.parent.name))


def _as_user(command: list[str]) -> None:
    """Run it as the user of its own that PostgreSQL asks for, where this is root."""
    user = None if os.geteuid() != 0 else pwd.getpwnam(USER).pw_uid
    group = None if user is None else pwd.getpwnam(USER).pw_gid
    done = subprocess.run(
        command, user=user, group=group, extra_groups=None if user is None else [], cwd="/",
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
