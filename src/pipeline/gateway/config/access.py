"""The settings of who may ask: keys, tokens of issuers, a proxy in front. Spec: [GW-20], [GW-140] ff."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from cmf.message.security import SubjectExtension
from pipeline.gateway.config.settings_base import Name, Seconds, Secret, Section, over_tls

# Signatures with a public key alone: whoever can check a token cannot make one, and `none` is no signature.
Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]  # fmt: skip
ClaimPath = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...], Field(min_length=1, max_length=8)
]
KEY_HEADERS: Final = ("authorization", "x-api-key", "x-goog-api-key")
PROXY_SECRET_HEADER: Final = "x-cmf-proxy-secret"
KeyHash = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
HeaderName = Annotated[str, Field(pattern=r"^x-[a-z0-9-]{1,60}$")]


class Key(Section):
    """A key that clients present, as its hash, and who they are with it."""

    name: Name
    """A name for the key."""
    hash: KeyHash
    """The key's SHA-256, as `cmf config key` prints it."""
    subject: Annotated[
        dict[str, Any], AfterValidator(lambda fields: SubjectExtension.model_validate(fields) and fields)
    ]
    """Who asks with this key: `id`, and `roles`, `permissions`, `teams`, `claims` as policy reads them."""

    @model_validator(mode="after")
    def _named(self) -> Key:
        if not self.subject.get("id"):
            raise ValueError("the subject needs an `id`")
        return self


class KeySource(Section):
    """Where an issuer's public keys (a JWK set) are: in a file, or at the one URL that is ever fetched for it."""

    file: Path | None = None
    """A file with the JWK set."""
    url: Annotated[str, AfterValidator(over_tls)] | None = None
    """The URL of the JWK set; https, or http on this machine."""
    refresh_seconds: Seconds = 300.0
    """After how long the keys are read again."""
    stale_seconds: Seconds = 3_600.0
    """How long they are used if that fails."""
    again_seconds: Seconds = 10.0
    """The least time between two reads for a key that is not among them."""

    @model_validator(mode="after")
    def _one(self) -> KeySource:
        if (self.file is None) == (self.url is None):
            raise ValueError("give `file` or `url`, one of them")
        if self.stale_seconds < self.refresh_seconds:
            raise ValueError("`stale_seconds` is not less than `refresh_seconds`")
        return self


class Claims(Section):
    """Which claims of a token say who the subject is; a claim within others is named by a list of steps."""

    id: ClaimPath = ("sub",)
    """The claim with the subject's id."""
    roles: ClaimPath | None = None
    """The claim with the roles."""
    permissions: ClaimPath | None = None
    """The claim with the permissions."""
    teams: ClaimPath | None = None
    """The claim with the teams."""
    kept: tuple[str, ...] = ()
    """Claims that policy sees as they are."""

    @field_validator(
        "id", "roles", "permissions", "teams", mode="before", json_schema_input_type=str | list[str] | None
    )
    @classmethod
    def _steps(cls, path: Any) -> Any:
        return (path,) if isinstance(path, str) else path


class Issuer(Section):
    """Whose tokens (JWT) are taken, for which audience, and what is read of them."""

    name: Name
    """A name for the issuer."""
    issuer: Annotated[str, Field(min_length=1, max_length=512)]
    """The value that `iss` must have."""
    audience: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)]
    """The values of which `aud` must have one."""
    algorithms: Annotated[tuple[Algorithm, ...], Field(min_length=1)]
    """The signature algorithms that are accepted."""
    keys: KeySource
    """Where the issuer's public keys are."""
    leeway_seconds: Annotated[float, Field(ge=0, le=300)] = 30.0
    """How far the two clocks may differ."""
    claims: Claims = Claims()
    """Which claims say who the subject is."""
    prefix: str | None = None
    """What the ids of its subjects begin with; by default the issuer's name and a colon, so that no two issuers share a
    subject."""

    @property
    def subject_prefix(self) -> str:
        """What the ids of this issuer's subjects begin with."""
        return f"{self.name}:" if self.prefix is None else self.prefix


class Proxy(Section):
    """A proxy in front that has authenticated people: from these addresses alone, these headers say who asks."""

    peers: Annotated[tuple[IPv4Network | IPv6Network, ...], Field(min_length=1)]
    """The addresses, or networks, from which its headers are believed."""
    secret: Secret | None = None
    """A secret that it also sends, in `x-cmf-proxy-secret`."""
    id: HeaderName
    """The header with the subject's id."""
    roles: HeaderName | None = None
    """The header with the roles, separated by commas."""
    permissions: HeaderName | None = None
    """The header with the permissions."""
    teams: HeaderName | None = None
    """The header with the teams."""
    prefix: str = "proxy:"
    """What the ids of its subjects begin with."""

    @property
    def headers(self) -> tuple[str, ...]:
        """All headers that say who asks."""
        named = (self.id, self.roles, self.permissions, self.teams)
        return tuple(name for name in named if name is not None)

    @model_validator(mode="after")
    def _apart(self) -> Proxy:
        taken = (*KEY_HEADERS, PROXY_SECRET_HEADER, "x-cmf-session-id", "x-cmf-approval-id")
        if len({*self.headers, *taken}) != len(self.headers) + len(taken):
            raise ValueError("each header says one thing, and none of the gateway's own")
        return self
