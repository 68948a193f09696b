"""Addresses of Google's file service: any format may name one, and a Gemini upstream reads it. Spec: references.md."""

from __future__ import annotations

from typing import Final
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

from cmf.views.uris import normalise

_HOST: Final = "generativelanguage.googleapis.com"


def is_held(uri: str) -> bool:
    """Whether the URI names a file that Google's own file service holds: a reference, not an address [C9].

    Whatever is read from its host with the key of the service is one, in any spelling of the address.
    """
    try:
        spelled = normalize("NFKC", uri.replace("\\", "/"))
        parts = urlsplit(spelled)
        if parts.scheme in ("http", "https") and not parts.hostname:  # `http:host/x` has one, as clients read it
            parts = urlsplit(normalise(spelled) or spelled)
        host = unquote(parts.hostname or "").rstrip(".").lower()
    except ValueError:
        return True  # an address of nobody else
    if host or parts.scheme not in ("", "http", "https"):
        return host == _HOST
    return bool(parts.scheme) or "files" in parts.path.split("/")
