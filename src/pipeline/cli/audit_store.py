"""Opening the store that a command on records names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pipeline.decisions.errors import ConfigError
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read


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
    engine = open_to_read(store)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def opened_for_search(store: str) -> Iterator[Store]:
    """An existing store, opened for searching: nothing is recorded, so no key is needed."""
    open_to_read(store).dispose()  # creates none, and refuses one of another schema
    with Store.named(store, keyless=True) as opened:
        yield opened
