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
from typing import Any, Final, TypeVar

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


_REFUSALS: Final = {
    "bad-url": ("not a plain http(s) URL", "no user, fragment or odd character"),
    "url-not-allowed": ("the URL is not on the list", "list it in media.allow"),
    "unresolvable": ("the host has no address", "check the name of the host"),
    "address-refused": (
        "the host is not in public address space",
        "list its network in media.inner_networks, if it is yours",
    ),
    "redirected": ("the URL redirects", "name the URL that it leads to"),
    "not-served": ("the URL answers with {}", "name a URL that answers with 200"),
    "encoded": ("the body is compressed", "have it served without Content-Encoding"),
    "too-large": ("more than {} bytes", "name a smaller one, or raise media.max_bytes"),
    "timeout": ("the URL took too long", "try again, or raise media.timeout_seconds"),
    "unreachable": ("the URL cannot be reached", "try again, or check the URL"),
}


def _refused(code: str, figure: int = 0) -> MediaError:
    what, hint = _REFUSALS[code]
    return MediaError(what.format(figure), code=f"media.{code}", hint=hint)


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

        async def status(session: aiohttp.ClientSession, where: URL) -> int:
            async with session.post(where, data=body, headers=headers, allow_redirects=False) as answer:
                return answer.status

        return await self._exchanged(url, status)

    async def _exchanged(self, url: str, exchange: Callable[[aiohttp.ClientSession, URL], Awaitable[_T]]) -> _T:
        """What comes of an exchange with `url`, if that is allowed, at an address that may be reached, in time."""
        target = self._target(url)
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                connector = aiohttp.TCPConnector(
                    resolver=_Pinned(await self._addresses(target)), use_dns_cache=False, force_close=True, limit=1
                )
                headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "cmf-pipeline"}
                async with plain_session(connector=connector, headers=headers) as session:
                    return await exchange(session, URL(target[0], encoded=True))
        except TimeoutError:
            raise _refused("timeout") from None
        except MediaError:
            raise
        except (aiohttp.ClientError, OSError, ValueError):
            raise _refused("unreachable") from None

    def _target(self, url: str) -> re.Match[str]:
        """The URL in its one spelling, if it is allowed; what was matched is what is fetched."""
        plain = len(url) <= MAX_URL_CHARS and _URL.match(url) is not None
        if not plain or not (match := _URL.match(uris.normalise(url))):
            raise _refused("bad-url")
        allowed = (pattern for pattern in self._settings.allow if pattern.startswith(f"{match['scheme']}://"))
        if not any(uris.matches(match[0], pattern) for pattern in allowed):
            raise _refused("url-not-allowed")
        return match

    async def _addresses(self, target: re.Match[str]) -> list[str]:
        """Where the host is, asked once; refused if any of its addresses is not for everybody."""
        host, port = target["host"].strip("[]"), int(target["port"] or (443 if target["scheme"] == "https" else 80))
        try:
            addresses = [str(ipaddress.ip_address(host))]
        except ValueError:
            addresses = list(await self._resolve(host, port))
        if not addresses:
            raise _refused("unresolvable")
        if not all(self._may_reach(address) for address in addresses):
            raise _refused("address-refused")
        return addresses

    def _may_reach(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return any(address in network for network in self._inner) or is_public(address)

    async def _body(self, session: aiohttp.ClientSession, where: URL) -> bytes:
        limit = self._settings.max_bytes
        async with session.get(where, allow_redirects=False) as answer:
            if 300 <= answer.status < 400:
                raise _refused("redirected")
            if answer.status != 200:
                raise _refused("not-served", answer.status)
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                raise _refused("encoded")
            body = await bounded_body(answer, limit)
            if body is None:
                raise _refused("too-large", limit)
            return body


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
        known = {"hostname": host, "port": port, "proto": socket.IPPROTO_TCP, "flags": socket.AI_NUMERICHOST}
        return [
            ResolveResult(**known, host=address, family=socket.AF_INET6 if ":" in address else socket.AF_INET)  # type: ignore[typeddict-item]  # mypy knows no keys of `known`
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Nothing is open."""


def plain_session(**options: Any) -> aiohttp.ClientSession:
    """A session that ignores proxies of the environment, stores no cookies and decompresses nothing."""
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, auto_decompress=False, **options)


async def bounded_body(reply: aiohttp.ClientResponse, limit: int) -> bytes | None:
    """The whole body; None if it has more than `limit` bytes."""
    body = bytearray()
    async for chunk in reply.content.iter_any():
        body += chunk
        if len(body) > limit:
            return None
    return bytes(body)


async def _system_resolve(host: str, port: int) -> list[str]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        raise _refused("unresolvable") from None
    return [str(address[0]) for *_, address in found]
