"""What waits for a person, and the model's reply with it, unreadable to whoever only has the store: AES-256-GCM.

Spec: docs/spec/approvals.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final

from cmf.json.codec import dumps, loads
from cmf.json.value import to_json
from cmf.message.request import Response
from pipeline.approvals.needs import ApprovalAnswer
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.errors import ApprovalError, ConfigError
from pipeline.decisions.stage import Traffic
from pipeline.sessions.base import SessionStore, unknown_approval

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


class SealedReplies:
    """Seals replies for new approvals, and opens them for approvals that were given.

    Args:
        sessions: where what was sealed is kept.
        key: 32 bytes, the same in every process that shares `sessions`; None makes one that ends with the process.

    Raises:
        ConfigError: the key is not 32 bytes.
    """

    def __init__(self, sessions: SessionStore, key: bytes | None) -> None:
        self._sessions = sessions
        self._sealer = Sealer(key)

    def seal(self, value: Traffic, context: Context, answer: ApprovalAnswer) -> dict[str, bytes]:
        """By the id of each new approval, ciphertext of what it is about.

        A response is sealed whole with the first, which the others name: unlike a request, nobody could send it again.
        """
        reply = {REPLY: to_json(value)} if isinstance(value, Response) else {}
        owner = session_key(context)
        sealed: dict[str, bytes] = {}
        for one in answer.asked:
            sealed[one.id] = self._sealer.seal(one.id, owner, {ABOUT: answer.shown[one.id], **reply})
            reply = reply and {HELD_BY: answer.asked[0].id}
        return sealed

    def open(self, approval_id: str, context: Context) -> tuple[Response, str]:
        """The reply that waits for this approval of the context's session, and the approval that it is sealed with.

        Raises:
            ApprovalError: there is no such approval in the session (`approval.unknown`), it was used or denied or is
                too old (`approval.unusable`), it is about no reply (`approval.nothing-sealed`), or the reply was sealed
                under another key (`approval.unreadable`). StoreError: the store cannot be asked.
        """
        owner = session_key(context)
        approval = self._sessions.approval(approval_id)
        if approval is None or approval.key != owner:
            raise unknown_approval()
        body = self._opened(approval_id, owner)
        holder = body.get(HELD_BY, approval_id)
        if holder != approval_id:
            body = self._opened(holder, owner)
        if REPLY not in body:
            hint = "send the same again instead"
            raise ApprovalError("this approval holds no reply", code="approval.nothing-sealed", hint=hint)
        return Response.model_validate(body[REPLY]), holder

    def check_held(self, holder: str) -> None:
        """Raises ApprovalError: what was sealed with that approval is there no longer; it went out, say."""
        self._sealed(holder)

    def _opened(self, approval_id: str, owner: SessionKey) -> dict[str, Any]:
        return self._sealer.open(approval_id, owner, self._sealed(approval_id))

    def _sealed(self, approval_id: str) -> bytes:
        sealed = self._sessions.sealed(approval_id)
        if sealed is None:
            hint = "it, or one that was asked for with it, was used, denied or is too old"
            raise ApprovalError("this approval cannot be used", code="approval.unusable", hint=hint)
        return sealed
