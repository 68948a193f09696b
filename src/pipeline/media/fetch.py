"""The one place that fetches what a message refers to, only from where the operator allows. Spec: docs/spec/media.md.

A name is looked up once, every address it has must be public, and the connection goes to the address that was checked.
Redirects, proxies, cookies, compressed bodies and credentials in a URL are refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from cmf.errors import MediaError
from cmf.views import uris
from pipeline.decisions.errors import ConfigError

_T = TypeVar("_T")
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses that a host name has, as text."""

MAX_URL_CHARS: Final = 2_048
_READ_BYTES: Final = 64 * 1024

# Only what all URL readers read alike: no user, no backslash, no fragment, no character that needs an escape.
_URL: Final = re.compile(
    r"(?P<scheme>(?i:https?))://(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<rest>/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*(?:\?[A-Za-z0-9._~!$&'()*+,;=:@%/?-]*)?)\Z"
)
_PATTERN: Final = re.compile(r"https?://[^/@\\]+/")

# What embeds another address, or is a cloud's own: reachable, and not what it seems.
_DECEPTIVE: Final = tuple(
    map(
        ipaddress.ip_network,
        (
            "::/96",  # IPv4-compatible
            "::ffff:0:0/96",  # IPv4-mapped
            "64:ff9b::/96",  # NAT64
            "64:ff9b:1::/48",  # NAT64, local
            "2001::/32",  # Teredo
            "2002::/16",  # 6to4
            "fec0::/10",  # of a site, as networks once had them; Python counts them as global
            "192.88.99.0/24",  # 6to4 relays
            "192.0.0.0/24",  # protocol assignments; Python 3.11 counts some as global, a cloud's metadata is there
            "168.63.129.16/32",  # Azure's own services, in public space
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """From where media may be fetched, and how much of it.

    Attributes:
        allow: URL globs as in `cmf.views.uris`, each beginning with `https://`, or with `http://` for those alone.
        max_bytes: of one body.
        timeout_seconds: for one URL, from the look-up of the name to the last byte.
        inner_networks: networks that are not public and may be reached all the same, by the allowed URLs.
    """

    allow: tuple[str, ...] = ()
    max_bytes: int = 20 * 1024 * 1024
    timeout_seconds: float = 10.0
    inner_networks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Target:
    url: str
    host: str
    port: int


class Fetcher:
    """Fetches allowed URLs. Raises ConfigError for a pattern or network that is none."""

    def __init__(self, settings: FetchSettings, *, resolve: Resolve | None = None) -> None:
        for pattern in settings.allow:
            if not _PATTERN.match(pattern):
                raise ConfigError("not a URL pattern", path="media.allow", hint="write https://<host>/<path>")
        try:
            self._inner = tuple(map(ipaddress.ip_network, settings.inner_networks))
        except ValueError:
            raise ConfigError("not a network", path="media.inner_networks", hint="write 10.1.0.0/16") from None
        self._settings = settings
        self._resolve = resolve or _system_resolve

    async def fetch(self, url: str) -> bytes:
        """The body that `url` has now.

        Raises:
            MediaError: media.bad-url, media.url-not-allowed, media.unresolvable, media.address-refused,
                media.redirected, media.not-served, media.encoded, media.too-large, media.timeout, media.unreachable.
        """
        return await self._exchanged(url, self._body)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """The status with which `url` answers `body`; a redirection is an answer. Raises as `fetch`."""

        async def status(session: aiohttp.ClientSession, target: _Target) -> int:
            where = URL(target.url, encoded=True)
            async with session.post(where, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status

        return await self._exchanged(url, status)

    async def _exchanged(self, url: str, exchange: Callable[[aiohttp.ClientSession, _Target], Awaitable[_T]]) -> _T:
        """What comes of an exchange with `url`, if that is allowed, at an address that may be reached, in time."""
        target = self._target(url)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                connector = aiohttp.TCPConnector(
                    resolver=_Pinned(await self._addresses(target)), use_dns_cache=False, force_close=True, limit=1
                )
                async with aiohttp.ClientSession(
                    connector=connector,
                    trust_env=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "cmf-pipeline"},
                ) as session:
                    return await exchange(session, target)
        except TimeoutError:
            raise MediaError(
                "the URL took too long", code="media.timeout", hint="try again, or raise media.timeout_seconds"
            ) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, MediaError):
                raise
            raise MediaError(
                "the URL cannot be reached", code="media.unreachable", hint="try again, or check the URL"
            ) from None

    def _target(self, url: str) -> _Target:
        """The URL in its one spelling, if it is allowed; what was matched is what is fetched."""
        plain = len(url) <= MAX_URL_CHARS and _URL.match(url) is not None
        if not plain or not (match := _URL.match(uris.normalise(url))):
            raise MediaError("not a plain http(s) URL", code="media.bad-url", hint="no user, fragment or odd character")
        scheme, port = match["scheme"], int(match["port"] or (443 if match["scheme"] == "https" else 80))
        allowed = (pattern for pattern in self._settings.allow if pattern.startswith(f"{scheme}://"))
        if not any(uris.matches(match[0], pattern) for pattern in allowed):
            raise MediaError("the URL is not on the list", code="media.url-not-allowed", hint="list it in media.allow")
        return _Target(match[0], match["host"].strip("[]"), port)

    async def _addresses(self, target: _Target) -> list[str]:
        """Where the host is, asked once; refused if any of its addresses is not for everybody."""
        try:
            addresses = [str(ipaddress.ip_address(target.host))]
        except ValueError:
            addresses = list(await self._resolve(target.host, target.port))
        if not addresses:
            raise MediaError("the host has no address", code="media.unresolvable", hint="check the name of the host")
        if not all(self._may_reach(address) for address in addresses):
            raise MediaError(
                "the host is not in public address space",
                code="media.address-refused",
                hint="list its network in media.inner_networks, if it is yours",
            )
        return addresses

    def _may_reach(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        if any(address in network for network in self._inner):
            return True
        return is_public(address)

    async def _body(self, session: aiohttp.ClientSession, target: _Target) -> bytes:
        async with session.get(URL(target.url, encoded=True), allow_redirects=False) as answer:
            if 300 <= answer.status < 400:
                raise MediaError("the URL redirects", code="media.redirected", hint="name the URL that it leads to")
            if answer.status != 200:
                raise MediaError(
                    f"the URL answers with {answer.status}",
                    code="media.not-served",
                    hint="name a URL that answers with 200",
                )
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise MediaError(
                    "the body is compressed", code="media.encoded", hint="have it served without Content-Encoding"
                )
            return await self._read(answer)

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        limit = self._settings.max_bytes
        body = bytearray()
        async for chunk in answer.content.iter_chunked(_READ_BYTES):
            body += chunk
            if len(body) > limit:
                raise MediaError(
                    f"more than {limit} bytes",
                    code="media.too-large",
                    hint="name a smaller one, or raise media.max_bytes",
                )
        return bytes(body)


def is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address is one of the public internet, and no other address in disguise."""
    return (
        address.is_global
        and not (address.is_private or address.is_multicast or address.is_reserved or address.is_link_local)
        and not any(address in network for network in _DECEPTIVE)
    )


class _Pinned(AbstractResolver):
    """Resolves any name to the addresses that were checked: there is no second look-up to answer differently."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = addresses

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002  (the addresses say which)
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


async def _system_resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise MediaError(
            "the host has no address", code="media.unresolvable", hint="check the name of the host"
        ) from None
    return [str(address[0]) for *_, address in found]
