"""New SQLite files with our tables in them: migrated once per process, and copied for each test that wants a store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from pipeline.store import database
from pipeline.store.engine import open_engine


def migrated(file: Path) -> Path:
    """`file`, which is there now as a store would have made it; one that was there already is left alone."""
    if not file.exists():
        file.touch(mode=0o600)
        file.write_bytes(_template())
    return file


@cache
def _template() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "new.sqlite3"
        open_engine(f"sqlite:///{file}").dispose()
        assert [one.name for one in file.parent.iterdir()] == [file.name], "what is in its journal would be missing"
        return file.read_bytes()


@contextmanager
def apart() -> Iterator[None]:
    """Stores that are opened inside share nothing with those that are open, as if another process had opened them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_open_at", lambda _: None)
        yield
