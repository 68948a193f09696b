"""An HTTP request, read strictly: whatever two readers could understand differently is refused. Spec: gateway.md."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Final, TypeVar, cast
from urllib.parse import parse_qsl

from cmf.errors import DecodeError
from cmf.json.codec import MAX_BRACKETS, dumps, loads
from pipeline.gateway.config.settings import Limits
from pipeline.gateway.http.endpoints import Endpoint
from pipeline.gateway.http.refusal import FINAL, Refusal, of_unreadable
from pipeline.run.offload import apart, arrived


class SharedTimeout:
    """Limits many blocks of coroutines to the same number of seconds, each as `asyncio.timeout` would.

    One timer serves them all, as whichever began first expires first. Nearly all end in time, most without waiting at
    all; a timer for each, made and cancelled, costs four times as much, as the loop keeps cancelled timers for a while.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[_Block, float] = {}  # in seconds of the loop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None

    def block(self) -> AbstractContextManager[None]:
        """A block that is cancelled, and raises TimeoutError, once it takes too long."""
        return _Block(self)

    def _add(self, block: _Block) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._timer = loop, None
        self._until[block] = until = loop.time() + self._seconds
        if self._timer is None:
            self._timer = loop.call_at(until, self._expire, loop)

    def _remove(self, block: _Block) -> None:
        self._until.pop(block, None)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        for block, until in list(self._until.items()):
            if until > loop.time():
                self._timer = loop.call_at(until, self._expire, loop)
                return
            self._remove(block)
            block.expire()


class _Block(AbstractContextManager[None]):
    """One block. Cancellation from elsewhere is passed on as such, as by `asyncio.timeout`."""

    __slots__ = ("_cancelling", "_is_late", "_task", "_timeout")

    def __init__(self, timeout: SharedTimeout) -> None:
        self._timeout = timeout

    def __enter__(self) -> None:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelling = self._task.cancelling()
        self._is_late = False
        self._timeout._add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timeout._remove(self)
        if self._is_late and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def expire(self) -> None:
        """Cancel its task: it took too long."""
        self._is_late = True
        self._task.cancel()


Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
_T = TypeVar("_T")

CLIENT_CLOSED: Final = 499  # the status, in the log and the counters only, of a request whose client left
LASTS: Final = "cmf.lasts"  # in the scope of a request whose answer has no end to wait for
SESSION_HEADER: Final = "x-cmf-session-id"
_REPEATABLE: Final = frozenset({"anthropic-beta", "accept", "accept-encoding", "accept-language", "via", "forwarded"})
_REPEATABLE_PREFIX: Final = "x-forwarded-"
_MEDIA_TYPE: Final = re.compile(r'application/json(?:\s*;\s*charset\s*=\s*"?utf-?8"?)?\s*', re.IGNORECASE)
_SESSION: Final = re.compile(r"[A-Za-z0-9._:@/=+-]{1,128}")
_LAST: Final = {"connection": "close"}  # where the request ends is unclear: nothing after it is read
_PARTIAL: Final = "x-envoy-auth-partial-body"  # set by Envoy, which removes a client's own
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


class ClientDisconnected(Exception):
    """The client left before it had its answer."""


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """The headers by lower-case name; a list header that was repeated is joined by commas.

    Raises:
        Refusal: 400 for a header given twice, which readers resolve differently, or for both kinds of length.
    """
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        if key not in headers:
            headers[key] = text
        elif key in _REPEATABLE or key.startswith(_REPEATABLE_PREFIX):
            headers[key] = f"{headers[key]}, {text}"
        else:
            raise Refusal(400, "http.duplicate-header", f"The header `{_shown(key)}` is given twice.", headers=_LAST)
    if "transfer-encoding" in headers and "content-length" in headers:
        message = "The request has both Content-Length and Transfer-Encoding."
        raise Refusal(400, "http.two-lengths", message, headers=_LAST)
    return headers


def path_of(scope: Scope) -> str:
    """The path as it was sent: no other spelling of one is served."""
    raw = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return str(raw.partition(b"?")[0].decode("latin-1"))


def query_of(raw: bytes) -> list[tuple[str, str]]:
    """The names and values of a query string. Refusal 400 where it cannot be read."""
    if not raw:
        return []
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, strict_parsing=True, max_num_fields=16)
    except ValueError:
        raise Refusal(400, "http.query", "The query string cannot be read.") from None


def check_query(query: Sequence[tuple[str, str]], endpoint: Endpoint) -> None:
    """Refusal 400 for a name or value that this endpoint does not know: nothing is ignored silently."""
    allowed = endpoint.query or {}
    for name, value in query:
        values = allowed.get(name)
        if values is None or (values and value not in values):
            raise Refusal(400, "http.query", f"The query parameter `{_shown(name)}` is unknown here, or its value is.")
    if len({name for name, _ in query}) != len(query):
        raise Refusal(400, "http.query", "A query parameter is given twice.")


def session_of(headers: Mapping[str, str]) -> str | None:
    """The session that the client names. Refusal 400 for an invalid id."""
    session = headers.get(SESSION_HEADER)
    if session is not None and not _SESSION.fullmatch(session):
        raise Refusal(400, "session.invalid", "A session id has 1 to 128 characters: letters, digits and ._:@/=+-")
    return session


def check_uncut(headers: Mapping[str, str]) -> None:
    """Refusal unless Envoy declares that it sent the whole body: 413 for a cut one, 400 without that header."""
    partial = headers.get(_PARTIAL)
    if partial == "true":
        message = "Envoy cut this body short; the rest would go on unjudged. Raise `max_request_bytes`."
        raise Refusal(413, "envoy.cut-body", message)
    if partial != "false":
        message = "Envoy sent no body, or does not say that it is complete: set `with_request_body`."
        raise Refusal(400, "envoy.no-body", message)


async def body_of(headers: Mapping[str, str], receive: Receive, limits: Limits, in_time: SharedTimeout) -> Any:
    """The JSON value of the body; raises as `bytes_of` and `json_of`."""
    raw = await bytes_of(headers, receive, limits, in_time)
    arrived(len(raw), anew=True)
    return await apart(json_of, raw, limits)


async def bytes_of(
    headers: Mapping[str, str], receive: Receive, limits: Limits, in_time: SharedTimeout, *, untyped: bool = False
) -> bytes:
    """The body, if it arrives `in_time`; `untyped` allows one without a media type, unless a browser's page sent it.

    A page of any site may send such a body without asking first, and always with `Origin`.

    Raises:
        Refusal: 415 not plain JSON; 413 too large, before it is read to its end; 408 too slow.
        ClientDisconnected: the client left meanwhile.
    """
    media_type = headers.get("content-type")
    if media_type is None and untyped and "origin" not in headers:
        media_type = "application/json"
    if not _MEDIA_TYPE.fullmatch(media_type or ""):
        raise Refusal(415, "http.media-type", "Send JSON, with the header `content-type: application/json`.")
    if headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refusal(415, "http.content-encoding", "Send the body uncompressed.")
    length = headers.get("content-length", "0")
    if not _DIGITS.fullmatch(length):
        raise Refusal(400, "http.length", "Content-Length is not a number.")
    pieces: list[bytes] = []
    size, received, more = int(length), 0, True
    try:
        with in_time.block():
            while size <= limits.body_bytes and more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ClientDisconnected
                pieces.append(event.get("body", b""))
                size = received = received + len(pieces[-1])
                more = event.get("more_body", False)
    except TimeoutError:
        raise Refusal(408, "http.slow-body", "The body did not arrive in time.") from None
    if size > limits.body_bytes:
        message = f"The body is larger than {limits.body_bytes} bytes (`limits.body_bytes`)."
        raise Refusal(413, "http.too-large", message, headers=FINAL)
    return b"".join(pieces)


def json_of(raw: bytes, limits: Limits) -> Any:
    """The JSON value in a body; Refusal 400 where it is not strict JSON, and 413 where it has too many values."""
    try:
        return loads(raw, max_bytes=limits.body_bytes, max_brackets=MAX_BRACKETS)
    except DecodeError as error:
        raise of_unreadable(error, 413 if error.code == "json.too-many" else 400) from None


def model_in(body: Any) -> str:
    """The model that a body names, in `model` or, as older clients of Ollama do, in `name`. Refusal 400 without one."""
    fields = body if isinstance(body, dict) else {}
    name = fields.get("model") or fields.get("name")
    if not isinstance(name, str):
        raise Refusal(400, "request.no-model", "The request names no model.")
    return name


def size_of(headers: Mapping[str, str], body: Any) -> int:
    """The size of the body in bytes: its Content-Length, which the server enforced; else as it would be written."""
    length = headers.get("content-length")
    return len(dumps(body)) if length is None else int(length)


async def until_disconnect(receive: Receive, work: Awaitable[_T]) -> _T:
    """The result of `work`. If the client disconnects first, `work` is cancelled, and ClientDisconnected raised.

    A cancellation from elsewhere, as by `asyncio.timeout`, is passed on as such.
    """

    async def disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    own = cast("asyncio.Task[object]", asyncio.current_task())
    disconnected = asyncio.ensure_future(disconnect())
    disconnected.add_done_callback(cancel_work := lambda _: own.cancel())
    try:
        return await work
    except asyncio.CancelledError:
        if disconnected.done() and own.uncancel() == 0:
            raise ClientDisconnected from None
        raise
    finally:
        disconnected.remove_done_callback(cancel_work)
        disconnected.cancel()


async def lifespan(receive: Receive, send: Send, **acts: Callable[[], Awaitable[None]]) -> None:
    """Answer a server's `startup` and `shutdown`, each once its act is done."""
    while True:
        kind = (await receive())["type"].removeprefix("lifespan.")
        if kind in acts:
            await acts[kind]()
        await send({"type": f"lifespan.{kind}.complete"})
        if kind == "shutdown":
            return


def _shown(name: str) -> str:
    return name if name.isprintable() and len(name) <= 64 else "?"
