"""Authentication and roles: by a token, by a proxy, or by the host. Spec: docs/spec/review.md."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

SECRET_HEADER: Final = "x-cmf-proxy-secret"
MAX_NAME: Final = 256
MAX_KEY: Final = 16_384  # characters: a token with many claims is long
SIGNED_IN_SECONDS: Final = 8 * 3_600.0
MOST_SIGNED_IN: Final = 1_000


class Role(StrEnum):
    """The roles; each includes the ones before it."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    SIGNER = "signer"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role includes `needed`."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Person:
    """An authenticated user."""

    name: str
    role: Role


class Refused(Exception):
    """A request that is refused or not found: a status, and a message for the user."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Authenticator(Protocol):
    """Authenticates requests. Header names are in lower case; headers sent twice are left out."""

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """The user; None if the request is not authenticated. `peer` is the address of the connection.

        Raises:
            Refused: a known user without access.
        """
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """One person, named when the site starts, who opens it with the printed URL.

    The URL contains `token`, which moves into a cookie: other users of the machine can reach the port too.
    """

    someone: Person
    cookie: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Authenticator.person`."""
        del headers, peer
        return self.someone if self.opens(cookies.get(self.cookie, "")) else None

    def opens(self, token: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(token.encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class Proxied:
    """The user that a proxy in front names in headers; the proxy authenticates itself with a secret.

    The role header may hold several words, as group headers do: the highest role among them counts, and without one the
    user is refused.
    """

    user_header: str
    role_header: str
    secret: str = field(repr=False)

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Authenticator.person`."""
        del cookies, peer
        if not hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self.secret.encode()):
            return None
        name = headers.get(self.user_header.lower(), "").strip()
        words = {word.strip() for word in headers.get(self.role_header.lower(), "").split(",")}
        roles = [role for role in Role if role.value in words]
        return Person(name, roles[-1]) if name and len(name) <= MAX_NAME and roles else None


Ask: TypeAlias = Callable[[Mapping[str, str], str | None], Awaitable[Person]]
"""Returns the user of a request with these headers from that address; Refused (401, 403) if there is none."""


class SignedIn:
    """Users known to the host, by the credentials of each request, or by a cookie obtained for their key.

    The cookie is random and stands for the key in this process only. The host checks the key each time, so an expired
    token ends its session.
    """

    def __init__(self, ask: Ask, cookie: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self.cookie = cookie
        self._clock = clock
        self._keys: dict[str, tuple[str, float]] = {}

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Authenticator.person`."""
        key, until = self._keys.get(_lookup_key(cookies.get(self.cookie, "")), ("", 0.0))
        if key and self._clock() < until:
            headers = {**headers, "authorization": f"Bearer {key}"}
        return await self._ask(headers, peer)

    async def enter(self, key: str, peer: str | None) -> str:
        """A cookie for the user with this key. Refused: the key is unknown, or its user has no access."""
        key = key.strip()
        if not key or len(key) > MAX_KEY or not key.isascii() or not key.isprintable():
            raise Refused(401, "review.nobody", "This is not a key.")
        await self._ask({"authorization": f"Bearer {key}"}, peer)
        now = self._clock()
        self._keys = {digest: kept for digest, kept in self._keys.items() if now < kept[1]}
        if len(self._keys) >= MOST_SIGNED_IN:
            del self._keys[next(iter(self._keys))]
        cookie = secrets.token_urlsafe(32)
        self._keys[_lookup_key(cookie)] = key, now + SIGNED_IN_SECONDS
        return cookie

    def leave(self, cookies: Mapping[str, str]) -> None:
        """End the session of the cookie."""
        self._keys.pop(_lookup_key(cookies.get(self.cookie, "")), None)


def _lookup_key(cookie: str) -> str:
    """A digest to look up instead of the cookie, so that timing reveals nothing about it."""
    return hashlib.sha256(cookie.encode()).hexdigest()


class Forms:
    """CSRF tokens for forms: a keyed digest of the person's name."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def mark(self, person: Person) -> str:
        """The token in this person's forms."""
        return hmac.new(self._secret, person.name.encode(), hashlib.sha256).hexdigest()

    def holds(self, person: Person, mark: str) -> bool:
        """Whether `mark` is this person's token."""
        return hmac.compare_digest(self.mark(person).encode(), mark.encode())
