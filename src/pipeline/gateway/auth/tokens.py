"""Tokens of issuers (JWT): checked under the issuer's own keys, and read as a subject. Spec: gateway.md [GW-140] ff.

The keys are read from one place, held for a bounded time, and read again for a new one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import aiohttp
from yarl import URL

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from cmf.message.security import SubjectExtension
from pipeline.decisions import base64url
from pipeline.decisions.errors import ConfigError, needs
from pipeline.gateway.auth.identity import is_name, is_token
from pipeline.gateway.config.access import Issuer, KeySource
from pipeline.gateway.http.refusal import Refusal, later
from pipeline.media.fetch import bounded_body, plain_session

with needs("gateway"):
    import jwt

MAX_SET_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2_048
FETCH_SECONDS: Final = 5.0

# What a key has to be for each algorithm: kty, and crv where there is one.
_KINDS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **{f"{family}{bits}": ("RSA", frozenset[str]()) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", frozenset({"P-256"})),
    "ES384": ("EC", frozenset({"P-384"})),
    "ES512": ("EC", frozenset({"P-521"})),
    "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
}


_Keys = Mapping[tuple[str, str], Mapping[str, Any]]  # by kid and kty


class KeysUnavailable(Exception):
    """There are no keys to check a token with: it is neither valid nor invalid."""


class KeySet:
    """The keys of one issuer."""

    def __init__(
        self,
        source: KeySource,
        *,
        fetch: Callable[[str], Awaitable[bytes]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._fetch = fetch or fetched
        self._clock = clock
        self._keys: _Keys | None = None  # as they were read, and when, by the clock
        self._read_at = 0.0
        self._tried_at = float("-inf")
        self._reading = asyncio.Lock()

    def check(self) -> None:
        """Nothing, if keys in a file can be used; ConfigError if not. What has a URL is fetched when it is needed."""
        if self._source.file is not None:
            try:
                _keys_in(_bytes_of(self._source))
            except (DecodeError, OSError, ValueError) as error:
                why = str(error) if type(error) is ValueError else "it cannot be read"
                where = str(self._source.file)
                hint = "write a JWK set of public keys"
                raise ConfigError(f"no key set: {why}", path=where, code="config.key-set", hint=hint) from None

    async def key(self, kid: str, algorithm: str) -> jwt.PyJWK | None:
        """The key of that id for that algorithm; None where the issuer has none.

        Raises:
            KeysUnavailable: the keys cannot be read, and none are held that still count.
        """
        kty, curves = _KINDS[algorithm]
        jwk = (await self._current(missing=None)).get((kid, kty))
        if jwk is None:
            jwk = (await self._current(missing=(kid, kty))).get((kid, kty))
        if jwk is None or jwk.get("alg", algorithm) != algorithm:
            return None
        if curves and jwk.get("crv") not in curves:
            return None
        try:
            return jwt.PyJWK(dict(jwk), algorithm)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError):
            return None

    async def _current(self, missing: tuple[str, str] | None) -> _Keys:
        if self._reading.locked() or self._is_due(missing):
            async with self._reading:
                if self._is_due(missing):  # whoever waited here has what the first one read
                    await self._read()
        if self._keys is None or self._clock() - self._read_at >= self._source.stale_seconds:
            raise KeysUnavailable
        return self._keys

    def _is_due(self, missing: tuple[str, str] | None) -> bool:
        now = self._clock()
        if now - self._tried_at < self._source.again_seconds:
            return False
        if self._keys is None or now - self._read_at >= self._source.refresh_seconds:
            return True
        return missing is not None and missing not in self._keys

    async def _read(self) -> None:
        self._tried_at = self._clock()
        try:
            url = self._source.url
            raw = await asyncio.to_thread(_bytes_of, self._source) if url is None else await self._fetch(url)
            self._keys, self._read_at = _keys_in(raw), self._clock()
        except (DecodeError, OSError, ValueError, aiohttp.ClientError, TimeoutError) as error:
            _log.warning("the keys of an issuer cannot be read: %s", type(error).__name__)


def _bytes_of(source: KeySource) -> bytes:
    assert source.file is not None  # noqa: S101 - one of both is there
    with source.file.open("rb") as stream:
        return stream.read(MAX_SET_BYTES + 1)


def _keys_in(raw: bytes) -> _Keys:
    """The public keys for signatures, by id and type; those without an id, or for something else, are passed over."""
    if len(raw) > MAX_SET_BYTES:
        raise ValueError("it is too large")
    body = loads(raw)
    listed = body.get("keys") if isinstance(body, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"`keys` is no list of at most {MAX_KEYS}")
    keys: dict[tuple[str, str], Mapping[str, Any]] = {}
    for key in listed:
        if not isinstance(key, dict) or not isinstance(key.get("kid"), str) or key.get("use", "sig") != "sig":
            continue
        if any(private in key for private in ("d", "p", "q", "k")):
            raise ValueError("it holds secret keys")
        name = (key["kid"], str(key.get("kty")))
        if name in keys:
            raise ValueError("two keys have one id")
        modulus = key.get("n")  # base64 has six bits a letter; a shorter RSA key can be broken
        if key.get("kty") != "RSA" or (isinstance(modulus, str) and len(modulus) * 6 >= MIN_RSA_BITS):
            keys[name] = key
    return keys


async def fetched(url: str) -> bytes:
    """The bytes at `url`, and nowhere else: no redirection, no proxy of the environment, bounded in size and time.

    Raises:
        ClientError, TimeoutError, OSError: it cannot be reached. ValueError: it gave something else.
    """
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "cmf-pipeline"}
    async with (
        plain_session(timeout=aiohttp.ClientTimeout(total=FETCH_SECONDS)) as session,
        session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as reply,
    ):
        if reply.status != 200:
            raise ValueError("it is not there")
        body = await bounded_body(reply, MAX_SET_BYTES)
        if body is None:
            raise ValueError("it is too large")
        return body


_log: Final = logging.getLogger("pipeline.gateway")
MAX_TOKEN: Final = 16 * 1024  # characters
MAX_NAMES: Final = 256  # roles, permissions or teams of one subject
MAX_KEPT_BYTES: Final = 4_096  # of the claims that policy sees, as JSON
_REQUIRED: Final = ["exp", "iss", "aud"]
_TIMES: Final = ("exp", "nbf", "iat")
_LATEST: Final = 253_402_300_799  # the last second of the year 9999
_UNREADABLE: Final = "its header or its claims cannot be read"
_WHY: Final[Mapping[type[Exception], str]] = {
    jwt.ImmatureSignatureError: "it holds from later on: look at `leeway_seconds`, and at both clocks",
    jwt.InvalidAudienceError: "it is for none of the issuer's `audience`",
    jwt.InvalidSignatureError: "it is signed by another key than it names",
    jwt.MissingRequiredClaimError: f"it lacks one of {', '.join(_REQUIRED)}",
}


class Tokens:
    """What issuers signed."""

    def __init__(self, issuers: Iterable[Issuer], *, key_sets: Mapping[str, KeySet] | None = None) -> None:
        self._issuers = {issuer.issuer: issuer for issuer in issuers}
        own = {issuer.name: KeySet(issuer.keys) for issuer in self._issuers.values()}
        self._key_sets = {**own, **(key_sets or {})}

    def check(self) -> None:
        """Nothing, if all keys in files can be used; ConfigError if not."""
        for keys in self._key_sets.values():
            keys.check()

    async def subject(self, token: str) -> SubjectExtension:
        """The subject of a token, once its issuer, audience and times are verified.

        Raises:
            Refusal: 401 `auth.token`, or `auth.expired`; 503 where the issuer's keys cannot be had.
        """
        header, claims = _parts(token)
        issuer = self._issuers.get(str(claims.get("iss")))
        algorithm, kid = header.get("alg"), header.get("kid")
        # The token's own header only chooses among what the settings allow.
        if issuer is None:
            raise _refused("its issuer is none of `issuers`")
        if algorithm not in issuer.algorithms:
            raise _refused("its algorithm is none of the issuer's `algorithms`")
        if not isinstance(kid, str) or "crit" in header:
            raise _refused("its header names no key (kid), or what has to be understood (crit)")
        # A time is a NumericDate (RFC 7519, 2). PyJWT takes texts and booleans as well.
        times = [claims[name] for name in _TIMES if name in claims]
        if not all(type(time) in (int, float) and 0 <= time <= _LATEST for time in times):
            raise _refused(f"a time in it ({', '.join(_TIMES)}) is no number of seconds")
        try:
            key = await self._key_sets[issuer.name].key(kid, algorithm)
        except KeysUnavailable:
            raise Refusal(503, "auth.keys", "Tokens cannot be checked just now.", headers=later()) from None
        if key is None:
            raise _refused("its issuer has no key of this name (kid) for its algorithm")
        _verify(token, key, algorithm, issuer)
        return _subject(claims, issuer)


def _parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims, strictly read: nothing in them can be taken in two ways. Neither is believed yet."""
    if len(token) > MAX_TOKEN or not is_token(token):
        raise _refused("it is too long, or not of three parts")
    try:
        header, claims = (loads(base64url.decode(part)) for part in token.split(".")[:2])
    except (DecodeError, ValueError):
        raise _refused(_UNREADABLE) from None
    if not isinstance(header, dict) or not isinstance(claims, dict):
        raise _refused(_UNREADABLE)
    return header, claims


def _verify(token: str, key: jwt.PyJWK, algorithm: str, issuer: Issuer) -> None:
    try:
        jwt.decode(
            token,
            key=key,
            algorithms=[algorithm],
            audience=list(issuer.audience),
            issuer=issuer.issuer,
            leeway=issuer.leeway_seconds,
            options={"require": _REQUIRED},
        )
    except jwt.ExpiredSignatureError:
        raise _refused("it is too old", "auth.expired", "This token is too old.") from None
    except (jwt.PyJWTError, ValueError, TypeError, ArithmeticError) as error:
        raise _refused(_WHY.get(type(error), f"checking it gave {type(error).__name__}")) from None


def _subject(claims: Mapping[str, Any], issuer: Issuer) -> SubjectExtension:
    wanted = issuer.claims
    named = _at(claims, wanted.id)
    if not isinstance(named, str) or not is_name(named):
        raise _refused("its claim for `id` is missing, or no name")
    kept = {name: claims[name] for name in wanted.kept if name in claims}
    if kept and len(dumps(kept)) > MAX_KEPT_BYTES:
        raise _refused("the claims that are `kept` of it are too large")
    fields: dict[str, Any] = {"id": f"{issuer.subject_prefix}{named}"} | ({"claims": kept} if kept else {})
    for field, path in (("roles", wanted.roles), ("permissions", wanted.permissions), ("teams", wanted.teams)):
        claim = None if path is None else _at(claims, path)
        if claim is not None:
            fields[field] = _names(claim)
    return SubjectExtension.model_validate(fields)


def _at(claims: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The claim at the end of the steps; None where it is not there."""
    value: Any = claims
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _names(claim: Any) -> list[str]:
    """The names in a claim: a list of them, or one text with spaces between them."""
    names = claim.split() if isinstance(claim, str) else claim
    if not isinstance(names, list) or len(names) > MAX_NAMES or not all(map(is_name, names)):
        raise _refused("its roles, permissions or teams are no names, or too many")
    return sorted(set(names))


def _refused(why: str, code: str = "auth.token", message: str = "This token is not taken.") -> Refusal:
    """The refusal of a token; `why` is for whoever runs the gateway alone, in no word of the token's."""
    _log.info("%s", dumps({"event": code, "why": why}).decode())
    return Refusal(401, code, message, headers={"www-authenticate": 'Bearer error="invalid_token"'})
