"""Who is there and what they may do: named at the start, by a proxy, or by the host. Spec: docs/spec/review.md."""

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
MAX_KEY: Final = 16_384  # characters; a token with many claims is long
SIGNED_IN_SECONDS: Final = 8 * 3_600.0
MOST_SIGNED_IN: Final = 1_000


class Role(StrEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = "viewer"
    REVIEWER = "reviewer"
    SIGNER = "signer"
    ADMIN = "admin"

    def covers(self, needed: Role) -> bool:
        """Whether this role may do what `needed` may."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who was let in."""

    name: str
    role: Role


class Refused(Exception):
    """Something that is not done, or not there: a status, and words for who asked."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class Doorkeeper(Protocol):
    """Tells who sent a request. Header names are in lower case; a header that was sent twice is not among them."""

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """Who it is; None for nobody who may come in. `peer` is the address that the connection comes from.

        Raises:
            Refused: somebody who is known and may not.
        """
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """One person, named when the site was started, who opens it by the address that was printed.

    `token` is in that address, and moves into a cookie: whoever else uses the machine reaches the port too.
    """

    someone: Person
    cookie: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Doorkeeper`."""
        del headers, peer
        return self.someone if self.opens(cookies.get(self.cookie, "")) else None

    def opens(self, given: str) -> bool:
        """Whether this is the token."""
        return hmac.compare_digest(given.encode(), self.token.encode())


@dataclass(frozen=True, slots=True)
class Proxied:
    """Whoever a proxy in front says it is, in headers that it alone can send: it proves itself by a secret.

    The role header may name several words, as groups do; the highest role among them counts, and without one nobody is
    let in.
    """

    user_header: str
    role_header: str
    secret: str = field(repr=False)

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Doorkeeper`."""
        del cookies, peer
        if not hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self.secret.encode()):
            return None
        name = headers.get(self.user_header.lower(), "").strip()
        words = {word.strip() for word in headers.get(self.role_header.lower(), "").split(",")}
        roles = [role for role in Role if role.value in words]
        return Person(name, roles[-1]) if name and len(name) <= MAX_NAME and roles else None


Ask: TypeAlias = Callable[[Mapping[str, str], str | None], Awaitable[Person]]
"""Who a request with these headers, from that address, is of; Refused (401, 403) for nobody who may come in."""


class SignedIn:
    """People whom the host knows: by what each request presents, or by a cookie that they got for their key once.

    The cookie is random and stands for the key in this process alone; the host is asked about the key each time, so a
    token that ran out ends what was begun with it.

    Args:
        ask: the host.
        cookie: its name.
        clock: seconds, for how long a cookie is good.
    """

    def __init__(self, ask: Ask, cookie: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self.cookie = cookie
        self._clock = clock
        self._keys: dict[str, tuple[str, float]] = {}

    async def person(
        self, headers: Mapping[str, str], cookies: Mapping[str, str], peer: str | None = None
    ) -> Person | None:
        """See `Doorkeeper`."""
        key, until = self._keys.get(_kept(cookies.get(self.cookie, "")), ("", 0.0))
        if key and self._clock() < until:
            headers = {**headers, "authorization": f"Bearer {key}"}
        return await self._ask(headers, peer)

    async def enter(self, key: str, peer: str | None) -> str:
        """The cookie of whoever has this key.

        Raises:
            Refused: nobody has it, or somebody who may not come in.
        """
        key = key.strip()
        if not key or len(key) > MAX_KEY or not key.isascii() or not key.isprintable():
            raise Refused(401, "review.nobody", "This is no key.")
        await self._ask({"authorization": f"Bearer {key}"}, peer)
        now = self._clock()
        self._keys = {one: kept for one, kept in self._keys.items() if now < kept[1]}
        if len(self._keys) >= MOST_SIGNED_IN:
            del self._keys[next(iter(self._keys))]
        made = secrets.token_urlsafe(32)
        self._keys[_kept(made)] = key, now + SIGNED_IN_SECONDS
        return made

    def leave(self, cookies: Mapping[str, str]) -> None:
        """End what the cookie stands for."""
        self._keys.pop(_kept(cookies.get(self.cookie, "")), None)


def _kept(cookie: str) -> str:
    """What is looked up: how long that takes says nothing about any cookie."""
    return hashlib.sha256(cookie.encode()).hexdigest()


class Forms:
    """Marks forms so that only a page of this site can have sent them: a keyed digest of the person's name."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)

    def mark(self, person: Person) -> str:
        """What a form for this person carries."""
        return hmac.new(self._secret, person.name.encode(), hashlib.sha256).hexdigest()

    def holds(self, person: Person, mark: str) -> bool:
        """Whether a form with `mark` is this person's."""
        return hmac.compare_digest(self.mark(person).encode(), mark.encode())


__all__ = [
    "SECRET_HEADER",
    "Ask",
    "Doorkeeper",
    "Forms",
    "Named",
    "Person",
    "Proxied",
    "Refused",
    "Role",
    "SignedIn",
]
