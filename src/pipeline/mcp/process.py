"""An MCP server as a child process: started, spoken to line by line, and stopped with its children. [MCPX-50] ff."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from cmf.json.codec import dumps
from pipeline.decisions.errors import ConfigError
from pipeline.mcp.pipes import Lines

SEND_SECONDS: Final = 30.0  # a server that reads nothing for this long counts as stopped
GRACE_SECONDS: Final = 2.0
_CHUNK: Final = 256 * 1024
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class ServerDisconnected(Exception):
    """The server reads no more messages."""


class Process:
    """One server process. It inherits standard error."""

    def __init__(self, process: asyncio.subprocess.Process, message_bytes: int) -> None:
        self._process = process
        self._input: asyncio.StreamWriter = process.stdin  # type: ignore[assignment]  # both are pipes
        self._output: asyncio.StreamReader = process.stdout  # type: ignore[assignment]  # as above
        self._message_bytes = message_bytes

    @classmethod
    async def begin(cls, command: Sequence[str], environment: Mapping[str, str] | None, message_bytes: int) -> Process:
        """Start `command` in a process group of its own.

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
                preexec_fn=_stop_with_parent if _LIBC is not None else None,
            )
        except (OSError, ValueError):
            raise ConfigError("the server cannot be begun", code="mcp.no-command", hint="check the command") from None
        return cls(process, message_bytes)

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group."""
        return self._process.pid

    async def send(self, body: Mapping[str, Any]) -> None:
        """Write a message. ServerDisconnected if the server does not read it."""
        if self._input.is_closing():
            raise ServerDisconnected
        try:
            self._input.write(dumps(body) + b"\n")
            async with asyncio.timeout(SEND_SECONDS):
                await self._input.drain()
        except (OSError, TimeoutError):
            raise ServerDisconnected from None

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of its output until the end. FrameError if one is too long."""
        lines = Lines(self._message_bytes)
        while chunk := await self._output.read(_CHUNK):
            for line in lines.feed(chunk):
                yield line

    async def end(self) -> int:
        """Stop the process group and return the exit code: close standard input, then SIGTERM, then SIGKILL."""
        self._input.close()
        for number in (None, signal.SIGTERM):
            if number is not None:
                self._signal(number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await self._process.wait()
                break
        self._signal(signal.SIGKILL)  # also children that it left behind
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                await self._drained()
        return await self._process.wait()

    async def _drained(self) -> None:
        """Read the output pipe to its end: asyncio would keep a full pipe open."""
        while await self._output.read(_CHUNK):
            pass

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _stop_with_parent() -> None:
    """In the child process: ask Linux for a SIGTERM when the parent dies."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
