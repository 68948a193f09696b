"""An answer other than a model's: what is wrong, in one place for all dialects. Spec: docs/spec/gateway.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cmf.errors import CmfError
from pipeline.errors import ApprovalRequired, DecisionError, PolicyUnavailable

OUTAGE_SECONDS: Final = 5  # when to try again after an outage
FINAL: Final = {"x-should-retry": "false"}  # SDKs do not try it again


class Refusal(Exception):
    """Why there is no model's answer, as it will be said to the client.

    Attributes:
        status: the HTTP status: 4xx, or 502 to 504 for what an SDK may try again; never 500 for a policy's reason.
        code: stable, for programs. message: for people; never the content of the request.
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def later(seconds: int = OUTAGE_SECONDS) -> dict[str, str]:
    """The header that says when to try again."""
    return {"retry-after": str(seconds)}


def of_decision(error: DecisionError) -> Refusal:
    """A decision that lets nothing through: 403, and no SDK tries it again; 503 where policy could not be asked."""
    headers = {"x-cmf-decision-id": error.decision_id, "x-cmf-verdict": error.decision.verdict.value}
    if isinstance(error, PolicyUnavailable):
        return Refusal(503, error.code, error.user_message, headers=headers | later())
    headers |= FINAL
    message = error.user_message
    if isinstance(error, ApprovalRequired) and error.approval_ids:
        headers["x-cmf-approval-id"] = ",".join(error.approval_ids)
        message = f"{message} Waits for approval {', '.join(error.approval_ids)}."
    return Refusal(403, error.code, f"{message} (decision {error.decision_id})", headers=headers)


def of_unreadable(error: CmfError, status: int = 400) -> Refusal:
    """What is no request of this dialect, or one that the route's upstream cannot be asked: what, where, what to do."""
    where = f" at {error.path}" if error.path else ""
    hint = f"; {error.hint}" if error.hint else ""
    return Refusal(status, error.code, f"{error.message}{where}{hint}", headers=FINAL)


__all__ = ["FINAL", "Refusal", "later", "of_decision", "of_unreadable"]
