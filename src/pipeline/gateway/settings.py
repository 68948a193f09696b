"""The settings in `cmf.yaml`; `config_file` reads them and applies the environment. Spec: [GW-1] ff."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from pipeline.claims import HistoryTrust
from pipeline.decision import Mode
from pipeline.gateway.access import Issuer, Key, KeyHash, Proxy
from pipeline.gateway.mcp_settings import Endpoint, McpServer
from pipeline.gateway.routing import Chain, Destinations, HealthSettings, check_routing
from pipeline.gateway.sections import Name, Seconds, Secret, Section, address
from pipeline.kept_content import ContentMode
from pipeline.review.access import Role

DialectName = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama"]
UpstreamDialect = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama", "openrouter"]


class Listen(Section):
    """Where clients reach the gateway."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8600


def _origin(url: str) -> str:
    parts = address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host or https://host")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("write scheme, host, port and path only; set `key` for the key")
    if parts.path.rstrip("/").endswith(("/v1", "/v1beta", "/api")):
        raise ValueError("leave out the end of the path: the dialect adds it")
    return url.rstrip("/")


class Upstream(Section):
    """A provider, addressed in its own dialect; or a `script` that plays one."""

    dialect: UpstreamDialect | None = None
    base_url: Annotated[str, AfterValidator(_origin)] | None = None
    key: Secret | None = None
    script: Path | None = None
    connect_seconds: Seconds = 10.0
    silent_seconds: Seconds = 120.0  # without a byte of the reply
    reply_seconds: Seconds = 900.0  # the whole reply
    health: HealthSettings = HealthSettings()

    @model_validator(mode="after")
    def _kind(self) -> Upstream:
        if self.script is not None:
            if (self.dialect, self.base_url, self.key) != (None, None, None):
                raise ValueError("a script has no dialect, base_url or key")
        elif self.dialect is None or self.base_url is None:
            raise ValueError("give `dialect` and `base_url`, or a `script`")
        return self


class Limits(Section):
    """Bounds on what one client can cost."""

    body_bytes: Annotated[int, Field(ge=1_024, le=32 * 1024 * 1024)] = 16 * 1024 * 1024
    body_seconds: Seconds = 30.0
    reply_bytes: Annotated[int, Field(ge=1_024, le=64 * 1024 * 1024)] = 32 * 1024 * 1024
    concurrent: Annotated[int, Field(ge=1, le=65_536)] = 256  # requests in progress at once; more are told to wait
    connections: Annotated[int, Field(ge=1, le=65_536)] = 1_024  # open at once, idle ones too
    head_seconds: Seconds = 15.0  # until a request's headers are complete
    stalled_seconds: Seconds = 60.0  # without a client reading any of its answer


class RouteLimits(Section):
    """Limits of one route, in each process; those not given are set by `limits` alone."""

    body_bytes: Annotated[int, Field(ge=1_024, le=32 * 1024 * 1024)] | None = None
    concurrent: Annotated[int, Field(ge=1, le=65_536)] | None = None
    per_minute: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # requests of one subject
    burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None  # of these, at once; by default all of them


class Route(Destinations):
    """Which requests go to which upstream, and which policies judge them. The first route that fits is used."""

    name: Name
    dialects: tuple[DialectName, ...] | None = None
    models: tuple[str, ...] = ("*",)
    policies: tuple[Path, ...] | None = None
    mode: Mode | None = None
    limits: RouteLimits = RouteLimits()

    def fits(self, dialect: str, model: str) -> bool:
        """Whether a request in `dialect` for `model` takes this route."""
        if self.dialects is not None and dialect not in self.dialects:
            return False
        return any(fnmatchcase(model, pattern) for pattern in self.models)


CHECK_ROUTE: Final = "check"
"""The name of the checks' route in records, metrics and logs."""


class EnvoyCheck(Section):
    """Checks for Envoy's `ext_authz`, with `path_prefix: /ext_authz`."""


class LitellmCheck(Section):
    """Checks for LiteLLM's `generic_guardrail_api`, of what it extracts from requests and answers."""

    edit_answers: bool = False  # whether LiteLLM gets changed answers; not if it streams them unchanged


class Check(Section):
    """`POST /v1/check`: the verdict on a body, which is sent nowhere."""

    policies: tuple[Path, ...] | None = None
    mode: Mode | None = None
    limits: RouteLimits = RouteLimits()
    answers: HistoryTrust = "claimed"  # trusted: callers are believed about what a model or tool answered
    envoy: EnvoyCheck | None = None
    litellm: LitellmCheck | None = None


class PolicyKey(Section):
    """The key that must have signed all policies but the shipped ones, at the start and at each reload."""

    file: Path  # the public key or certificate in PEM; for HS…, the secret
    algorithm: Literal[
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "HS256", "HS384", "HS512"
    ] = "RS256"
    scope: str = ""


class SessionSettings(Section):
    """Where sessions are kept, and how requests without one are treated."""

    store: str | None = None  # by default in the gateway's own store
    choice: Literal["by_id", "by_prefix", "required"] = "by_id"


class AdminKey(Section):
    """An operator's key; clients' keys are never one."""

    name: Name
    hash: KeyHash
    subject: Annotated[str, Field(min_length=1, max_length=256)] | None = None  # the name on record; by default `name`


class Admin(Section):
    """A separate port for operators: metrics, probes and, with keys, admin actions."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)]
    keys: tuple[AdminKey, ...] = ()


class Review(Section):
    """The review site, at `/review` on the port of `admin`, for subjects with one of these roles."""

    roles: Annotated[dict[str, Role], Field(min_length=1)]  # what a subject with each role may do there
    policies: tuple[Path, ...] = ()  # candidate policies, to see what they would have decided
    public_keys: tuple[Path, ...] = ()  # of those who may have signed the log


class Telemetry(Section):
    """Where spans and metrics go (OpenTelemetry, extra `otel`), besides the environment's `OTEL_…` variables."""

    endpoint: Endpoint | None = None  # OTLP over HTTP, http://host:4318; by default from the environment
    genai_names: bool = False  # use the names of the draft conventions for guardrails too


class Audit(Section):
    """What is put on record, where its heads go, and how requests that cannot be recorded are treated."""

    key_file: Path | None = None  # signs the heads; by default beside the store, if that is a file
    heads_file: Path | None = None  # where heads are exported to; best where the store's writer may not write
    heads_seconds: Seconds = 1.0  # at least so long between two exports
    content: ContentMode = "none"  # what is kept of the content, apart from its record
    content_days: Annotated[float, Field(gt=0, le=36_500)] | None = None  # how long, at most
    on_record_failure: Literal["refuse", "release"] = "refuse"
    tally_seconds: Seconds = 60.0  # how often the number of requests is recorded


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
    upstreams: dict[Name, Upstream] = Field(default_factory=dict)
    aliases: dict[Name, Chain] = Field(default_factory=dict)  # names for targets
    routes: tuple[Route, ...] = ()
    mcp: dict[Name, McpServer] = Field(default_factory=dict)  # servers of MCP, at /mcp/<name>
    check: Check | None = None  # by default, /v1/check is not served
    keys: tuple[Key, ...] = ()
    issuers: tuple[Issuer, ...] = ()
    proxy: Proxy | None = None
    anonymous: bool = False
    policies: tuple[Path, ...] | None = None
    policy_key: PolicyKey | None = None
    profiles: tuple[Path, ...] = ()
    mode: Mode = Mode.ENFORCE
    environment: str | None = None
    policy_seconds: Seconds = 1.0
    store: Annotated[str | Path, BeforeValidator(_place, json_schema_input_type=str)]
    audit: Audit = Audit()
    sessions: SessionSettings = SessionSettings()
    seal_key: Secret | None = None
    history: HistoryTrust = "claimed"
    limits: Limits = Limits()
    admin: Admin | None = None
    review: Review | None = None
    workers: Annotated[int, Field(ge=1, le=64)] = 1  # serving processes
    grace_seconds: Seconds = 20.0  # for requests in progress, once it is stopped
    watch: bool = True  # read policies again when their files change
    telemetry: Telemetry | None = None

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        check_routing({route.name: route for route in self.routes}, self.aliases, self.upstreams)
        judged = (self, *self.routes, *([self.check] if self.check is not None else ()))
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
        for what, names in (
            ("route", [route.name for route in self.routes]),
            ("key", [key.name for key in self.keys]),
            (
                "hash",
                [*(key.hash for key in self.keys), *(key.hash for key in (self.admin.keys if self.admin else ()))],
            ),
            ("issuer", [one.name for one in self.issuers]),
            ("issuer", [one.issuer for one in self.issuers]),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"a {what} is given twice")
        if not (self.keys or self.issuers or self.proxy or self.anonymous):
            raise ValueError(
                "nobody could send requests: give `keys` (cmf config key), `issuers`, or `anonymous: true`"
            )
        if self.review is not None and self.admin is None:
            raise ValueError("the review site is served on the port of `admin`: give one")
        if self.review is not None and not (self.keys or self.issuers or self.proxy):
            raise ValueError("nobody could enter the review site: give `keys`, `issuers` or `proxy`")
        if isinstance(self.store, str) and self.audit.key_file is None:
            raise ValueError("a store on a server needs `audit.key_file`: the key that signs its records")
        return self


__all__ = [
    "CHECK_ROUTE",
    "Admin",
    "AdminKey",
    "Audit",
    "Check",
    "DialectName",
    "EnvoyCheck",
    "Limits",
    "Listen",
    "LitellmCheck",
    "Review",
    "Route",
    "RouteLimits",
    "SessionSettings",
    "Settings",
    "Telemetry",
    "Upstream",
    "UpstreamDialect",
]
