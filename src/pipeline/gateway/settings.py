"""What `cmf.yaml` can say. How it is read, and what the environment changes in it: `config_file`. Spec: [GW-1] ff."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from cmf.security import SubjectExtension
from pipeline.decision import Mode

DialectName = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama"]
UpstreamDialect = Literal["openai_chat", "openai_responses", "anthropic_messages", "gemini", "ollama", "openrouter"]
SCRIPTED: Final = "scripted"

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Section(BaseModel):
    """A part of the file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Listen(_Section):
    """Where clients reach the gateway."""

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8600


class Secret(_Section):
    """Where a secret is read from when the gateway starts; the secret itself never stands in the file."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("give `env` or `file`, one of them")
        return self

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host or https://host")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("only scheme, host, port and path: the key has a place of its own")
    if parts.path.rstrip("/").endswith(("/v1", "/v1beta", "/api")):
        raise ValueError("leave the last part of the path out: each dialect brings its own")
    return url.rstrip("/")


class Upstream(_Section):
    """A provider, spoken to in its own dialect; or a `script` that plays one."""

    dialect: UpstreamDialect | None = None
    base_url: Annotated[str, AfterValidator(_origin)] | None = None
    key: Secret | None = None
    script: Path | None = None
    connect_seconds: Seconds = 10.0
    silent_seconds: Seconds = 120.0  # without a byte of the reply
    reply_seconds: Seconds = 900.0  # the whole reply

    @model_validator(mode="after")
    def _kind(self) -> Upstream:
        if self.script is not None:
            if (self.dialect, self.base_url, self.key) != (None, None, None):
                raise ValueError("a script has no dialect, base_url or key")
        elif self.dialect is None or self.base_url is None:
            raise ValueError("give `dialect` and `base_url`, or a `script`")
        return self


class Limits(_Section):
    """Bounds on what one client can cost."""

    body_bytes: Annotated[int, Field(ge=1_024, le=32 * 1024 * 1024)] = 16 * 1024 * 1024
    body_seconds: Seconds = 30.0
    reply_bytes: Annotated[int, Field(ge=1_024, le=64 * 1024 * 1024)] = 32 * 1024 * 1024
    concurrent: Annotated[int, Field(ge=1, le=65_536)] = 256  # requests in work at once; more are told to wait


class Route(_Section):
    """Which requests go to which upstream, and under which policies they are judged. The first that fits is taken."""

    name: Name
    upstream: Name
    dialects: tuple[DialectName, ...] | None = None
    models: tuple[str, ...] = ("*",)
    model: str | None = None
    policies: tuple[Path, ...] | None = None
    mode: Mode | None = None
    stream: Literal["buffer"] = "buffer"

    def fits(self, dialect: str, model: str) -> bool:
        """Whether a request in `dialect` for `model` takes this route."""
        if self.dialects is not None and dialect not in self.dialects:
            return False
        return any(fnmatchcase(model, pattern) for pattern in self.models)


class Key(_Section):
    """A key that clients present, as its hash, and who they are with it."""

    name: Name
    hash: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    subject: Annotated[dict[str, Any], AfterValidator(lambda said: SubjectExtension.model_validate(said) and said)]

    @model_validator(mode="after")
    def _named(self) -> Key:
        if not self.subject.get("id"):
            raise ValueError("the subject needs an `id`")
        return self


class SessionSettings(_Section):
    """Where sessions are kept, and what becomes of requests without one."""

    store: str | None = None  # by default in the gateway's own store
    choice: Literal["by_id", "by_prefix", "required"] = "by_id"


class Settings(_Section):
    """The whole of `cmf.yaml`. Paths are relative to the file."""

    listen: Listen = Listen()
    upstreams: dict[Name, Upstream]
    routes: Annotated[tuple[Route, ...], Field(min_length=1)]
    keys: tuple[Key, ...] = ()
    anonymous: bool = False
    policies: tuple[Path, ...] | None = None
    profiles: tuple[Path, ...] = ()
    mode: Mode = Mode.ENFORCE
    environment: str | None = None
    policy_seconds: Seconds = 1.0
    store: Path
    sessions: SessionSettings = SessionSettings()
    seal_key: Secret | None = None
    history: Literal["claimed", "trusted"] = "claimed"
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _whole(self) -> Settings:
        for route in self.routes:
            if route.upstream not in self.upstreams:
                raise ValueError(f"route {route.name} names no upstream there is")
            if route.mode is Mode.OFF or self.mode is Mode.OFF:
                raise ValueError("no route goes without judgement: mode is enforce or observe")
        for what, names in (
            ("route", [route.name for route in self.routes]),
            ("key", [key.name for key in self.keys]),
            ("hash", [key.hash for key in self.keys]),
        ):
            if len(set(names)) != len(names):
                raise ValueError(f"a {what} is there twice")
        if not self.keys and not self.anonymous:
            raise ValueError("nobody can ask: give `keys` (cmf config key), or say `anonymous: true`")
        return self


__all__ = [
    "SCRIPTED",
    "DialectName",
    "Key",
    "Limits",
    "Listen",
    "Route",
    "Secret",
    "SessionSettings",
    "Settings",
    "Upstream",
    "UpstreamDialect",
]
