"""The site's HTTP layer: pages and their JSON and CSV forms, forms with CSRF tokens, security headers.

Spec: docs/spec/review.md.
"""

from __future__ import annotations

import csv
import hashlib
import importlib.resources
import io
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http.cookies import CookieError, SimpleCookie
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from cmf.json.codec import dumps
from pipeline.audit.query import Disposition, exactly
from pipeline.authoring.playground.server import SAFE_HEADERS, TYPES, limited_body
from pipeline.decisions.display import visible
from pipeline.decisions.errors import ApprovalError, AuditError, PipelineError, StoreError, needs
from pipeline.review import actions, approving, detail, lists, oversight, revisions, tools
from pipeline.review.access import Authenticator, Forms, Named, Person, Refused, Role, SignedIn
from pipeline.review.site import Answer, Download, Page, Redirect, Site, Visit

with needs("review"):
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp

_log: Final = logging.getLogger("pipeline.review")
MAX_FORM: Final = 64 * 1024
MAX_FIELDS: Final = 50
HTMX_SHA256: Final = "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130"  # htmx.org 4.0.1

HEADERS: Final = SAFE_HEADERS | {
    "content-security-policy": SAFE_HEADERS["content-security-policy"] + "form-action 'self'",
    "referrer-policy": "same-origin",
}
_BRIEF: Final = 160  # characters of a name in a list
_CLIPPED: Final = 36, 12  # characters of a name in a table cell: in total, the length of a UUID, and at its end
_STATIC: Final = ("style.css", "htmx.min.js", "review.js", "icon.svg")
_Handler: TypeAlias = Callable[[Site, Visit], Answer]
_Endpoint: TypeAlias = Callable[[Request], Awaitable[Response]]
_LISTS: Final[dict[str, _Handler]] = {
    "/sessions": lists.sessions,
    "/decisions": lists.decisions,
    "/charts": oversight.charts,
    "/report": oversight.report,
}
_PAGES: Final[dict[str, _Handler]] = {
    "/session": detail.session,
    "/decisions/{id}": detail.decision,
    "/rule": detail.rule,
    "/approvals": approving.approvals,
    "/approvals/{id}": approving.approval,
    "/policies": revisions.policies,
    "/policies/compare": revisions.compare,
    "/policies/{revision}": revisions.policy,
    "/tools": tools.tools,
    "/integrity": oversight.integrity,
    "/signoffs": oversight.signoffs,
    "/signoffs/{id}": oversight.signoff,
    "/sign": actions.sign_page,
}
_FORMS: Final[dict[str, _Handler]] = {
    "/decisions/{id}/review": actions.review_decision,
    "/decisions/{id}/reveal": actions.reveal,
    "/decisions/{id}/ask": actions.ask,
    "/asks/{id}": actions.grant,
    "/review": actions.review_found,
    "/session/review": actions.review_session,
    "/sign": actions.sign,
    "/signoffs/{id}/reopen": actions.reopen,
    "/signoffs/{id}/second": actions.second,
    "/overrides/{id}/end": approving.end_override,
    "/approvals/{id}": approving.decide,
    "/approvals/{id}/show": approving.look,
    "/approvals/{id}/revoke": approving.revoke,
    "/policies/impact": revisions.impact,
    "/filters": actions.save_filter,
    "/samples": actions.sample,
    "/export": actions.export,
    "/integrity": actions.check,
}


def build_site(
    site: Site, authenticator: Authenticator, *, hosts: frozenset[str] | None = None, base: str = ""
) -> ASGIApp:
    """The ASGI application, to be served, or mounted in another one at the path `base`, without a trailing slash.

    `hosts` are the accepted values of `Host`; None if the outer application checks it.
    """
    web = _Web(site, authenticator, hosts, base)
    routes = [Route("/", web.home, methods=["GET"])]
    routes += [Route(f"/static/{name}", web.file(name), methods=["GET"]) for name in _STATIC]
    for path, does in _LISTS.items():
        routes += [Route(f"{path}.{form}", web.page(does, form), methods=["GET"]) for form in ("json", "csv", "jsonl")]
    routes += [Route(f"{path}.json", web.page(does, "json"), methods=["GET"]) for path, does in _PAGES.items()]
    routes += [Route(path, web.page(does), methods=["GET"]) for path, does in {**_LISTS, **_PAGES}.items()]
    routes += [Route(path, web.page(does, posted=True), methods=["POST"]) for path, does in _FORMS.items()]
    if isinstance(authenticator, SignedIn):
        routes.append(Route("/enter", web.enter(authenticator), methods=["POST"]))
        routes.append(Route("/leave", web.leave(authenticator), methods=["POST"]))
    return Starlette(routes=routes, exception_handlers={404: web.missing, 405: web.missing})


class _Web:
    def __init__(self, site: Site, authenticator: Authenticator, hosts: frozenset[str] | None, base: str) -> None:
        self._site = site
        self._authenticator = authenticator
        self._hosts = hosts
        self._base = base
        self._forms = Forms()
        self._templates = Environment(
            loader=PackageLoader("pipeline.review"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.globals |= {
            "link": self.link,
            "toggled": lists.toggled,
            "exactly": exactly,
            "WIDTH": oversight.WIDTH,
            "HEIGHT": oversight.HEIGHT,
            "dispositions": [disposition.value for disposition in Disposition],
        }
        self._templates.filters |= {
            "seen": _seen,
            "brief": _brief,
            "clipped": _clipped,
            "lines": lambda text: "\n".join(map(visible, text.splitlines())),
            "code": lambda line: "\t".join(map(visible, line.split("\t"))),
        }

    def link(self, path: str, **params: Any) -> str:
        """A URL on this site; parameters that are None are left out."""
        query = urlencode({name: value for name, value in params.items() if value is not None}, quote_via=quote)
        return f"{self._base}{quote(path)}{'?' if query else ''}{query}"

    # Endpoints

    async def home(self, request: Request) -> Response:
        """The start page: turns the token in the URL into a cookie, then redirects to the sessions."""
        try:
            self._check_host(request)
        except Refused as refused:
            return self._refusal(refused, None, "html")
        answer = self._to_sessions()
        keeper = self._authenticator
        if isinstance(keeper, Named) and keeper.opens(request.query_params.get("t", "")):
            answer.set_cookie(keeper.cookie, keeper.token, httponly=True, samesite="strict", path=self._base or "/")
        return _secured(answer)

    def enter(self, keeper: SignedIn) -> _Endpoint:
        """Signing in: turns a key into a cookie, then redirects to the sessions."""

        async def enters(request: Request) -> Response:
            cookie = await keeper.enter((await _fields(request)).get("key", ""), _peer(request))
            answer = self._to_sessions()
            # The Origin of the form shows whether a proxy in front uses TLS.
            secure = urlsplit(request.headers.get("origin", "")).scheme == "https"
            path = self._base or "/"
            answer.set_cookie(keeper.cookie, cookie, httponly=True, samesite="strict", path=path, secure=secure)
            return answer

        return self._door(enters)

    def leave(self, keeper: SignedIn) -> _Endpoint:
        """Signing out."""

        async def leaves(request: Request) -> Response:
            await _fields(request)
            keeper.leave(_cookies(request.headers.get("cookie", "")))
            answer = self._to_sessions()
            answer.delete_cookie(keeper.cookie, path=self._base or "/", httponly=True, samesite="strict")
            return answer

        return self._door(leaves)

    def _door(self, does: _Endpoint) -> _Endpoint:
        async def answer(request: Request) -> Response:
            try:
                self._check_host(request)
                return _secured(await does(request))
            except ClientDisconnect:
                return Response(status_code=400)
            except Refused as refused:
                return self._refusal(refused, None, "html")

        return answer

    def _to_sessions(self) -> Response:
        return Response(status_code=303, headers={"location": self.link("/sessions", q=lists.NEEDS)})

    def file(self, name: str) -> _Endpoint:
        """A file of this package."""
        content = importlib.resources.files("pipeline").joinpath("review", "static", name).read_bytes()
        mark = f'"{hashlib.sha256(content).hexdigest()[:16]}"'

        async def answer(_request: Request) -> Response:
            return _secured(Response(content, headers={"content-type": TYPES[Path(name).suffix], "etag": mark}))

        return answer

    def page(self, does: _Handler, form: str = "html", *, posted: bool = False) -> _Endpoint:
        """A page in one of its forms, or the action of a form that was posted."""

        async def answer(request: Request) -> Response:
            return await self._answered(request, does, form, posted=posted)

        return answer

    async def missing(self, _request: Request, _reason: Exception) -> Response:
        """The answer to an unknown URL."""
        return self._refusal(Refused(404, "review.unknown", "There is no such page."), None, "html")

    async def _answered(self, request: Request, does: _Handler, form: str, *, posted: bool) -> Response:
        person: Person | None = None
        try:
            self._check_host(request)
            person = await self._person(request)
            fields = await _fields(request) if posted else {}
            if posted and not self._forms.holds(person, fields.get("mark", "")):
                raise Refused(403, "review.form", "This form is outdated or from another site. Reload the page.")
            params = dict(request.query_params) | ({"as": form} if form != "html" else {})
            visit = Visit(person, params, dict(request.path_params), fields)
            return await run_in_threadpool(self._do, does, visit, form)
        except ClientDisconnect:
            return Response(status_code=400)
        except Refused as refused:
            return await run_in_threadpool(self._refusal, refused, person, form)
        except (AuditError, ApprovalError) as error:
            about = f"{error.message}: {error.path}" if error.path else error.message
            message = " ".join(f"{_capitalised(sentence)}." for sentence in (about, error.hint) if sentence)
            refusal = Refused(422 if isinstance(error, AuditError) else 409, error.code, message)
        except StoreError as error:
            message = f"{_capitalised(error.message)}. Nothing was changed; try again shortly."
            refusal = Refused(503, error.code, message)
        except PipelineError as error:
            refusal = Refused(422, error.code, f"{_capitalised(error.message)}.")
        except Exception as error:  # noqa: BLE001  (a page that breaks says so, and nothing about why)
            _log.exception("a page of the review site failed: %s", type(error).__name__)
            refusal = Refused(500, "review.error", "This page failed; see the server's log.")
        return await run_in_threadpool(self._refusal, refusal, person, form, request.query_params.get("q"))

    def _do(self, does: _Handler, visit: Visit, form: str) -> Response:
        self._site.catalog.catch_up()
        match answer := does(self._site, visit):
            case Redirect(path, params):
                return _secured(Response(status_code=303, headers={"location": self.link(path, **params)}))
            case Download(content, name, type):
                disposition = f'attachment; filename="{name}"'
                return _secured(Response(content, headers={"content-type": type, "content-disposition": disposition}))
            case Page(data=data, status=status, rows=rows):
                match form:
                    case "json":
                        return _secured(Response(dumps(data), status, {"content-type": "application/json"}))
                    case "csv":
                        body, kind = _csv(rows), "text/csv; charset=utf-8"
                    case "jsonl":
                        body, kind = b"".join(dumps(row) + b"\n" for row in rows), "application/jsonl"
                    case _:
                        return self._html(answer, visit.person)
                return _secured(Response(body, headers={"content-type": kind}))

    # Answers

    def _html(self, page: Page, person: Person | None) -> Response:
        frame = {
            "person": person,
            "mark": "" if person is None else self._forms.mark(person),
            "may": {role.value: person is not None and person.role.covers(role) for role in Role},
            "checked": self._site.verified,
            "overridden": 0 if person is None else len(self._site.overrides.holding()),
            "template": page.template,
            "needing": 0 if person is None else self._site.catalog.needing(),
            "enters": isinstance(self._authenticator, SignedIn),
        }
        text = self._templates.get_template(page.template).render(**frame, d=page.data)
        return _secured(Response(text, page.status, {"content-type": "text/html; charset=utf-8"}))

    def _refusal(self, refused: Refused, person: Person | None, form: str, q: str | None = None) -> Response:
        fields = {"code": refused.code, "message": refused.message}
        if form != "html":
            return _secured(Response(dumps({"error": fields}), refused.status, {"content-type": "application/json"}))
        # An invalid filter is shown in its input field, where it can be corrected.
        wrong = {"q": q} if person is not None and q and refused.code == "audit.query" else {}
        return self._html(Page("error.html", fields | wrong, refused.status), person)

    # Access

    def _check_host(self, request: Request) -> None:
        host = request.headers.getlist("host")
        if self._hosts is not None and (len(host) != 1 or host[0].lower() not in self._hosts):
            raise Refused(421, "review.host", "This host name is not served here.")

    async def _person(self, request: Request) -> Person:
        headers = {name: values[0] for name in request.headers if len(values := request.headers.getlist(name)) == 1}
        cookies = _cookies(headers.get("cookie", ""))
        person = await self._authenticator.person(headers, cookies, _peer(request))
        if person is None:
            raise Refused(401, "review.nobody", "Open the URL that `cmf review` printed, or sign in at the proxy.")
        return person


async def _fields(request: Request) -> Mapping[str, str]:
    """The fields of a form from this site; Refused if it is from elsewhere or too large."""
    host = request.headers.get("host", "")
    for origin in request.headers.getlist("origin"):
        if urlsplit(origin).netloc.lower() != host.lower():
            raise Refused(403, "review.origin", "This form is not from this site.")
    if any(site not in ("same-origin", "none") for site in request.headers.getlist("sec-fetch-site")):
        raise Refused(403, "review.origin", "This form is not from this site.")
    if (body := await limited_body(request, MAX_FORM)) is None:
        raise Refused(413, "review.too-long", f"The form has more than {MAX_FORM} bytes.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict"))
    except ValueError:
        raise Refused(422, "review.form", "This form cannot be read.") from None


def _peer(request: Request) -> str | None:
    return None if request.client is None else request.client.host


def _cookies(header: str) -> dict[str, str]:
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(header).items()}
    except CookieError:
        return {}


def _secured(answer: Response) -> Response:
    answer.headers.update(HEADERS)
    return answer


def _capitalised(shown: str) -> str:
    """The text with its first letter in upper case."""
    return shown[:1].upper() + shown[1:]


def _seen(text: object) -> str:
    """A text made safe to show on a line: invisible and bidirectional control characters are spelled out."""
    return visible(str(text))


def _brief(text: object) -> str:
    """As `_seen`, cut to fit a list; the page behind it has the whole text."""
    shown = str(text) or "(empty)"
    return _seen(shown) if len(shown) <= _BRIEF else f"{_seen(shown[:_BRIEF])}… ({len(shown):,} characters)"


def _clipped(text: object) -> str:
    """As `_seen`, a long one without its middle: ids that start alike often end differently."""
    shown, (most, end) = str(text) or "(empty)", _CLIPPED
    return _seen(shown) if len(shown) <= most else f"{_seen(shown[: most - end - 1])}…{_seen(shown[-end:])}"


def _csv(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Rows as CSV. A value that a spreadsheet would take for a formula gets a leading apostrophe."""
    out, cells = io.StringIO(), ({name: _cell(value) for name, value in row.items()} for row in rows)
    if (first := next(cells, None)) is not None:
        writer = csv.DictWriter(out, list(first), extrasaction="ignore", lineterminator="\r\n")
        writer.writeheader()
        writer.writerows(chain([first], cells))
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else dumps(value).decode()
    return f"'{visible(text)}" if isinstance(value, str) and text[:1] in _FORMULAS else visible(text)


_FORMULAS: Final = frozenset("=+-@\t\r\uff1d\uff0b\uff0d\uff20")  # in full width too, as Japanese is typed
