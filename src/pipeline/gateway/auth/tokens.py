"""Tokens of issuers (JWT): checked under the issuer's own keys, and read as a subject. Spec: gateway.md [GW-140]."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cmf.errors import DecodeError
from cmf.json.codec import dumps, loads
from cmf.message.security import SubjectExtension
from pipeline.decisions import base64url
from pipeline.decisions.errors import needs
from pipeline.gateway.auth.identity import is_name, is_token
from pipeline.gateway.auth.key_sets import KeySet, KeysUnavailable
from pipeline.gateway.config.access import Issuer
from pipeline.gateway.http.refusal import Refusal, later

with needs("gateway"):
    import jwt

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
    """What issuers signed.

    Args:
        issuers: those that are taken.
        key_sets: the keys of each, by the issuer's name; by default as its settings say.
    """

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
        if not all(_is_time(claims[name]) for name in _TIMES if name in claims):
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


def _is_time(claim: Any) -> bool:
    """Whether it is a NumericDate (RFC 7519, 2). PyJWT takes texts and booleans as well."""
    return isinstance(claim, int | float) and not isinstance(claim, bool) and 0 <= claim <= _LATEST


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
