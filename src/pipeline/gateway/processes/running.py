"""One serving process: clients on one socket, operators on another, signals. Spec: gateway.md [GW-150] ff."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from pipeline.gateway.config.settings import Settings
from pipeline.gateway.http.server import server_of
from pipeline.gateway.operations.admin import AdminApp, App
from pipeline.gateway.operations.operations import Operations
from pipeline.run.offload import has_large_work

if TYPE_CHECKING:
    from pipeline.gateway.service import Service  # not loaded by `Crew`, which serves nothing itself

YOUNG: Final = 20_000  # new objects between two collections; requests leave hardly any cycles
MIDDLE: Final = 2  # collections of new objects between two that look at what those left, too
NEVER: Final = 1 << 30
DUE: Final = 30  # of the latter, after which all objects are looked at, once nothing large is worked on
LONGEST_WAIT: Final = 60.0  # seconds; then they are, whatever is worked on
LARGE: Final = 128 * 1024  # bytes; glibc's initial value
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3


async def run(
    service: Service,
    settings: Settings,
    clients: socket.socket,
    operators: AdminApp | None,
    beside: socket.socket | None,
) -> None:
    """Serve until SIGTERM or SIGINT, let requests in progress end, and return.

    Args:
        service: the gateway.
        settings: limits, and how long requests in progress may take.
        clients: the socket for clients.
        operators: answers on `beside`; None for nothing.
        beside: the socket for operators.
    """
    gc.collect()
    gc.freeze()  # all of this stays: no collection needs to look at it again
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    give_memory_back()
    collecting = asyncio.create_task(collect_at_rest())
    server = server_of(service.application, settings.limits, grace_seconds=settings.grace_seconds)
    server.on_stop = service.gateway.end_waits
    try:
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
    finally:
        collecting.cancel()


async def collect_at_rest(every: float = 1.0) -> None:
    """Free cycles of old objects, until cancelled: a collection stops all threads for as long as it looks at objects.

    While something large is worked on, there may be a million of them, and none of them can be freed yet.
    """
    looked = time.monotonic()
    while True:
        await asyncio.sleep(every)
        is_due = gc.get_count()[2] >= DUE
        if is_due and (not has_large_work() or time.monotonic() - looked > LONGEST_WAIT):
            gc.collect()
            looked = time.monotonic()


def give_memory_back() -> None:
    """Have large blocks of memory returned to the machine once they are free, where libc is glibc.

    Otherwise glibc raises both thresholds to the largest block freed so far, and keeps all smaller ones.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for parameter in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(parameter, LARGE)


@contextlib.contextmanager
def hanging_up(operations: Operations) -> Iterator[None]:
    """A block in which SIGHUP reloads all policies."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[object]] = set()

    def again() -> None:
        task: asyncio.Task[object] = loop.create_task(operations.reload())
        running.add(task)
        task.add_done_callback(running.discard)

    with on_signal(signal.SIGHUP, again):
        yield


@contextlib.contextmanager
def on_signal(which: signal.Signals, call: Callable[[], None]) -> Iterator[None]:
    """A block in which the event loop calls `call` on a signal; outside the main thread, signals are ignored."""
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
    """The operators' port by the settings; without `admin.keys` nobody may act on it."""
    if settings.admin is None:
        return None
    admins = {key.hash: key.subject or key.name for key in settings.admin.keys}
    hosts = {*settings.admin.hosts, *settings.listen.hosts, settings.admin.host}
    return AdminApp(operations, admins, review, hosts=hosts)
