"""Who asks: the key that a request presents, and the subject that goes with it. Spec: docs/spec/gateway.md [GW-20] ff.

Keys are made here, from 256 random bits, so that one round of SHA-256 is enough to keep: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping

from cmf.security import SubjectExtension
from pipeline.gateway.refusal import Refusal
from pipeline.gateway.settings import Key

_BEARER = "bearer "


def new_key() -> str:
    """A key for a client; who has it is who its hash says."""
    return f"cmf_{secrets.token_urlsafe(32)}"


def hash_of(key: str) -> str:
    """The key as it stands in settings."""
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


class Identities:
    """Subjects by key."""

    def __init__(self, keys: Iterable[Key], *, anonymous: bool) -> None:
        self._subjects = {key.hash: SubjectExtension.model_validate(key.subject) for key in keys}
        self._anonymous = anonymous

    def subject(self, headers: Mapping[str, str]) -> SubjectExtension | None:
        """Who asks; None for nobody known, where that is allowed.

        Raises:
            Refusal: 401 without a key, or with one that nobody has; 400 with two that differ.
        """
        presented = set(_presented(headers))
        if len(presented) > 1:
            raise Refusal(400, "auth.ambiguous", "The request presents two keys that differ.")
        if not presented:
            if self._anonymous:
                return None
            raise Refusal(401, "auth.missing", "Present a key of this gateway.")
        # The hash is looked up, not the key: how long that takes says nothing about any key.
        subject = self._subjects.get(hash_of(presented.pop()))
        if subject is None:
            raise Refusal(401, "auth.unknown", "This key is not one of this gateway.")
        return subject


def _presented(headers: Mapping[str, str]) -> Iterable[str]:
    bearer = headers.get("authorization")
    if bearer is not None:
        if bearer[: len(_BEARER)].lower() != _BEARER:
            raise Refusal(401, "auth.scheme", "Present the key as a bearer token.")
        yield bearer[len(_BEARER) :].strip()
    for name in ("x-api-key", "x-goog-api-key"):
        if name in headers:
            yield headers[name].strip()


__all__ = ["Identities", "hash_of", "new_key"]
