"""Base64 as tokens and signatures spell it: the URL-safe alphabet, without padding (RFC 7515, section 2)."""

from __future__ import annotations

import base64


def decode(text: str) -> bytes:
    """The bytes that `text` spells; padding at its end is taken too.

    Raises:
        ValueError: a character that is of no alphabet, or a length that no bytes have (`binascii.Error`).
    """
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def encode(raw: bytes) -> str:
    """The text that spells these bytes."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
