"""Upstreams in environment variables: `LLM_CLAUDE=anthropic://key@api.anthropic.com`. Spec: gateway.md [GW-7]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from cmf.message.model_ids import PROVIDER_FORMATS

PREFIX: Final = "LLM_"
_DIALECTS: Final = PROVIDER_FORMATS | {"openai-responses": "openai_responses"}
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NAME: Final = re.compile(r"[A-Z0-9][A-Z0-9_]{0,63}")


class Named(NamedTuple):
    """An upstream named by an environment variable; `is_keyed` if the variable holds its key."""

    variable: str
    name: str
    dialect: str
    base_url: str
    is_keyed: bool


def upstreams(environment: Mapping[str, str]) -> Iterator[Named]:
    """The upstreams in variables `LLM_<NAME>`. Variables that hold no provider's address are left alone."""
    for variable in sorted(environment):
        name = variable.removeprefix(PREFIX)
        scheme, separator, rest = environment[variable].strip().partition("://")
        kind, _, transport = scheme.partition("+")
        if name == variable or not _NAME.fullmatch(name) or not separator or kind not in _DIALECTS:
            continue
        if transport not in ("", "http", "https"):
            continue
        keyed, at, place = rest.rpartition("@")
        plain = transport == "http" or (not transport and _host_in(place) in _HERE)
        url = f"{'http' if plain else 'https'}://{place.rstrip('/')}"
        yield Named(variable, name.lower(), _DIALECTS[kind], url, bool(at and keyed))


def _host_in(place: str) -> str | None:
    try:
        return urlsplit(f"//{place}").hostname
    except ValueError:
        return None  # validation of the settings reports it


def key_in(variable: str, text: str) -> str:
    """The secret in a variable: the key before the `@` of an upstream's address, or the whole text of any other."""
    if not variable.startswith(PREFIX) or "://" not in text:
        return text
    keyed, _, _ = text.partition("://")[2].rpartition("@")
    return unquote(keyed)
