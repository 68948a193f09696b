"""One process that serves: clients on one socket, whoever runs it on another, signals. Spec: gateway.md [GW-150] ff."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pipeline.gateway.admin import AdminApp, App
from pipeline.gateway.operations import Operations
from pipeline.gateway.server import server_of
from pipeline.gateway.settings import Settings

if TYPE_CHECKING:
    from pipeline.gateway.service import Service  # with all that judges: a crew serves nothing itself

YOUNG: Final = 20_000  # new objects between two looks for cycles, of which requests leave hardly any
LARGE: Final = 128 * 1024  # bytes; what glibc begins with
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


async def run(
    service: Service,
    settings: Settings,
    clients: socket.socket,
    operators: AdminApp | None,
    beside: socket.socket | None,
) -> None:
    """Serve until SIGTERM or SIGINT, let what is in work end, and return.

    Args:
        service: what serves.
        settings: limits, and how long what is in work may take.
        clients: the socket that clients reach.
        operators: what answers on `beside`; None for nothing.
        beside: the socket for whoever runs it.
    """
    gc.collect()
    gc.freeze()  # what is there by now stays: no collection needs to look at it again
    gc.set_threshold(YOUNG)
    give_memory_back()
    server = server_of(service.application, settings.limits, grace_seconds=settings.grace_seconds)
    with hanging_up(service.operations):
        if operators is None or beside is None:
            await server.serve(sockets=[clients])
            return
        operators.is_ending = lambda: server.should_exit
        other = server_of(operators, beside=True)
        work = asyncio.create_task(other.serve(sockets=[beside]))
        try:
            await server.serve(sockets=[clients])
        finally:
            other.should_exit = True
            await work


def give_memory_back() -> None:
    """Have large pieces of memory go back to the machine once they are free, where libc is glibc.

    Left alone it raises both thresholds to the largest piece it has seen freed, and keeps what it gets below that.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(parameter, LARGE)


@contextlib.contextmanager
def hanging_up(operations: Operations) -> Iterator[None]:
    """A block in which SIGHUP has all policies read again."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[object]] = set()

    def again() -> None:
        task: asyncio.Task[object] = loop.create_task(operations.reload())
        running.add(task)
        task.add_done_callback(running.discard)

    with heard(signal.SIGHUP, again):
        yield


@contextlib.contextmanager
def heard(which: signal.Signals, call: Callable[[], None]) -> Iterator[None]:
    """A block in which a signal makes the loop call `call`; in another thread than the main one, nothing is heard."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(which, call)
    except (ValueError, RuntimeError):
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(which)


def admin_app(settings: Settings, operations: Operations, review: App | None = None) -> AdminApp | None:
    """What answers whoever runs it, as settings say; nobody may do anything whose key is not there."""
    if settings.admin is None:
        return None
    return AdminApp(operations, {key.hash: key.subject or key.name for key in settings.admin.keys}, review)


__all__ = ["admin_app", "hanging_up", "heard", "run"]
