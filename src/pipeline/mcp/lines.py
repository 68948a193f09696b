"""Splits a byte stream into lines of bounded length: the framing of MCP over stdio. Spec: mcp-proxy.md [MCPX-2]."""

from __future__ import annotations

from pipeline.mcp.frames import MAX_MESSAGE_BYTES, PARSE_ERROR, FrameError


class Lines:
    """An incremental line splitter. Lines come without their newline; blank lines are left out."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._max = max_bytes
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in `chunk`.

        Raises:
            FrameError: mcp.too-large, for a line that is too long; the splitter cannot be used after it.
        """
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        lines = [b"".join(self._pending), *others[:-1]]
        self._pending, self._size = [], 0
        self._keep(others[-1])
        if max(map(len, lines)) > self._max:
            raise _too_large(self._max)
        return [line for line in lines if line.strip()]

    def rest(self) -> bytes:
        """The last line, if the stream ended without a newline."""
        return b"".join(self._pending)

    def _keep(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise _too_large(self._max)
        self._pending.append(piece)


def _too_large(limit: int) -> FrameError:
    return FrameError(PARSE_ERROR, "mcp.too-large", f"The message has more than {limit} bytes.")
