"""A server of MCP as a process of its own: begun, spoken to line by line, and ended with all it began. [MCPX-50] ff."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cmf.codec import dumps
from pipeline.errors import ConfigError
from pipeline.mcp_proxy.lines import Lines

SEND_SECONDS: Final = 30.0  # a server that takes nothing for so long is gone
GRACE_SECONDS: Final = 2.0
_CHUNK: Final = 256 * 1024
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class ServerGone(Exception):
    """The server takes no message any more."""


class Process:
    """One server. What it writes to standard error goes where ours goes, untouched."""

    def __init__(self, process: asyncio.subprocess.Process, message_bytes: int) -> None:
        self._process = process
        self._input: asyncio.StreamWriter = process.stdin  # type: ignore[assignment]  # both are pipes
        self._output: asyncio.StreamReader = process.stdout  # type: ignore[assignment]  # as above
        self._bytes = message_bytes

    @classmethod
    async def begin(cls, command: Sequence[str], environment: Mapping[str, str] | None, message_bytes: int) -> Process:
        """The server that `command` begins, in a group of its own.

        Raises:
            ConfigError: there is no such command.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,
                preexec_fn=_end_with_us if _LIBC is not None else None,
            )
        except (OSError, ValueError):
            raise ConfigError("the server cannot be begun", code="mcp.no-command", hint="check the command") from None
        return cls(process, message_bytes)

    @property
    def pid(self) -> int:
        """Its process, which is also its group."""
        return self._process.pid

    async def send(self, body: Mapping[str, Any]) -> None:
        """Write a message. ServerGone where nobody reads it."""
        if self._input.is_closing():
            raise ServerGone
        try:
            self._input.write(dumps(body) + b"\n")
            async with asyncio.timeout(SEND_SECONDS):
                await self._input.drain()
        except (OSError, TimeoutError):
            raise ServerGone from None

    async def lines(self) -> AsyncIterator[bytes]:
        """Its lines, until it ends. FrameError for one without end."""
        lines = Lines(self._bytes)
        while chunk := await self._output.read(_CHUNK):
            for line in lines.feed(chunk):
                yield line

    async def end(self) -> int:
        """Its exit code: it is asked to end by the end of its input, then told to, then made to, with all it began."""
        self._input.close()
        for number in (None, signal.SIGTERM):
            if number is not None:
                self._signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self._process.wait()
                break
        self._signal(signal.SIGKILL)  # also what it began and left behind
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._drained()
        return await self._process.wait()

    async def _drained(self) -> None:
        """Its pipe, read to the end: one that is full would stay open."""
        while await self._output.read(_CHUNK):
            pass

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _end_with_us() -> None:
    """In the new process: be told to end when the one that began it is killed."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


__all__ = ["GRACE_SECONDS", "Process", "ServerGone"]
