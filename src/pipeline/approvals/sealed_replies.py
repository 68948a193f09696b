"""What an approval is about, kept encrypted until a person decides; with it the model's reply that waits for that.

Spec: docs/spec/approvals.md.
"""

from __future__ import annotations

from typing import Any

from cmf.json.value import to_json
from cmf.message.request import Response
from pipeline.approvals.needs import ApprovalAnswer
from pipeline.approvals.sealing import ABOUT, HELD_BY, REPLY, Sealer
from pipeline.decisions.context import Context, SessionKey, session_key
from pipeline.decisions.errors import ApprovalError
from pipeline.decisions.stage import Traffic
from pipeline.sessions.base import SessionStore, unknown_approval


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
