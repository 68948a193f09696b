"""What each tool of a server was when it was first seen: a definition that changed later is not offered [MCPX-20].

A server that is trusted for what its tools said once can say something else tomorrow. What changed is named until a
person takes its line out of the file.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cmf.codec import dumps, loads
from cmf.digests import canonical_bytes
from cmf.errors import CmfError
from pipeline.errors import ConfigError

CHANGED: Final = "mcp.definition-changed"
STRIPPED: Final = "mcp.tool-stripped"
MAX_PINS: Final = 10_000
MAX_FILE_BYTES: Final = 4 * 1024 * 1024
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Pins:
    """Digests of definitions by server and tool.

    Args:
        file: where they are kept; None for as long as this process lives.

    Raises:
        ConfigError: the file holds something else.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._pinned: dict[str, dict[str, str]] = {} if file is None else _read(file)

    def changed(self, server: str, tools: Sequence[Any]) -> frozenset[str]:
        """The names among `tools` whose definition is not the one that is pinned; those new here are pinned now.

        Raises:
            ConfigError: the file cannot be written.
        """
        known = self._pinned.setdefault(server, {})
        changed = set()
        new = False
        for tool in tools:
            name, digest = str(tool["name"]), digest_of(tool)
            if name not in known:
                if sum(map(len, self._pinned.values())) >= MAX_PINS:
                    changed.add(name)  # what cannot be pinned cannot be told from what changed
                    continue
                known[name] = digest
                new = True
            elif known[name] != digest:
                changed.add(name)
        if new and self._file is not None:
            _write(self._file, self._pinned)
        return frozenset(changed)


def digest_of(tool: Any) -> str:
    """The digest of a definition, of every key that it came with."""
    return f"sha256:{hashlib.sha256(canonical_bytes(tool)).hexdigest()}"


def _read(file: Path) -> dict[str, dict[str, str]]:
    try:
        body = loads(file.read_bytes(), max_bytes=MAX_FILE_BYTES)
    except FileNotFoundError:
        return {}
    except (OSError, CmfError):
        raise _unusable(file) from None
    if not isinstance(body, dict) or not all(_is_pins(pins) for pins in body.values()):
        raise _unusable(file)
    return body


def _is_pins(pins: Any) -> bool:
    return isinstance(pins, dict) and all(isinstance(one, str) and _DIGEST.fullmatch(one) for one in pins.values())


def _write(file: Path, pins: dict[str, dict[str, str]]) -> None:
    """All or nothing: a reader sees the file before or after."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(dumps({server: dict(sorted(known.items())) for server, known in sorted(pins.items())}))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, file)
        except OSError:
            os.unlink(name)
            raise
    except OSError:
        raise ConfigError(
            "the pins cannot be written", path=str(file), code="config.pins", hint="make the directory writable"
        ) from None


def _unusable(file: Path) -> ConfigError:
    hint = "take it away to pin anew what servers offer"
    return ConfigError("these are no pins", path=str(file), code="config.pins", hint=hint)


__all__ = ["CHANGED", "STRIPPED", "Pins", "digest_of"]
