"""Answers that say why there is no reply of a model, the same for all dialects. Spec: docs/spec/gateway.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cmf.enums import ViewKind
from cmf.errors import CmfError
from pipeline.decisions.decision import TOO_MUCH, Action
from pipeline.decisions.errors import ApprovalRequired, DecisionError, PolicyUnavailable, Unjudgeable

OUTAGE_SECONDS: Final = 5  # after which a client may try again
_FORM: Final = frozenset({"input.number", "input.too-deep"})  # what is not too large, but has the wrong form
_PLAIN_URI: Final = re.compile(r"[a-z]+://[A-Za-z0-9_.:/-]{1,128}")  # a name in which nobody can say anything
FINAL: Final = {"x-should-retry": "false"}  # keeps SDKs from trying again


class Refusal(Exception):
    """Why the client gets no reply of a model.

    Attributes:
        status: the HTTP status: 4xx, or 502 to 504 where trying again may help; never 500 for a policy reason.
        code: stable, for programs. message: for people; it never quotes the request.
        details: what the SDK of the client's dialect reads of an error; most dialects have none.
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
        self.details: Mapping[str, str] = {}


def later(seconds: int = OUTAGE_SECONDS) -> dict[str, str]:
    """The header that tells when to try again."""
    return {"retry-after": str(seconds)}


def retry_after(seconds: int | None) -> dict[str, str]:
    """As `later`; none for None."""
    return {} if seconds is None else later(seconds)


def ending() -> Refusal:
    """The refusal of a request whose time is over because the gateway shuts down."""
    return Refusal(503, "gateway.ending", "This gateway is shutting down: try again.", headers=later(1))


def of_decision(error: DecisionError, *, releases: bool = False, waited: str = "") -> Refusal:
    """The refusal for a decision that lets nothing through: 403, not to be retried; 503 if policy gave none.

    Where a person has to approve: with `releases`, a reply is kept, and given to whoever names the approval; `waited`
    says why nobody waits for that any longer.
    """
    headers = {"x-cmf-decision-id": error.decision_id, "x-cmf-verdict": error.decision.verdict.value}
    if isinstance(error, PolicyUnavailable):
        return Refusal(503, error.code, error.user_message, headers=headers | (later() if error.retryable else FINAL))
    headers |= FINAL
    if isinstance(error, Unjudgeable):  # what the client sent is at fault, and it has to send something else
        status = 413 if error.code in TOO_MUCH and error.code not in _FORM else 400
        return Refusal(status, error.code, f"{error.user_message} (decision {error.decision_id})", headers=headers)
    message = error.user_message
    if isinstance(error, ApprovalRequired) and error.approval_ids:
        headers["x-cmf-approval-id"] = ",".join(error.approval_ids)
        message = f"{message} {_asked(error, releases=releases)}{waited and f' {waited}'}"
    elif isinstance(error, ApprovalRequired):
        message = f"{message} Nobody can approve it outside of a session: name one in the header x-cmf-session-id."
    return Refusal(403, error.code, f"{message} (decision {error.decision_id})", headers=headers)


def _asked(error: ApprovalRequired, *, releases: bool) -> str:
    """What is asked of whom, and how the client goes on after that."""
    named = dict.fromkeys(view.uri for view in error.decision.hit_views if view.outcome is Action.SUSPEND)
    about = [uri for uri in named if uri is not None and _PLAIN_URI.fullmatch(uri)]
    what = f" ({', '.join(about)})" if about else ""
    is_kept = releases and any(view.kind == ViewKind.RESPONSE for view in error.decision.views[:1])
    then = f"with the header x-cmf-approval-id: {error.approval_ids[0]}" if is_kept else "again"
    who = "somebody who may approve (permission cmf:approve), and not the requester, has to give it"
    return f"Waiting for approval {', '.join(error.approval_ids)}{what}: {who}. After that, send the request {then}."


def of_unreadable(error: CmfError, status: int = 400) -> Refusal:
    """The refusal for a body that cannot be read, or cannot be expressed in a format: what, where, what to do."""
    where = f" at {error.path}" if error.path else ""
    hint = f"; {error.hint}" if error.hint else ""
    return Refusal(status, error.code, f"{error.message}{where}{hint}", headers=FINAL)
