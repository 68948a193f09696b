"""Requests and replies that wait for people's answers before they go on. Spec: docs/spec/gateway.md [GW-87] ff.

The answers come from anywhere: the review site, the command line, another process. So the store is looked at, once in
a while, for all that wait in this process together; whoever waits holds no thread meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Final

from pipeline.decisions.approval import ApprovalStatus
from pipeline.decisions.errors import StoreError
from pipeline.run.offload import Offload
from pipeline.sessions.base import SessionStore

LOOK_SECONDS: Final = 0.25
FULL: Final = "Too many wait for answers of people already, so this did not."
ENDING: Final = "The gateway is shutting down, so this waits no longer."
_log: Final = logging.getLogger("pipeline.gateway")


class HeldReplies:
    """Waits for the answers to approvals.

    Args:
        ping_seconds: after how long without an answer the client is to hear something.
    """

    def __init__(self, sessions: SessionStore, *, most: int, ping_seconds: float) -> None:
        self.ping_seconds = ping_seconds
        self._sessions = sessions
        self._offload = Offload(waits=sessions.waits)
        self._most = most
        self._waiting: dict[asyncio.Future[str], frozenset[str]] = {}
        self._is_ending = False
        self._looking: asyncio.Task[None] | None = None

    @property
    def number(self) -> int:
        """How many wait now."""
        return len(self._waiting)

    async def wait(self, approvals: Collection[str], seconds: float) -> str:
        """Empty once each of the approvals was given, or one was denied; otherwise why nobody waits any longer."""
        if self._is_ending:
            return ENDING
        if len(self._waiting) >= self._most:
            return FULL
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting[answered] = frozenset(approvals)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            return f"Nobody answered within {seconds:.0f} seconds."
        finally:
            del self._waiting[answered]

    def end(self) -> None:
        """End all waits, and let nothing wait from now on: the gateway is shutting down."""
        self._is_ending = True
        self._answer_all(dict.fromkeys(self._waiting, ENDING))

    def close(self) -> None:
        """Let go of the threads that looked at the store."""
        self._offload.close()

    async def _look(self) -> None:
        """Look at the store as long as something waits."""
        while self._waiting:
            await asyncio.sleep(LOOK_SECONDS)
            names = frozenset().union(*self._waiting.values())
            try:
                found = await self._offload(lambda names=names: [self._sessions.approval(name) for name in names])
            except StoreError as error:  # it may come back in time; until then nothing goes on
                _log.warning("what waits for approval could not be looked up: %s", error.code)
                continue
            answered = []
            known = {name: one.status for name, one in zip(names, found, strict=True) if one is not None}
            for waiting, asked in self._waiting.items():
                # One that was asked for meanwhile was not looked up yet.
                stands = [known.get(name, ApprovalStatus.PENDING) for name in asked]
                if ApprovalStatus.DENIED in stands or ApprovalStatus.PENDING not in stands:
                    answered.append(waiting)
            self._answer_all(dict.fromkeys(answered, ""))

    def _answer_all(self, answers: Mapping[asyncio.Future[str], str]) -> None:
        for answered, why in answers.items():
            if not answered.done():
                answered.set_result(why)
