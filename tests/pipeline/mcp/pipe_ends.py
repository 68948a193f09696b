"""Both ends of standard input and output, in one process: pipes for a proxy, and its client at them."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from cmf.json.codec import dumps
from pipeline.mcp.frames import MAX_MESSAGE_BYTES
from pipeline.mcp.stdio import Pipes


class LineClient:
    """The client: it writes lines, and reads what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writes: int) -> None:
        self._reader = reader
        self._writes: int | None = writes

    async def ask(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        """All that is heard until a call is answered; the answer is the last."""
        await self.tell(body)
        heard = [await self.hear()]
        while "method" in heard[-1]:
            heard.append(await self.hear())
        return heard

    async def tell(self, body: dict[str, Any]) -> None:
        """Say something, and wait for nothing."""
        self.say(dumps(body) + b"\n")

    def say(self, raw: bytes) -> None:
        """Write these bytes."""
        assert self._writes is not None
        os.write(self._writes, raw)

    async def hear(self) -> Any:
        """The next message; None where there are no more."""
        line = await asyncio.wait_for(self._reader.readline(), 30)
        return json.loads(line) if line else None

    def leave(self) -> None:
        """Say no more."""
        if self._writes is not None:
            os.close(self._writes)
        self._writes = None


@asynccontextmanager
async def pipe_ends(message_bytes: int = MAX_MESSAGE_BYTES) -> AsyncIterator[tuple[Pipes, LineClient]]:
    """A proxy's end of a client, and that client. The proxy is over before the block is."""
    theirs, writes = os.pipe()
    reads, ours = os.pipe()
    reader = asyncio.StreamReader(limit=4 * MAX_MESSAGE_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(reads, "rb", buffering=0)
    )
    client = LineClient(reader, writes)
    others = set(threading.enumerate())
    pipes = Pipes(theirs, ours, message_bytes)
    (listening,) = (one for one in set(threading.enumerate()) - others if one.name.endswith("_read"))
    try:
        yield pipes, client
    finally:
        client.leave()
        transport.close()
        # Its number is the next pipe's as soon as it is closed, and a thread that still reads would take from that one.
        await asyncio.to_thread(listening.join, 5)
        for one in (ours,) if listening.is_alive() else (theirs, ours):
            with suppress(OSError):
                os.close(one)
