"""What a message is answered with that goes no further. Spec: docs/spec/mcp-proxy.md [MCPX-30] ff.

JSON-RPC's own numbers for what is no message; -32010 ff. for what was judged: none of them is one that SDKs take for a
lost connection or a timeout, and try again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.mcp.adapter import VERSION_KEY
from cmf.errors import CmfError
from pipeline.errors import ApprovalRequired, DecisionError, PolicyUnavailable
from pipeline.mcp_proxy.frames import INVALID_PARAMS, FrameError, Id

REFUSED: Final = -32010
APPROVAL: Final = -32011
UNAVAILABLE: Final = -32012
CLOSED: Final = -32000
TIMEOUT: Final = -32001


class Refused(Exception):
    """Why a message goes no further.

    Attributes:
        number: the number of the JSON-RPC error. code: stable, for programs.
        message: for people; never content. data: what else is told.
    """

    def __init__(self, number: int, code: str, message: str, **data: Any) -> None:
        super().__init__(code)
        self.number = number
        self.code = code
        self.message = message
        self.data = {"code": code, **data}

    @property
    def outage(self) -> bool:
        """Whether nobody judged: trying again may help."""
        return self.number in (UNAVAILABLE, CLOSED, TIMEOUT)


def of_decision(error: DecisionError) -> Refused:
    """A decision that lets nothing through."""
    decision = error.decision
    told: dict[str, Any] = {
        "decision_id": error.decision_id,
        "verdict": decision.verdict.value,
        "retryable": error.retryable,
    }
    message = error.user_message
    if isinstance(error, PolicyUnavailable):
        return Refused(UNAVAILABLE, error.code, f"{message} (decision {error.decision_id})", **told)
    if isinstance(error, ApprovalRequired):
        if error.approval_ids:
            told["approval_ids"] = list(error.approval_ids)
            message = f"{message} Waiting for approval {', '.join(error.approval_ids)}."
        return Refused(APPROVAL, error.code, f"{message} (decision {error.decision_id})", **told)
    return Refused(REFUSED, error.code, f"{message} (decision {error.decision_id})", **told)


def too_late(who: str = "server") -> Refused:
    """No answer came in time from `who`: the server or the client."""
    return Refused(TIMEOUT, "mcp.timeout", f"The {who} did not answer in time.", retryable=True)


def client_gone() -> Refused:
    """For a server's call: the client disconnected before it answered."""
    return Refused(CLOSED, "mcp.client-gone", "The client left before it answered.", retryable=False)


def of_unreadable(error: CmfError) -> Refused:
    """What is no message of MCP, or cannot be said in it."""
    where = f" at {error.path}" if error.path else ""
    hint = f"; {error.hint}" if error.hint else ""
    return Refused(INVALID_PARAMS, error.code, f"{error.message}{where}{hint}")


def of_frame(error: FrameError) -> dict[str, Any]:
    """The answer to what could not be read."""
    return error_body(error.id, Refused(error.number, error.code, error.message))


def error_body(id: Id | None, refused: Refused) -> dict[str, Any]:
    """The JSON-RPC error."""
    error = {"code": refused.number, "message": refused.message, "data": refused.data}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def refusal_body(id: Id, body: Mapping[str, Any], refused: Refused) -> dict[str, Any]:
    """The answer to the call `body`, which was refused: who calls a tool is a model, and is told in a result of it.

    An outage, and whatever else than a tool was called, is a JSON-RPC error.
    """
    params = body.get("params") or {}
    if body.get("method") != "tools/call" or refused.outage:
        return error_body(id, refused)
    told = {f"cmf/{name.replace('_', '-')}": value for name, value in refused.data.items()}
    result: dict[str, Any] = {"content": [{"type": "text", "text": refused.message}], "isError": True, "_meta": told}
    meta = params.get("_meta")
    if isinstance(meta, Mapping) and VERSION_KEY in meta:
        result["resultType"] = "complete"  # which revision 2026-07-28 wants of every result
    return {"jsonrpc": "2.0", "id": id, "result": result}


__all__ = [
    "APPROVAL",
    "CLOSED",
    "REFUSED",
    "TIMEOUT",
    "UNAVAILABLE",
    "Refused",
    "client_gone",
    "error_body",
    "of_decision",
    "of_frame",
    "of_unreadable",
    "refusal_body",
    "too_late",
]
