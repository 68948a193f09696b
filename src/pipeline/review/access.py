"""Who is there and what they may do: a person named at the start, or whom a proxy names. Spec: docs/spec/review.md."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

SECRET_HEADER: Final = "x-cmf-proxy-secret"
MAX_NAME: Final = 256


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


class Doorkeeper(Protocol):
    """Tells who sent a request. Header names are in lower case; a header that was sent twice is not among them."""

    def person(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Person | None:
        """Who it is; None for nobody who may come in."""
        ...


@dataclass(frozen=True, slots=True)
class Named:
    """One person, named when the site was started, who opens it by the address that was printed.

    `token` is in that address, and moves into a cookie: whoever else uses the machine reaches the port too.
    """

    someone: Person
    cookie: str
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    def person(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Person | None:
        """See `Doorkeeper`."""
        del headers
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

    def person(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Person | None:
        """See `Doorkeeper`."""
        del cookies
        if not hmac.compare_digest(headers.get(SECRET_HEADER, "").encode(), self.secret.encode()):
            return None
        name = headers.get(self.user_header.lower(), "").strip()
        words = {word.strip() for word in headers.get(self.role_header.lower(), "").split(",")}
        roles = [role for role in Role if role.value in words]
        return Person(name, roles[-1]) if name and len(name) <= MAX_NAME and roles else None


class Forms:
    """Marks forms so that only a page of this site can have sent them: a keyed digest of the person's name."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._secret = secret or secrets.token_bytes(32)

    def mark(self, person: Person) -> str:
        """What a form for this person carries."""
        return hmac.new(self._secret, person.name.encode(), hashlib.sha256).hexdigest()

    def holds(self, person: Person, mark: str) -> bool:
        """Whether a form with `mark` is this person's."""
        return hmac.compare_digest(self.mark(person).encode(), mark.encode())


__all__ = ["SECRET_HEADER", "Doorkeeper", "Forms", "Named", "Person", "Proxied", "Role"]
