"""The playground's HTTP server, for this machine and this page only. Spec: docs/spec/playground.md [PLAY-10] ff.

The page and its script are public and hold no data. The API needs a token, which is in the fragment of the printed URL,
so that browsers never send it by themselves.
"""

from __future__ import annotations

import asyncio
import hmac
import importlib.resources
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from cmf.errors import CmfError
from cmf.json.codec import dumps, loads
from pipeline.authoring.playground.evaluation import Evaluator, Json
from pipeline.authoring.playground.project import Project, samples, save
from pipeline.authoring.playground.state import FORMATS, PaneError, State, state_of
from pipeline.decisions.errors import PipelineError, needs

with needs("review"):
    from starlette.applications import Starlette
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY: Final = 2 * 1024 * 1024
EVALUATE_SECONDS: Final = 10.0  # then the page gets an error; the engine's own deadlines are shorter
THREADS: Final = 2
WAITING: Final = 8  # requests that may wait for a thread; more get an error to retry

SAFE_HEADERS: Final = {  # of every page on this machine; the site of reviews sends them too
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; "
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
HEADERS: Final = SAFE_HEADERS | {
    "content-security-policy": (
        SAFE_HEADERS["content-security-policy"]
        + "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), clipboard-read=()",
}
TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_STATIC: Final = ("style.css", "icon.svg", "app.js", "colours.js", "editor.js", "panes.js", "link.js")
_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]


def build_app(*, token: str, hosts: frozenset[str], project: Project | None, readonly: bool) -> ASGIApp:
    """The application, which needs the token in every API request.

    Any other `Host` than one of `hosts` indicates DNS rebinding. Without a project, cases cannot be saved.
    """
    answers = Answers(project, readonly=readonly)
    routes = [
        Route("/", _file("index.html"), methods=["GET"]),
        *(Route(f"/{name}", _file(name), methods=["GET"]) for name in _STATIC),
        Route("/api/start", answers.start, methods=["GET"]),
        Route("/api/evaluate", answers.evaluate, methods=["POST"]),
        Route("/api/save", answers.save, methods=["POST"]),
    ]
    return Wall(Starlette(routes=routes, exception_handlers={Exception: _broken}), token=token, hosts=hosts)


class Wall:
    """Accepts only requests from this page on this machine, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: frozenset[str]) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = hosts
        self._origins = frozenset(f"http://{host}" for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name, value) for name, value in message["headers"] if name.decode().lower() not in HEADERS]
                message["headers"] = own + [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            await send(message)

        problem = self._problem(scope)
        if problem is None:
            await self._app(scope, receive, with_headers)
        else:
            status, code, message = problem
            await _error(status, code, message)(scope, receive, with_headers)

    def _problem(self, scope: Scope) -> tuple[int, str, str] | None:
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        host = headers.get(b"host", [])
        if len(host) != 1 or host[0].decode("latin-1").lower() not in self._hosts:
            return 421, "playground.host", "This host name is not served here."
        if any(origin.decode("latin-1") not in self._origins for origin in headers.get(b"origin", [])):
            return 403, "playground.origin", "Only the page of this server may send requests."
        if not scope["path"].startswith("/api/"):
            return None
        if any(site not in (b"same-origin", b"none") for site in headers.get(b"sec-fetch-site", [])):
            return 403, "playground.origin", "Only the page of this server may send requests."
        given = headers.get(b"x-cmf-token", [])
        if len(given) != 1 or not hmac.compare_digest(given[0], self._token):
            return 403, "playground.token", "Open the URL that `cmf playground` printed."
        kind = headers.get(b"content-type", [b""])[0].partition(b";")[0].strip()
        if scope["method"] == "POST" and kind != b"application/json":
            return 415, "playground.type", "Send JSON."
        return None


class Answers:
    """The API of the page. Work runs on a bounded number of threads."""

    def __init__(self, project: Project | None, *, readonly: bool) -> None:
        self._project = project
        self._readonly = readonly
        self._evaluator = Evaluator()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="playground")
        self._waiting = 0

    async def start(self, _request: Request) -> Response:
        """The page's initial data: samples, formats, and whether cases can be saved."""
        return await self._answer(self._start)

    def _start(self) -> Json:
        saves = self._project is not None and not self._readonly
        sets: list[Json] = []  # many samples share their policies: send each set once
        offered = []
        for sample in samples(self._project):
            files = sample["state"].pop("files")
            if files not in sets:
                sets.append(files)
            offered.append(sample | {"set": sets.index(files)})
        return {"sets": sets, "samples": offered, "formats": list(FORMATS), "saves": saves, "readonly": self._readonly}

    async def evaluate(self, request: Request) -> Response:
        """Evaluate a state."""
        return await self._asked(request, lambda body: self._evaluator.evaluate(state_of(body)))

    async def save(self, request: Request) -> Response:
        """Save a state as a case."""
        if self._readonly:
            return _error(403, "playground.readonly", "Saving is disabled: the playground was started with --readonly.")
        if self._project is None:
            message = "There is no project to save to: start the playground with --policies DIR."
            return _error(409, "playground.no-project", message)
        project = self._project

        def saved(body: bytes) -> Json:
            document = loads(body)
            if not isinstance(document, dict) or not isinstance(document.get("name"), str):
                raise PaneError("decision", "a case needs a name")
            return save(project, document["name"], State.model_validate(document.get("state")), self._evaluator)

        return await self._asked(request, saved)

    async def _asked(self, request: Request, work: Callable[[bytes], Json]) -> Response:
        try:
            body = await limited_body(request, MAX_BODY)
        except ClientDisconnect:
            return Response(status_code=400)
        if body is None:
            return _error(413, "playground.too-large", f"The request has more than {MAX_BODY} bytes.")
        return await self._answer(partial(work, body))

    async def _answer(self, work: Callable[[], Json]) -> Response:
        if self._waiting >= WAITING:
            return _error(503, "playground.busy", "Too many requests: try again.")
        self._waiting += 1
        doing = asyncio.get_running_loop().run_in_executor(self._threads, work)
        doing.add_done_callback(self._done)
        try:
            async with asyncio.timeout(EVALUATE_SECONDS):
                return _json(200, await asyncio.shield(doing))
        except TimeoutError:
            return _error(503, "playground.timeout", f"Evaluation takes longer than {EVALUATE_SECONDS:.0f} seconds.")
        except PaneError as error:
            code, problem, hint = "playground.state", error.problem, error.hint
        except (CmfError, PipelineError) as error:
            code, problem, hint = error.code, error.message, error.hint
        return _error(422, code, f"{problem}; {hint}" if hint else problem)

    def _done(self, doing: asyncio.Future[Json]) -> None:
        self._waiting -= 1
        if not doing.cancelled():
            doing.exception()  # retrieve the exception of an abandoned future, so that asyncio does not log it


async def limited_body(request: Request, limit: int) -> bytes | None:
    """The whole body; None as soon as it has more bytes than the limit."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


def _file(name: str) -> _Endpoint:
    content = importlib.resources.files("pipeline.authoring.playground").joinpath("static", name).read_bytes()

    async def answer(_request: Request) -> Response:
        return Response(content, media_type=None, headers={"content-type": TYPES[Path(name).suffix]})

    return answer


async def _broken(_request: Request, _reason: Exception) -> Response:
    return _error(500, "playground.error", "An internal error occurred; see the terminal.")


def _json(status: int, body: Mapping[str, object]) -> Response:
    return Response(dumps(body), status_code=status, headers={"content-type": "application/json"})


def _error(status: int, code: str, message: str) -> Response:
    return _json(status, {"error": {"code": code, "message": message}})
