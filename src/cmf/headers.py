"""Which HTTP headers must never leave the process: not to policy, audit, logs or a repr [B12]. Spec: extensions.md."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

_Text = TypeVar("_Text", str, str | None)

_WORDS: Final = ("authorization", "cookie", "api-key", "apikey", "token", "secret", "password", "credential")
_LAST_WORDS: Final = frozenset(
    {"auth", "authentication"}
)  # others begin names of who was let in (`X-Auth-Request-User`)
_WHOLE_WORDS: Final = frozenset({"bearer", "dpop", "jwt", "passphrase", "passwd", "pwd"})
_OTHERS: Final = frozenset(
    {"proxy-authenticate", "www-authenticate", "x-amzn-oidc-data", "x-client-cert", "x-forwarded-client-cert"}
)
_OPEN_KEYS: Final = frozenset({"idempotency-key", "sec-websocket-key", "surrogate-key"})  # they open nothing
_FEW: Final = 64  # headers of one request; what is remembered is bounded by it


@lru_cache(maxsize=512)  # the same names come with every request; asking anew takes a microsecond and a half
def is_sensitive(name: str) -> bool:
    """Whether a header of this name carries a credential; case, underscores and dots do not matter."""
    plain = name.strip().lower().replace("_", "-").replace(".", "-")
    if plain in _OTHERS or any(word in plain for word in _WORDS):
        return True
    words = plain.split("-")
    is_key = plain.removeprefix("x-") not in _OPEN_KEYS and any(word.endswith(("key", "keys")) for word in words)
    return is_key or words[-1] in _LAST_WORDS or not _WHOLE_WORDS.isdisjoint(words)


def without_sensitive(headers: Mapping[str, _Text]) -> dict[str, _Text]:
    """The headers that may be shown, in their order."""
    shown = dict(headers)
    for name in _sensitive(tuple(headers)) if len(headers) <= _FEW else filter(is_sensitive, headers):
        del shown[name]
    return shown


@lru_cache(maxsize=128)  # a client sends the same ones with every request
def _sensitive(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(filter(is_sensitive, names))
