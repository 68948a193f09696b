"""The settings in `cmf.yaml`, and their JSON Schema; `config_file` reads them and applies the environment.

Spec: [GW-1] ff., [GW-9].
"""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from cmf.message.model_ids import model_matches
from pipeline.decisions.decision import Mode
from pipeline.gateway.config.access import Issuer, Key, KeyHash, Proxy
from pipeline.gateway.config.routing import Chain, Destinations, HealthSettings, check_routing
from pipeline.gateway.config.settings_base import (
    Host,
    HostName,
    Judged,
    Name,
    PageOrigin,
    Seconds,
    Secret,
    Section,
    SettingError,
    address,
    is_loopback,
    origin,
    over_tls,
    repeated_end,
)
from pipeline.provenance.claims import HistoryTrust
from pipeline.provenance.inference import InferenceMode
from pipeline.review.access import Role
from pipeline.run.recording import ContentMode
from pipeline.run.tool_schemas import UnreadableCalls

WaitSeconds = Annotated[float, Field(ge=0, le=3_600)]


class RouteApprovals(Section):
    """What a route does where a person has to approve; what is not given is set by `approvals`."""

    wait_seconds: WaitSeconds | None = None
    """How long a request or reply of this route waits for a person's answer; by default as in `approvals`."""


def _receiver(url: str) -> str:
    if "/" not in url.partition("://")[2]:
        raise ValueError("write https://host/path")
    return over_tls(url, "messages go out over https; over http only to this machine")


class Webhook(Section):
    """Who is told at once what waits for a person. The message holds no content."""

    url: Annotated[str, AfterValidator(_receiver)] | Secret
    """Where messages are posted to: https, or http on this machine; as `{env: …}` where the URL itself is a secret, as
    Slack's are."""
    secret: Secret
    """What messages are signed with, and answers have to be, as Standard Webhooks are: HMAC-SHA-256 of id, time and
    body."""
    form: Literal["cmf", "slack"] = "cmf"
    """`slack`: `{text, blocks}`, as Slack and what is compatible with it take them."""
    answers: bool = False
    """Whether answers signed with the secret are taken, at `POST /approvals/answer` on the clients' port."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that are not public and in which the receiver may be; without them only public addresses are reached."""
    tries: Annotated[int, Field(ge=1, le=10)] = 5
    """How often a message is sent until the receiver takes it."""
    retry_seconds: Seconds = 1.0
    """The time before the second try; it doubles with each."""
    timeout_seconds: Seconds = 10.0
    """How long one try may take."""


class ApprovalSettings(Section):
    """What the gateway does where a person has to approve."""

    wait_seconds: WaitSeconds = 0.0
    """How long a request or reply waits for a person's answer before it is refused; 0 refuses it at once."""
    waiting: Annotated[int, Field(ge=1, le=65_536)] = 64
    """How many may wait at once in each process; more are refused at once. Each counts as a request in progress."""
    ping_seconds: Seconds = 15.0
    """After how long without an answer a stream that waits is kept alive with a comment or ping, where its dialect has
    one."""
    site: Annotated[str, AfterValidator(origin)] | None = None
    """Where people reach the review site, `https://host/review`, for the link in messages."""
    webhook: Webhook | None = None
    """Who is told at once what waits for a person."""


PATH: Final = "/mcp/"  # then the server's name
STDIO_KEYS: Final = ("args", "command", "stdio", "transport")  # keys of stdio servers in other products' settings


def endpoint(url: str) -> str:
    """The URL of a server, unchanged; ValueError says what is wrong with any other text."""
    parts = address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host/path or https://host/path")
    if parts.username is not None or parts.fragment:
        raise ValueError("a URL holds no key: give it separately")
    return url


Endpoint = Annotated[str, AfterValidator(endpoint)]


class McpServer(Judged):
    """A server over streamable HTTP, served at `/mcp/<its name>`."""

    url: Endpoint
    """The server's URL (streamable HTTP)."""
    key: Secret | None = None
    """Where the server's key is read from."""
    pins: Path | None = None
    """A file that keeps the tool definitions first seen; by default they are kept as long as the process."""
    origins: tuple[PageOrigin, ...] = ()
    """The origins of browser pages that may connect."""
    connect_seconds: Seconds = 10.0
    """How long a connection may take."""
    answer_seconds: Seconds = 300.0
    """How long an answer may take."""
    idle_seconds: Seconds = 3_600.0
    """How long a session may be idle before it ends."""
    sessions: Annotated[int, Field(ge=1, le=65_536)] = 1_024
    """Sessions at once."""
    subject_sessions: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Sessions of one subject at once."""


DialectName = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama"]
UpstreamDialect = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama", "openrouter"]


class Listen(Section):
    """Where clients reach the gateway."""

    host: Host = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for all."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8600
    """The port; 0 takes a free one."""
    hosts: tuple[HostName, ...] = ()
    """The host names under which clients without a key may reach it. A gateway that listens on this machine alone takes
    `localhost` and loopback addresses anyway, and no others: a page in a browser could come under any name."""
    origins: tuple[PageOrigin, ...] = ()
    """The origins of browser pages that may send requests without a key, as `http://localhost:3000`; others are
    refused, those of this machine too."""

    @property
    def names(self) -> frozenset[str] | None:
        """The host names of anonymous requests, besides loopback ones; None for any."""
        return frozenset(self.hosts) if self.hosts or is_loopback(self.host) else None


class Upstream(Section):
    """A provider, addressed in its own dialect; or a `script` that plays one."""

    dialect: UpstreamDialect | None = None
    """The wire format of the provider."""
    base_url: Annotated[str, AfterValidator(origin)] | None = None
    """Scheme, host, port and the beginning of the path; the dialect adds its own end, such as `/v1`."""
    key: Secret | None = None
    """Where the provider's API key is read from."""
    script: Path | None = None
    """A YAML file of replies that plays a provider, for trials and tests; in place of `dialect` and `base_url`."""
    connect_seconds: Seconds = 10.0
    """How long a connection may take."""
    silent_seconds: Seconds = 120.0
    """How long the upstream may send no byte of its reply."""
    reply_seconds: Seconds = 900.0
    """How long the whole reply may take."""
    health: HealthSettings = HealthSettings()
    """When the upstream counts as failing, and is skipped."""

    @model_validator(mode="after")
    def _kind(self) -> Upstream:
        if self.script is not None:
            if (self.dialect, self.base_url, self.key) != (None, None, None):
                raise ValueError("a script has no dialect, base_url or key")
        elif self.dialect is None or self.base_url is None:
            raise ValueError("give `dialect` and `base_url`, or a `script`")
        elif added := repeated_end(self.dialect, self.base_url):
            why = "leave out the end of the path: the dialect adds it"
            raise SettingError(why, "base_url", hint=f"write it without {added}")
        return self


class Limits(Section):
    """Bounds on what one client can cost."""

    body_bytes: Annotated[int, Field(ge=1_024, le=32 * 1024 * 1024)] = 16 * 1024 * 1024
    """The size of a request's body."""
    body_seconds: Seconds = 30.0
    """How long a request's body may take to arrive."""
    reply_bytes: Annotated[int, Field(ge=1_024, le=64 * 1024 * 1024)] = 32 * 1024 * 1024
    """The size of an upstream's reply."""
    concurrent: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Requests in progress at once; more are told to wait."""
    connections: Annotated[int, Field(ge=1, le=65_536)] = 1_024
    """Connections open at once, idle ones too."""
    head_seconds: Seconds = 15.0
    """How long a request's headers may take to arrive."""
    stalled_seconds: Seconds = 60.0
    """How long a client may read nothing of its answer."""


class RouteLimits(Section):
    """Limits of one route, in each process; those not given are set by `limits` alone."""

    body_bytes: Annotated[int, Field(ge=1_024, le=32 * 1024 * 1024)] | None = None
    """The size of a request's body."""
    concurrent: Annotated[int, Field(ge=1, le=65_536)] | None = None
    """Requests in progress at once; more are told to wait."""
    per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Requests of one subject in a minute."""
    burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many of these at once; by default all of them."""


_LONG_NAME: Final = 1_000  # characters: longer than any pattern, so only one with `*` matches


class Route(Judged, Destinations):
    """Which requests go to which upstream, and which policies judge them. The first route that fits is used."""

    name: Name
    """The name in records, metrics and logs."""
    dialects: tuple[DialectName, ...] | None = None
    """The clients' formats that it takes; by default all."""
    models: tuple[str, ...] = ("*",)
    """Patterns of the model names that it takes, with `*` and `?`."""
    limits: RouteLimits = RouteLimits()
    """Limits of this route."""
    approvals: RouteApprovals = RouteApprovals()
    """What happens on this route where a person has to approve."""

    def fits(self, dialect: str | None, model: str) -> bool:
        """Whether a request in `dialect`, or in any for None, for `model` takes this route."""
        if self.dialects is not None and dialect is not None and dialect not in self.dialects:
            return False
        return any(model_matches(model, pattern) for pattern in self.models)

    def takes_all(self, models: str) -> bool:
        """Whether one pattern of this route takes every model name that the pattern `models` takes.

        Two sample names decide: each `*` of `models` stands for nothing in the first, for a long text in the second.
        """
        if "[" in models:
            return models in self.models
        sample = models.replace("?", "\0")  # which `?` and `*` match, and no letter of a pattern
        names = [name for name in (sample.replace("*", ""), sample.replace("*", "\0" * _LONG_NAME)) if name]
        return any(all(model_matches(name, pattern) for name in names) for pattern in self.models)


def _check_used(routes: Sequence[Route]) -> None:
    """Check that each route takes some request that no earlier route takes. SettingError names one that does not."""
    for index, route in enumerate(routes):
        wider = [
            one
            for one in routes[:index]
            if one.dialects is None or (route.dialects is not None and set(route.dialects) <= set(one.dialects))
        ]
        before = [next((one for one in wider if one.takes_all(model)), None) for model in route.models]
        if None not in before and before:
            first = ", ".join(dict.fromkeys(one.name for one in before if one is not None))
            why = f"route {route.name} is never used: an earlier route takes all that it would take ({first})"
            raise SettingError(why, "routes", index, hint="put it before that one, or give it other `models`")


CHECK_ROUTE: Final = "check"
"""The name of the checks' route in records, metrics and logs."""


class EnvoyCheck(Section):
    """Checks for Envoy's `ext_authz`, with `path_prefix: /ext_authz`."""


class LitellmCheck(Section):
    """Checks for LiteLLM's `generic_guardrail_api`, of what it extracts from requests and answers."""

    edit_answers: bool = False
    """Whether LiteLLM gets changed answers; not if it streams them unchanged."""


class Check(Judged):
    """`POST /v1/check`: the verdict on a body, which is sent nowhere."""

    limits: RouteLimits = RouteLimits()
    """Limits of checks."""
    answers: HistoryTrust = "claimed"
    """`trusted`: callers are believed about what a model or tool answered."""
    envoy: EnvoyCheck | None = None
    """Also serve checks for Envoy."""
    litellm: LitellmCheck | None = None
    """Also serve checks for LiteLLM."""


class PolicyKey(Section):
    """The key that must have signed all policies but the shipped ones, at the start and at each reload."""

    file: Path
    """The public key or certificate in PEM; for HS…, the secret."""
    algorithm: Literal[
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256", "HS384", "HS512"
    ] = "RS256"
    """The algorithm of the signatures, as OPA names it."""
    scope: str = ""
    """The scope that the signatures must name."""


def _shared(place: str) -> str:
    """The place unchanged, unless it is meant as the address of a server but does not begin as one."""
    scheme, found, _ = place.partition("://")
    if (found and scheme not in _SESSION_SCHEMES) or (not found and _HOST_AND_PORT.search(place)):
        hint = "write redis://host, rediss://host, unix:///path, postgresql://host/database, or the path of a file"
        raise SettingError("this is no address of a store", hint=hint)
    return place


_SESSION_SCHEMES: Final = ("redis", "rediss", "unix", "postgresql", "sqlite")
_HOST_AND_PORT: Final = re.compile(r"(?:^|/)[^/:]+:\d+(?:/\d+)?$")  # settings' paths are absolute: /home/host:6379


class SessionSettings(Section):
    """Where sessions are kept, and how requests without one are treated."""

    store: Annotated[str, AfterValidator(_shared)] | None = None
    """Where sessions are kept; by default in the gateway's own store. `redis://…` or `postgresql://…` if several
    gateways share them."""
    choice: Literal["by_id", "by_prefix", "required"] = "by_id"
    """Requests that name no session: `by_id` gives them none, `by_prefix` the one of the conversation that they
    continue, `required` refuses them."""


class AdminKey(Section):
    """An operator's key; clients' keys are never one."""

    name: Name
    """A name for the key."""
    hash: KeyHash
    """The key's SHA-256, as `cmf config key` prints it."""
    subject: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """The name on record; by default `name`."""


class Admin(Section):
    """A separate port for operators: metrics, probes and, with keys, admin actions."""

    host: Host = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)]
    """The port; 0 takes a free one."""
    hosts: tuple[HostName, ...] = ()
    """The host names under which operators reach it, as Prometheus may, besides those in `listen.hosts`. IP addresses
    and `localhost` always count: a page in a browser could come under any other name."""
    keys: tuple[AdminKey, ...] = ()
    """The operators' keys; without any, no admin action is served."""


class Review(Section):
    """The review site, at `/review` on the port of `admin`, for subjects with one of these roles."""

    roles: Annotated[dict[str, Role], Field(min_length=1)]
    """What a subject with each role may do there."""
    policies: tuple[Path, ...] = ()
    """Candidate policies, to see what they would have decided."""
    public_keys: tuple[Path, ...] = ()
    """The public keys of those who may have signed the log."""


class Telemetry(Section):
    """Where spans and metrics go (OpenTelemetry, extra `otel`), besides the environment's `OTEL_…` variables."""

    endpoint: Endpoint | None = None
    """OTLP over HTTP, `http://host:4318`; by default from the environment."""
    genai_names: bool = False
    """Use the names of the draft conventions for guardrails too."""


class Audit(Section):
    """What is put on record, where its heads go, and how requests that cannot be recorded are treated."""

    key_file: Path | None = None
    """The private key that signs the log's heads; by default beside the store, if that is a file."""
    heads_file: Path | None = None
    """Where heads are exported to; best where the store's writer may not write."""
    heads_seconds: Seconds = 1.0
    """The least time between two exports."""
    content: ContentMode = "none"
    """What is kept of the content, apart from its record: nothing, with secrets masked, or whole."""
    content_days: Annotated[float, Field(gt=0, le=36_500)] | None = None
    """How long content is kept, at most."""
    on_record_failure: Literal["refuse", "release"] = "refuse"
    """What happens to a request that cannot be recorded."""
    tally_seconds: Seconds = 60.0
    """How often the number of requests is recorded."""


def _place(place: object) -> object:
    """A server's address unchanged, anything else as a path."""
    if not isinstance(place, str):
        return place
    if "://" not in place:
        return Path(place)
    if not place.startswith("postgresql://"):
        raise ValueError("write a path, or postgresql://host/database")
    if urlsplit(place).password is not None:
        raise ValueError("a store's address holds no password: use PGPASSFILE")
    return place


class Settings(Section):
    """The whole of `cmf.yaml`. Paths are relative to the file."""

    listen: Listen = Listen()
    """Where clients reach the gateway."""
    upstreams: dict[Name, Upstream] = Field(default_factory=dict)
    """The providers, by name."""
    aliases: dict[Name, Chain] = Field(default_factory=dict)
    """Names for lists of targets."""
    routes: tuple[Route, ...] = ()
    """Which requests go where; the first route that fits is used."""
    mcp: dict[Name, McpServer] = Field(default_factory=dict)
    """Servers of MCP by name, each at `/mcp/<name>`."""
    check: Check | None = None
    """`POST /v1/check`; by default it is not served."""
    keys: tuple[Key, ...] = ()
    """The clients' keys."""
    issuers: tuple[Issuer, ...] = ()
    """The issuers whose tokens (JWT) clients may present."""
    proxy: Proxy | None = None
    """A proxy in front that authenticates people."""
    anonymous: bool = False
    """Whether clients without a key are served."""
    policies: tuple[Path, ...] | None = None
    """Policy directories or bundles; by default the shipped policies, for which the word `shipped` stands."""
    policy_key: PolicyKey | None = None
    """The key that must have signed all policies but the shipped ones."""
    profiles: tuple[Path, ...] = ()
    """Files of profiles: what is known of tools, prompts and resources."""
    inference: InferenceMode = "enforce"
    """Whether tools without a profile are known by their definitions: `enforce`; `observe`: what rules find by it is a
    warning; `off`."""
    mode: Mode = Mode.ENFORCE
    """`enforce`, or `observe`: recorded, and nothing refused."""
    environment: str | None = None
    """The name that policy sees as `input.extensions.request.environment`."""
    policy_seconds: Seconds = 5.0
    """How long policies may take for one request; then it is refused."""
    store: Annotated[str | Path, BeforeValidator(_place, json_schema_input_type=str)]
    """Records and sessions: a SQLite file, or `postgresql://host/database`; by default `cmf.db` beside the settings."""
    audit: Audit = Audit()
    """What is put on record, and how."""
    sessions: SessionSettings = SessionSettings()
    """Where sessions are kept, and requests without one."""
    seal_key: Secret | None = None
    """The key that encrypts what waits for a person's approval."""
    approvals: ApprovalSettings = ApprovalSettings()
    """What happens where a person has to approve."""
    history: HistoryTrust = "claimed"
    """`trusted`: clients are believed about what models and tools answered before; `claimed`: only as far as it is on
    record."""
    unreadable_calls: UnreadableCalls = "refuse"
    """A tool call whose arguments are no strict JSON object: `refuse`, or `warn`: sent on, with a finding on record."""
    limits: Limits = Limits()
    """Bounds on what clients can cost."""
    admin: Admin | None = None
    """A separate port for operators."""
    review: Review | None = None
    """The review site on the admin port."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """The number of serving processes."""
    grace_seconds: Seconds = 20.0
    """How long requests in progress may go on once the gateway is stopped."""
    watch: bool = True
    """Whether policies are read again when their files change."""
    telemetry: Telemetry | None = None
    """Where OpenTelemetry spans and metrics go."""

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        _check_unique(self)
        check_routing({route.name: route for route in self.routes}, self.aliases, self.upstreams)
        _check_used(self.routes)
        judged = (self, *self.routes, *([self.check] if self.check is not None else ()))
        authenticates = self.keys or self.issuers or self.proxy
        if any(one.mode is Mode.OFF for one in judged):
            raise ValueError("every route is judged: mode is enforce or observe")
        if self.mcp and self.workers > 1:
            raise ValueError("MCP sessions live in one process: set `workers: 1` with `mcp`")
        if not self.routes and not self.mcp and self.check is None:
            raise ValueError("nothing would be served: give `routes`, `mcp` or `check`")
        if self.check is not None and any(route.name == CHECK_ROUTE for route in self.routes):
            raise ValueError(f"with `check`, no route is called {CHECK_ROUTE}: records could not tell them apart")
        if any(server.mode is Mode.OFF for server in self.mcp.values()):
            raise ValueError("every MCP server is judged: mode is enforce or observe")
        if self.admin is not None and self.admin.port == self.listen.port != 0:
            raise SettingError("`listen` has this port too", "admin", "port", hint="give it a port of its own")
        if not (authenticates or self.anonymous):
            why = "nobody could send requests: give `keys` (cmf config key), `issuers`, or `anonymous: true`"
            raise ValueError(why)
        if self.review is not None and self.admin is None:
            raise ValueError("the review site is served on the port of `admin`: give one")
        if self.review is not None and not authenticates:
            raise ValueError("nobody could enter the review site: give `keys`, `issuers` or `proxy`")
        if isinstance(self.store, str) and self.audit.key_file is None:
            raise ValueError("a store on a server needs `audit.key_file`: the key that signs its records")
        return self


def _check_unique(settings: Settings) -> None:
    """Check that names, hashes and issuers are unique. SettingError gives the place of the second one."""
    seen: set[tuple[str, str]] = set()
    admin_keys = settings.admin.keys if settings.admin else ()
    held: tuple[tuple[str, str, Sequence[Section], tuple[str, ...]], ...] = (
        ("route", "name", settings.routes, ("routes",)),
        ("key", "name", settings.keys, ("keys",)),
        ("hash", "hash", settings.keys, ("keys",)),
        ("hash", "hash", admin_keys, ("admin", "keys")),
        ("issuer", "name", settings.issuers, ("issuers",)),
        ("issuer", "issuer", settings.issuers, ("issuers",)),
    )
    for what, field, items, place in held:
        for index, item in enumerate(items):
            name = (f"{what}.{field}", getattr(item, field))
            if name in seen:
                hint = "make a key of its own: `cmf config key`" if what == "hash" else f"give each {what} its own name"
                raise SettingError(f"a {what} is given twice", *place, index, hint=hint)
            seen.add(name)


def settings_schema() -> dict[str, Any]:
    """The schema. Descriptions are the docstrings under the fields of `Settings` and its sections."""
    schema = Settings.model_json_schema()
    del schema["required"]  # the store has a default beside the file
    known = {one.__name__: one for one in _sections(Section)}
    for name, own in {**schema["$defs"], Settings.__name__: schema}.items():
        texts = _descriptions(known[name]) if name in known else {}
        for field, described in own.get("properties", {}).items():
            described["description"] = texts[field]
    return schema


def _sections(base: type[Section]) -> list[type[Section]]:
    return [one for each in base.__subclasses__() for one in (each, *_sections(each))]


def _descriptions(section: type[Section]) -> dict[str, str]:
    """The docstrings under the fields of a section and of those that it extends."""
    found: dict[str, str] = {}
    for cls in (one for one in reversed(section.__mro__) if issubclass(one, Section)):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for field, text in itertools.pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    found[name] = inspect.cleandoc(docstring).replace("\n", " ")
    return found
