"""Authentication: the subject for the key, token or headers of a request. Spec: gateway.md [GW-20], [GW-140] ff.

Keys are made here from 256 random bits: one round of SHA-256 protects them, as there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Final

from cmf.message.security import SubjectExtension
from pipeline.gateway.config.access import PROXY_SECRET_HEADER, Key, Proxy
from pipeline.gateway.config.settings_base import is_loopback
from pipeline.gateway.http.refusal import Refusal

if TYPE_CHECKING:
    from pipeline.gateway.auth.tokens import Tokens  # loads cryptography: only where there are issuers

MAX_NAME: Final = 256  # characters of the name of a subject, role, permission or team
_BEARER: Final = "bearer "
_CHALLENGE: Final = {"www-authenticate": "Bearer"}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]/@]+?)\.?)(?::[0-9]{1,5})?")
_SHAPE: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")


def new_key() -> str:
    """A new key for a client."""
    return f"cmf_{secrets.token_urlsafe(32)}"


def hash_of(key: str) -> str:
    """The hash of a key, as settings have it."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class TrustedProxy:
    """A proxy in front that authenticates people.

    Args:
        secret: the shared secret that it sends; None if its address is enough.
    """

    def __init__(self, settings: Proxy, secret: str | None) -> None:
        self._settings = settings
        self._secret = secret

    def subject(self, headers: Mapping[str, str], peer: str | None) -> SubjectExtension | None:
        """The subject in the proxy's headers; None without any.

        Raises:
            Refusal: 401 for such headers from elsewhere, or for invalid names in them.
        """
        settings, address = self._settings, _address(peer)
        if not any(name in headers for name in settings.headers):
            return None
        is_it = address is not None and any(address in network for network in settings.peers)
        if is_it and self._secret is not None:
            secret = headers.get(PROXY_SECRET_HEADER, "")
            is_it = hmac.compare_digest(secret.encode("latin-1"), self._secret.encode())
        if not is_it:
            raise Refusal(401, "auth.untrusted-header", "Identity headers are accepted from the trusted proxy only.")
        named: dict[str, list[str]] = {"id": [headers.get(settings.id, "").strip()]}
        for field in ("roles", "permissions", "teams"):
            name = getattr(settings, field)
            if name in headers:
                named[field] = sorted({word.strip() for word in headers[name].split(",")} - {""})
        if not all(is_name(name) for names in named.values() for name in names):
            raise Refusal(401, "auth.header", "An identity header holds no valid name.")
        return SubjectExtension.model_validate({**named, "id": settings.prefix + named["id"][0]})


class Identities:
    """Finds the subject of a request.

    Args:
        hosts: the host names under which they are, besides loopback ones; None for any.
    """

    def __init__(
        self,
        keys: Iterable[Key],
        *,
        anonymous: bool,
        hosts: Collection[str] | None = None,
        origins: Collection[str] = (),
        tokens: Tokens | None = None,
        proxy: TrustedProxy | None = None,
    ) -> None:
        self._subjects = {key.hash: SubjectExtension.model_validate(key.subject) for key in keys}
        self._anonymous = anonymous
        self._hosts = hosts
        self._origins = frozenset(origins)
        self._tokens = tokens
        self._proxy = proxy

    async def subject(
        self,
        headers: Mapping[str, str],
        peer: str | None = None,
        *,
        pages: Collection[str] = (),
        relayed: bool = False,
    ) -> SubjectExtension | None:
        """The subject of a request; None for an anonymous one, if allowed.

        `pages` are further origins whose pages may ask without a key; `relayed` headers are those of a request to
        somebody else, which a proxy asks about.

        Raises:
            Refusal: 401 for no or an unknown key; 400 for two different ones; 503 if a token cannot be checked now;
                421 or 403 for an anonymous request under a foreign name, or from a foreign page [GW-167].
        """
        presented = set(presented_in(headers))
        from_proxy = None if self._proxy is None else self._proxy.subject(headers, peer)
        if len(presented) + (from_proxy is not None) > 1:
            raise Refusal(400, "auth.ambiguous", "The request presents two different identities.")
        if from_proxy is not None:
            return from_proxy
        if not presented and not self._anonymous:
            message = "Present a key of this gateway, as a bearer token or in x-api-key."
            raise Refusal(401, "auth.missing", message, headers=_CHALLENGE)
        if not presented:
            if not relayed:
                self.check_host(headers)
                origin = headers.get("origin")  # a page in a browser sends it
                if origin is not None and origin not in self._origins and origin not in pages:
                    message = "Pages of this origin may not ask without a key: list it in `listen.origins`."
                    raise Refusal(403, "http.origin", message)
            return None
        key = presented.pop()
        # The hash is looked up, not the key: how long that takes reveals nothing about any key.
        subject = self._subjects.get(hash_of(key))
        if subject is not None:
            return subject
        if self._tokens is not None and is_token(key):
            return await self._tokens.subject(key)
        raise Refusal(401, "auth.unknown", "This key is not known to this gateway.", headers=_CHALLENGE)

    def check_host(self, headers: Mapping[str, str], *, or_address: bool = False) -> None:
        """Nothing where a request without a key may come by this host name; else Refusal 421. See `is_own_name`."""
        if self._hosts is not None and not is_own_name(headers, self._hosts, or_address=or_address):
            message = "Without a key this gateway is not served under this host name: list it in `listen.hosts`."
            raise Refusal(421, "http.host", message)


def presented_in(headers: Mapping[str, str]) -> Iterable[str]:
    """The keys and tokens in a request. Refusal 401 for an `Authorization` that is not a bearer token."""
    bearer = headers.get("authorization")
    if bearer is not None:
        if bearer[: len(_BEARER)].lower() != _BEARER:
            raise Refusal(401, "auth.scheme", "Present the key as a bearer token.", headers=_CHALLENGE)
        yield bearer[len(_BEARER) :].strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if name in headers:
            yield headers[name].strip()


def is_own_name(headers: Mapping[str, str], hosts: Collection[str], *, or_address: bool = False) -> bool:
    """Whether a request came by a name of this machine, or one of `hosts`; with `or_address`, or by any IP address.

    Any other name a page in a browser may have given to this address (DNS rebinding).
    """
    if "host" not in headers:  # only HTTP/1.0 lacks it, which no browser speaks
        return True
    named = _HOST.fullmatch(headers["host"].lower())
    name = (named[1] or named[2]) if named else ""
    return is_loopback(name) or name in hosts or (or_address and _address(name) is not None)


def is_token(presented: str) -> bool:
    """Whether it has the form of a JWT."""
    return _SHAPE.fullmatch(presented) is not None


def is_name(name: object) -> bool:
    """Whether it is a valid name of a subject, role, permission or team."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip()


def _address(peer: str | None) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(peer or "")
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
