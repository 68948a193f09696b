"""An engine that queries an OPA server over HTTP, one query per message. Spec: docs/spec/policies.md [POL-30] ff.

The server has the bundle that `PolicySet.bundle()` writes: the same modules and data, and one more module that judges
many views at once. What the server, or whatever answers in its place, says is checked: only a well-formed answer under
the expected revision can become an allow.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson
from opa_client import AsyncOpaClient

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.decisions.engine import Decided, EngineResult, Failed, TimedOut, Undefined
from pipeline.decisions.errors import ConfigError
from pipeline.engines.circuit_breaker import Breaker
from pipeline.policy.entrypoints import BATCH

MAX_RESPONSE_BYTES: Final = 8 * 1024 * 1024  # as much as the embedded engine lets a result be
MAX_CONNECTIONS: Final = 64  # kept open to one server; a query waits for one inside its deadline
MAX_SINGLE_QUERIES: Final = 8  # at once, when a batch that failed is asked view by view

_READ_BYTES: Final = 64 * 1024
_JSON: Final = {"Content-Type": "application/json"}
_STRICT: Final = {"strict-builtin-errors": "true"}


_Item: TypeAlias = tuple[int, dict[str, Any]]
"""The place of a view among the results, and the view in the form that the batch module reads."""


class OpaServerEngine:
    """A policy set that an OPA server at `url` holds. Safe to use from any number of threads and event loops at once.

    Args:
        url: scheme, host and port of the server's API.
        revision: of the policy set that the server must have; an answer under another one is a failure.
        token: bearer token, if the server asks for one.
        ca_file: certificates that may have signed the server's; by default the system's.
        breaker: when a server that does not answer is left alone; by default after five faults in a row.
        strict_builtin_errors: a builtin error makes the view failed; otherwise undefined, as in ordinary OPA.

    Raises:
        ConfigError: the URL is none of a server.
    """

    def __init__(
        self,
        url: str,
        *,
        revision: str,
        token: str | None = None,
        ca_file: str | None = None,
        strict_builtin_errors: bool = True,
        breaker: Breaker | None = None,
    ) -> None:
        host, port, is_https = _address(url)
        self._revision = revision
        self._parameters = _STRICT if strict_builtin_errors else {}
        self._breaker = breaker or Breaker()
        self._new_client = lambda: _Client(
            host=host, port=port, ssl=is_https, cert=ca_file, token=token, retries=0, timeout=None
        )
        self._client: _Client | None = None
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def revision(self) -> str:
        """SHA-256, in hex, of the policies and data that the server must have."""
        return self._revision

    def evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """One result per view, in order; see `Engine.evaluate`. The calling thread waits."""
        loop = self._running_loop()
        question = self._evaluate(entrypoints, shared, views, loop.time() + timeout_seconds)
        return asyncio.run_coroutine_threadsafe(question, loop).result()

    async def aevaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], *, timeout_seconds: float
    ) -> list[EngineResult]:
        """The same; the calling loop is free meanwhile."""
        loop = self._running_loop()
        question = self._evaluate(entrypoints, shared, views, loop.time() + timeout_seconds)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(question, loop))

    def close(self) -> None:
        """Close the connections and end the thread. The engine can be used again, and opens new ones."""
        with self._lock:
            loop, self._loop = self._loop, None
            if loop is None:
                return
            asyncio.run_coroutine_threadsafe(self._close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    async def _close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close_connection()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop of this engine's own thread: connections belong to one loop, and callers come from many."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="cmf-opa", daemon=True).start()
            return self._loop

    # -- on the engine's own loop --------------------------------------------------------------------------------------

    async def _evaluate(
        self, entrypoints: Sequence[str], shared: bytes, views: Sequence[bytes], deadline: float
    ) -> list[EngineResult]:
        results: list[EngineResult] = [TimedOut()] * len(views)
        context = _checked(shared, "shared")
        items: list[_Item] = []
        for place, (entrypoint, view) in enumerate(zip(entrypoints, views, strict=True)):
            document = _checked(view, "view")
            problem = next((found for found in (context, document) if isinstance(found, Failed)), None)
            if problem is not None:
                results[place] = problem
            else:
                items.append((place, {"entrypoint": entrypoint, "view": document}))
        if items:
            await self._ask_in_time(context, items, results, deadline)
        return results

    async def _ask_in_time(
        self, context: Any, items: Sequence[_Item], results: list[EngineResult], deadline: float
    ) -> None:
        now = asyncio.get_running_loop().time
        if not self._breaker.allows(now()):
            for place, _ in items:
                results[place] = Failed("engine.circuit-open")
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._ask(context, items, results)
            fault = all(_is_outage(results[place]) for place, _ in items)
        except TimeoutError:
            fault = True  # what was not answered stays `TimedOut`
        except BaseException:
            self._breaker.give_up()
            raise
        self._breaker.note(now(), fault=fault)

    async def _ask(self, context: Any, items: Sequence[_Item], results: list[EngineResult]) -> None:
        """Put the answer for each item into `results`.

        The server refuses a whole query because of one view (a builtin error, say) and does not say which it was, so
        the views are then asked one by one.
        """
        answers = await self._query(context, items)
        if len(items) > 1 and isinstance(answers, Failed) and answers.code in _ASK_ONE_BY_ONE:
            turn = asyncio.Semaphore(MAX_SINGLE_QUERIES)

            async def ask_one(item: _Item) -> None:
                async with turn:
                    await self._ask(context, [item], results)

            await asyncio.gather(*map(ask_one, items))
            return
        for position, (place, _) in enumerate(items):
            results[place] = answers[position] if isinstance(answers, list) else answers

    async def _query(self, context: Any, items: Sequence[_Item]) -> list[EngineResult] | Failed | Undefined:
        """An answer for each item, or what became of them all."""
        question = {"shared": context, "items": [query for _, query in items]}
        try:
            body = await self._connected().query_rule(question, BATCH, "answer", self._parameters)
        except _StatusError as error:
            (status,) = error.args
            return Failed("engine.redirect" if 300 <= status < 400 else "engine.http-status", str(status))
        except _TooLargeError:
            return Failed("engine.result-too-large")
        except (aiohttp.ClientError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            return Failed("engine.unavailable", type(error).__name__)
        except DecodeError:
            return Failed("engine.not-json")
        return self._read(body, len(items))

    def _read(self, body: object, expected: int) -> list[EngineResult] | Failed | Undefined:
        if not isinstance(body, dict):
            return Failed("engine.bad-result")
        if "result" not in body:
            return Undefined()
        answer = body["result"]
        results = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or len(results) != expected or answer.keys() != {"revision", "results"}:
            return Failed("engine.bad-result")
        if answer["revision"] != self._revision:
            return Failed("engine.other-revision")
        return [_result(result) for result in results]

    def _connected(self) -> _Client:
        if self._client is None:
            self._client = self._new_client()  # type: ignore[no-untyped-call]  # the package is not typed
            self._client.connect()
        return self._client


_ASK_ONE_BY_ONE: Final = frozenset({"engine.http-status", "engine.result-too-large"})


def _is_outage(result: EngineResult) -> bool:
    """Whether it is the server that is to blame. A 500 is not: a view that breaks a builtin makes one."""
    match result:
        case Failed("engine.http-status", status):
            return status in {"429", "502", "503", "504"}
        case Failed(code):
            return code == "engine.unavailable"
        case _:
            return False


def _result(result: object) -> EngineResult:
    match result:
        case {"value": value, **rest} if not rest:
            return Decided(value)
        case {**rest} if not rest:
            return Undefined()
        case _:
            return Failed("engine.bad-result")


def _checked(document: bytes, what: str) -> orjson.Fragment | Failed:
    """The document, to be put into the query as it is: an object, and as strictly JSON as the embedded engine asks."""
    try:
        value = loads(document)
    except DecodeError as error:
        return Failed(error.code.replace("json.", "input."), what)
    return orjson.Fragment(document) if isinstance(value, dict) else Failed("input.not-object", what)


def _address(url: str) -> tuple[str, int, bool]:
    parts = urlsplit(url)
    hint = "write http(s)://host:port"
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise ConfigError("this is no address of an OPA server", code="config.bad-opa-url", hint=hint)
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the address holds credentials", code="config.bad-opa-url", hint="give a token instead")
    is_https = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host, parts.port or (443 if is_https else 80), is_https


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


# -- the client, bounded -----------------------------------------------------------------------------------------------


class _StatusError(Exception):
    """Any status but 200. A redirect is one: a policy input goes nowhere but where the operator said."""


class _TooLargeError(Exception):
    """More came back than may."""


class _BoundedResponse(aiohttp.ClientResponse):
    """A response whose JSON is strict, and no larger than `MAX_RESPONSE_BYTES`, whatever its headers say."""

    async def json(self, **_: object) -> Any:
        body = bytearray()
        async for chunk in self.content.iter_chunked(_READ_BYTES):
            body += chunk
            if len(body) > MAX_RESPONSE_BYTES:
                self.close()
                raise _TooLargeError
        return loads(bytes(body))


async def _only_200(
    request: aiohttp.ClientRequest, handler: Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]
) -> aiohttp.ClientResponse:
    response = await handler(request)
    if response.status != 200:
        response.close()
        raise _StatusError(response.status)
    return response


class _Client(AsyncOpaClient):  # type: ignore[misc]  # the package is not typed
    """The client with a session of our own making: no retries, proxies, cookies, compression or redirects."""

    async def query_rule(
        self, input_data: object, package_path: str, rule_name: str, query_params: dict[str, str]
    ) -> Any:
        """As the package's own, but the body is spelled by orjson, into which views go as they are."""
        options = f"?{urlencode(query_params)}" if query_params else ""
        url = f"{self.root_url}/data/{package_path.replace('.', '/')}/{rule_name}{options}"
        body = io.BytesIO(orjson.dumps({"input": input_data}))
        async with self._request("POST", url, data=body, headers=_JSON) as response:
            return await response.json()

    def connect(self) -> None:
        """Open the session; to be called on the loop that will use it."""
        context = ssl.create_default_context(cafile=self.cert) if self.ssl else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS, ssl=context),
            headers=self.headers,
            skip_auto_headers=("Accept-Encoding",),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            middlewares=(_only_200,),
            response_class=_BoundedResponse,
            timeout=aiohttp.ClientTimeout(total=None),  # the caller's deadline is the one there is
            trust_env=False,
        )
