"""Pinned tool definitions: a tool whose definition changed since it was first seen is not offered [MCPX-20].

A server that was trusted for its tool definitions can change them later. A changed tool is reported until a person
removes its pin from the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias

from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from cmf.message.digests import canonical_bytes
from pipeline.decisions.errors import ConfigError

_Pinned: TypeAlias = dict[str, dict[str, str]]
CHANGED: Final = "mcp.definition-changed"
STRIPPED: Final = "mcp.tool-stripped"
MAX_PINS: Final = 10_000
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Pins:
    """Digests of tool definitions by server and tool.

    Args:
        file: where they are stored, shared with other processes; None keeps them in memory.

    Raises:
        ConfigError: the file is not a file of pins.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        if file is not None and not file.parent.is_dir():
            raise _unwritable(file)
        self._pinned: _Pinned = {} if file is None else _read(file)
        self._changed: dict[str, frozenset[str]] = {}

    def changed(self, server: str, tools: Sequence[Any]) -> frozenset[str]:
        """The names of `tools` whose definition differs from its pin. Tools without a pin are pinned now.

        Raises:
            ConfigError: the file cannot be written or is no longer a file of pins. Nothing is pinned then.
        """
        if self._file is None:
            changed, _ = _compared(self._pinned, server, tools)
        else:
            with _locked(self._file):
                pinned = _read(self._file)  # read again: other processes add pins, and people remove them
                changed, new = _compared(pinned, server, tools)
                if new:
                    _write(self._file, pinned)
        listed = {str(tool["name"]) for tool in tools}
        self._changed[server] = (self._changed.get(server, frozenset()) - listed) | changed
        return changed

    def is_changed(self, server: str, name: str) -> bool:
        """Whether the tool differed from its pin when the server last listed it."""
        return name in self._changed.get(server, ())


def _compared(pinned: _Pinned, server: str, tools: Sequence[Any]) -> tuple[frozenset[str], bool]:
    """The tools that differ from their pins, and whether there are new ones, which are added to `pinned`."""
    digests = pinned.setdefault(server, {})
    changed = set()
    new = False
    for tool in tools:
        name, digest = str(tool["name"]), digest_of(tool)
        if name not in digests:
            if sum(map(len, pinned.values())) >= MAX_PINS:
                changed.add(name)  # without a pin, a change would go unnoticed
                continue
            digests[name] = digest
            new = True
        elif digests[name] != digest:
            changed.add(name)
    return frozenset(changed), new


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold a lock against other processes that write the pins. ConfigError if the directory cannot be opened."""
    try:
        home = os.open(file.parent, os.O_RDONLY)
    except OSError:
        raise _unwritable(file) from None
    try:
        with suppress(ImportError, OSError):  # not on every platform or file system: there, the last writer wins
            import fcntl

            fcntl.flock(home, fcntl.LOCK_EX)
        yield
    finally:
        os.close(home)


def digest_of(tool: Any) -> str:
    """The digest of a definition with all its keys."""
    return f"sha256:{hashlib.sha256(canonical_bytes(tool)).hexdigest()}"


def _read(file: Path) -> _Pinned:
    try:
        body = loads(file.read_bytes(), max_bytes=MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, CmfError):
        raise _unusable(file) from None
    servers = list(body.values()) if isinstance(body, dict) else [None]
    digests = [digest for pins in servers if isinstance(pins, dict) for digest in pins.values()]
    are_pins = all(isinstance(pins, dict) for pins in servers)
    if not are_pins or not all(isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in digests):
        raise _unusable(file)
    pinned: _Pinned = body
    return pinned


def _write(file: Path, pins: _Pinned) -> None:
    """Replace the file atomically."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(dumps({server: dict(sorted(digests.items())) for server, digests in sorted(pins.items())}))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise
    except OSError:
        raise _unwritable(file) from None


def _unwritable(file: Path) -> ConfigError:
    hint = "make the directory, writable for this user"
    return ConfigError("the pins cannot be written", path=str(file), code="config.pins", hint=hint)


def _unusable(file: Path) -> ConfigError:
    hint = "take it away to pin anew what servers offer"
    return ConfigError("these are no pins", path=str(file), code="config.pins", hint=hint)
