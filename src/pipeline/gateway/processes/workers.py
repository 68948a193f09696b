"""One serving process, or several that serve one address; one that dies is replaced. Spec: gateway.md [GW-150] ff.

Workers share the listening socket and the stores, and nothing else. If a worker is killed, the requests that it was
serving are lost and no others: another worker accepts the connections that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import secrets
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import aiohttp

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from pipeline.decisions.errors import ConfigError
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.config.settings_base import Secret
from pipeline.gateway.http.server import server_of
from pipeline.gateway.operations.admin import BY, AdminApp, App
from pipeline.gateway.operations.operations import Operations, merged
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
    """Serve until SIGTERM or SIGINT, let requests in progress end, and return."""
    gc.collect()
    gc.freeze()  # all of this stays: no collection needs to look at it again
    gc.set_threshold(YOUNG, MIDDLE, NEVER)
    give_memory_back()
    collecting = asyncio.create_task(collect_at_rest())
    server = server_of(service.application, settings.limits, grace_seconds=settings.grace_seconds)
    server.on_stop = service.gateway.end_waits
    if operators is not None:
        operators.is_ending = lambda: server.should_exit
    try:
        with hanging_up(service.operations):
            async with served_beside(operators, beside):
                await server.serve(sockets=[clients])
    finally:
        collecting.cancel()


@contextlib.asynccontextmanager
async def served_beside(app: AdminApp | None, beside: socket.socket | None) -> AsyncIterator[None]:
    """A block in which `app` answers on the socket `beside`, where there are both."""
    if app is None or beside is None:
        yield
        return
    server = server_of(app, beside=True)
    work = asyncio.create_task(server.serve(sockets=[beside]))
    try:
        yield
    finally:
        server.should_exit = True
        await work


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


ASKED_SECONDS: Final = 2.0  # how long a worker may take to answer a question about its state
RELOAD_SECONDS: Final = 120.0  # vetting policies takes a while
LONGEST_PAUSE: Final = 10.0  # seconds before a worker that keeps ending at once is started again
REFUSED: Final = 2  # exit code of a worker that cannot start, and is not started again
_log: Final = logging.getLogger("pipeline.gateway")


class Crew(Operations):
    """The worker processes, from their start to their end.

    Args:
        home: a private directory, for the sockets on which they are asked about their state.
    """

    def __init__(self, settings: Settings, clients: socket.socket, home: Path, *, quiet: bool = False) -> None:
        self._words = ("quiet",) if quiet else ()
        self._settings = settings
        self._clients = clients
        self._home = home
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._restarts = 0
        self._ending = asyncio.Event()

    @property
    def pids(self) -> list[int]:
        """The process ids of those that run."""
        return [process.pid for process in self._processes.values() if process.returncode is None]

    @property
    def is_ending(self) -> bool:
        """Whether `end` was called."""
        return self._ending.is_set()

    async def work(self) -> None:
        """Run them until `end` is called.

        Raises:
            ConfigError: one of them could not start.
        """
        keeping = [asyncio.create_task(self._keep(number)) for number in range(self._settings.workers)]
        try:
            await asyncio.gather(*keeping)
        finally:
            self.end()
            await asyncio.gather(*keeping, return_exceptions=True)

    def end(self) -> None:
        """Tell them to end once the requests that they are serving are answered."""
        self._ending.set()
        for process in self._processes.values():
            _send_signal(process, signal.SIGTERM)

    # -- keeping one alive ---------------------------------------------------------------------------------------------

    async def _keep(self, number: int) -> None:
        pause = 0.0
        began_once = False
        while not self._ending.is_set():
            begun = asyncio.get_running_loop().time()
            process = await self._begin(number)
            await self._until_over(process)
            if self._ending.is_set():
                return
            if not began_once and process.returncode == REFUSED:
                raise ConfigError("a worker could not begin", code="config.worker", hint="it has said why")
            began_once = began_once or process.returncode != REFUSED
            lived = asyncio.get_running_loop().time() - begun
            pause = 0.0 if lived > LONGEST_PAUSE else min(LONGEST_PAUSE, max(0.1, pause * 2))
            self._restarts += 1
            line = {"event": "worker.ended", "worker": number, "code": process.returncode, "again_in": pause}
            _log.error("%s", dumps(line).decode())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._ending.wait()

    async def _begin(self, number: int) -> asyncio.subprocess.Process:
        path = self._home / f"{number}.sock"
        path.unlink(missing_ok=True)
        fd = self._clients.fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pipeline.gateway.processes.worker", str(fd), str(path), *self._words,
            pass_fds=(fd,), stdin=asyncio.subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self._processes[number] = process
        if process.stdin is not None:  # it stays open: when it ends, the worker is alone
            with contextlib.suppress(ConnectionError):
                process.stdin.write(self._settings.model_dump_json().encode() + b"\n")
                await process.stdin.drain()
        return process

    async def _until_over(self, process: asyncio.subprocess.Process) -> None:
        over = asyncio.create_task(process.wait())
        ending = asyncio.create_task(self._ending.wait())
        await asyncio.wait({over, ending}, return_when=asyncio.FIRST_COMPLETED)
        ending.cancel()
        if not over.done():
            _send_signal(process, signal.SIGTERM)
            await asyncio.wait({over}, timeout=self._settings.grace_seconds + ASKED_SECONDS)
            _send_signal(process, signal.SIGKILL)
            await over

    # -- what can be asked of them all ---------------------------------------------------------------------------------

    async def metrics(self) -> str:
        """See `Operations`; each worker's metrics have its number as the label `worker`."""
        answers = await self._ask_all("GET", "/metrics", ASKED_SECONDS)
        texts = {str(number): body.decode() for number, (_, body) in answers.items()}
        own = (
            f"# HELP cmf_gateway_workers Processes that serve.\n# TYPE cmf_gateway_workers gauge\n"
            f"cmf_gateway_workers {len(self.pids)}\n"
            f"# HELP cmf_gateway_worker_restarts_total Processes that died and were begun again.\n"
            f"# TYPE cmf_gateway_worker_restarts_total counter\n"
            f"cmf_gateway_worker_restarts_total {self._restarts}\n"
        )
        return merged(texts) + own

    async def ready(self) -> tuple[bool, dict[str, Any]]:
        """See `Operations`: ready is who can serve with every one of its processes that answers."""
        answers = await self._ask_all("GET", "/readyz", ASKED_SECONDS)
        bodies = {str(number): _json(body) for number, (_, body) in sorted(answers.items())}
        is_ready = bool(answers) and all(status == 200 for status, _ in answers.values())
        status = {"status": "ok" if is_ready else "not ready", "wanted": self._settings.workers, "workers": bodies}
        return is_ready, status

    async def reload(self, by: str | None = None) -> list[dict[str, Any]]:
        """See `Operations`."""
        answers = await self._ask_all("POST", "/admin/reload", RELOAD_SECONDS, by)
        entries: list[dict[str, Any]] = []
        for number in range(self._settings.workers):
            body = _json(answers[number][1]) if number in answers else None
            policies = body.get("policies") if isinstance(body, dict) else None
            entries += [
                {"worker": number, **entry} for entry in policies or [{"routes": [], "refused": "worker.silent"}]
            ]
        return entries

    async def _ask_all(
        self, method: str, path: str, seconds: float, by: str | None = None
    ) -> dict[int, tuple[int, bytes]]:
        numbers = [number for number, process in self._processes.items() if process.returncode is None]
        answers = await asyncio.gather(*(self._ask(number, method, path, seconds, by) for number in numbers))
        return {number: answer for number, answer in zip(numbers, answers, strict=True) if answer is not None}

    async def _ask(
        self, number: int, method: str, path: str, seconds: float, by: str | None
    ) -> tuple[int, bytes] | None:
        """The worker's status and body; None if it does not answer."""
        headers = {} if by is None else {BY: quote(by)}
        try:
            async with (
                aiohttp.ClientSession(
                    connector=aiohttp.UnixConnector(path=str(self._home / f"{number}.sock")),
                    timeout=aiohttp.ClientTimeout(total=seconds),
                ) as session,
                session.request(method, f"http://worker{path}", headers=headers) as reply,
            ):
                return reply.status, await reply.read()
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None


def _send_signal(process: asyncio.subprocess.Process, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(which)


def _json(body: bytes) -> Any:
    try:
        return loads(body)
    except DecodeError:
        return None


async def serve(
    settings: Settings,
    clients: socket.socket,
    beside: socket.socket | None,
    *,
    quiet: bool = False,
    review: App | None = None,
) -> None:
    """Have `settings.workers` processes serve until SIGTERM or SIGINT; what is in work may end.

    `review` is the review site, which this process serves.

    Raises:
        ConfigError: they could not begin.
    """
    with tempfile.TemporaryDirectory(prefix="cmf-") as directory:  # nobody else may look into it
        home = Path(directory)
        if settings.seal_key is None:  # one for all workers, so that one can release what another kept for a person
            file = home / "seal"
            file.touch(0o600, exist_ok=False)
            file.write_text(secrets.token_hex(32), encoding="ascii")
            settings = settings.model_copy(update={"seal_key": Secret(file=file)})
        crew = Crew(settings, clients, home, quiet=quiet)
        app = admin_app(settings, crew, review)
        if app is not None:
            app.is_ending = lambda: crew.is_ending
        with on_signal(signal.SIGTERM, crew.end), on_signal(signal.SIGINT, crew.end), hanging_up(crew):
            async with served_beside(app, beside):
                await crew.work()
