"""An issuer's public keys: read from one place, held for a bounded time, read again for a new one. Spec: [GW-142]."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
from yarl import URL

from cmf.errors import DecodeError
from cmf.json.codec import loads
from pipeline.decisions.errors import ConfigError, needs
from pipeline.gateway.config.access import KeySource

with needs("gateway"):
    import jwt

MAX_SET_BYTES: Final = 256 * 1024
MAX_KEYS: Final = 64
MIN_RSA_BITS: Final = 2_048
FETCH_SECONDS: Final = 5.0
_log: Final = logging.getLogger("pipeline.gateway")

# What a key has to be for each algorithm: kty, and crv where there is one.
_KINDS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    **{f"{family}{bits}": ("RSA", frozenset[str]()) for family in ("RS", "PS") for bits in (256, 384, 512)},
    "ES256": ("EC", frozenset({"P-256"})),
    "ES384": ("EC", frozenset({"P-384"})),
    "ES512": ("EC", frozenset({"P-521"})),
    "EdDSA": ("OKP", frozenset({"Ed25519", "Ed448"})),
}


class KeysUnavailable(Exception):
    """There are no keys to check a token with: it is neither valid nor invalid."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A set as it was read, and when, by the key sets' clock."""

    keys: Mapping[tuple[str, str], Mapping[str, Any]]  # by kid and kty
    read_at: float


class KeySet:
    """The keys of one issuer.

    Args:
        source: where they are, and for how long they hold.
        fetch: what gives the bytes at a URL.
        clock: seconds that only grow.
    """

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
        self._held: _Held | None = None
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

    async def _current(self, missing: tuple[str, str] | None) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        if self._reading.locked() or self._is_due(missing):
            async with self._reading:
                if self._is_due(missing):  # whoever waited here has what the first one read
                    await self._read()
        held = self._held
        if held is None or self._clock() - held.read_at >= self._source.stale_seconds:
            raise KeysUnavailable
        return held.keys

    def _is_due(self, missing: tuple[str, str] | None) -> bool:
        now = self._clock()
        if now - self._tried_at < self._source.again_seconds:
            return False
        held = self._held
        if held is None or now - held.read_at >= self._source.refresh_seconds:
            return True
        return missing is not None and missing not in held.keys

    async def _read(self) -> None:
        self._tried_at = self._clock()
        try:
            url = self._source.url
            raw = await asyncio.to_thread(_bytes_of, self._source) if url is None else await self._fetch(url)
            self._held = _Held(_keys_in(raw), self._clock())
        except (DecodeError, OSError, ValueError, aiohttp.ClientError, TimeoutError) as error:
            _log.warning("the keys of an issuer cannot be read: %s", type(error).__name__)


def _bytes_of(source: KeySource) -> bytes:
    assert source.file is not None  # noqa: S101 - one of both is there
    with source.file.open("rb") as stream:
        return stream.read(MAX_SET_BYTES + 1)


def _keys_in(raw: bytes) -> Mapping[tuple[str, str], Mapping[str, Any]]:
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
        if not _is_short(key):
            keys[name] = key
    return keys


def _is_short(key: Mapping[str, Any]) -> bool:
    """Whether it is an RSA key that can be broken; base64 has six bits a letter."""
    modulus = key.get("n")
    return key.get("kty") == "RSA" and (not isinstance(modulus, str) or len(modulus) * 6 < MIN_RSA_BITS)


async def fetched(url: str) -> bytes:
    """The bytes at `url`, and nowhere else: no redirection, no proxy of the environment, bounded in size and time.

    Raises:
        ClientError, TimeoutError, OSError: it cannot be reached. ValueError: it gave something else.
    """
    timeout = aiohttp.ClientTimeout(total=FETCH_SECONDS)
    headers = {"accept": "application/json", "accept-encoding": "identity", "user-agent": "cmf-pipeline"}
    async with (
        aiohttp.ClientSession(
            timeout=timeout, trust_env=False, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        ) as session,
        session.get(URL(url, encoded=True), headers=headers, allow_redirects=False) as reply,
    ):
        if reply.status != 200:
            raise ValueError("it is not there")
        raw = bytearray()
        async for piece in reply.content.iter_any():
            raw += piece
            if len(raw) > MAX_SET_BYTES:
                raise ValueError("it is too large")
        return bytes(raw)
