"""What waits for a person, unreadable to whoever only has the store: AES-256-GCM. Spec: docs/spec/approvals.md."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from cmf.json.codec import dumps, loads
from pipeline.decisions.context import SessionKey
from pipeline.decisions.errors import ApprovalError, ConfigError

KEY_BYTES: Final = 32
# Keys of what is sealed: what the approval is for; the reply that waits, if any, or the approval that has it.
ABOUT, REPLY, HELD_BY = "about", "reply", "held_by"
_NONCE_BYTES: Final = 12


class Sealer:
    """Seals and opens under one key. Without one it makes its own: what it sealed ends with the process.

    Raises:
        ConfigError: a key that is not 32 bytes.
    """

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise ConfigError("a seal key is 32 bytes", code="config.seal-key", hint="take secrets.token_bytes(32)")
        self._key = key or secrets.token_bytes(KEY_BYTES)

    def seal(self, approval_id: str, owner: SessionKey, body: Mapping[str, Any]) -> bytes:
        """`body` as ciphertext that opens only for the same approval of the same session."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # half of what importing the pipeline takes

        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + AESGCM(self._key).encrypt(nonce, dumps(dict(body)), _bound_to(approval_id, owner))

    def open(self, approval_id: str, owner: SessionKey, sealed: bytes) -> dict[str, Any]:
        """What was sealed.

        Raises:
            ApprovalError: another key, another approval, or changed bytes (`approval.unreadable`).
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            nonce, hidden = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            plain = AESGCM(self._key).decrypt(nonce, hidden, _bound_to(approval_id, owner))
        except (InvalidTag, ValueError):
            hint = "give all processes the same seal key"
            raise ApprovalError("what was sealed cannot be opened", code="approval.unreadable", hint=hint) from None
        opened: dict[str, Any] = loads(plain)
        return opened


def _bound_to(approval_id: str, owner: SessionKey) -> bytes:
    return dumps([approval_id, owner.subject, owner.session])
