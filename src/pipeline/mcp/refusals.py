"""Answers to refused messages. Spec: docs/spec/mcp-proxy.md [MCPX-30] ff.

Invalid messages get the error numbers of JSON-RPC; decisions of policy get -32010 and following, which no SDK takes
for a lost connection or a timeout to retry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.mcp.request import VERSION_KEY
from cmf.errors import CmfError
from pipeline.decisions.errors import ApprovalRequired, DecisionError, PolicyUnavailable
from pipeline.mcp.frames import INVALID_PARAMS, FrameError, Id

REFUSED: Final = -32010
APPROVAL: Final = -32011
UNAVAILABLE: Final = -32012
CLOSED: Final = -32000
TIMEOUT: Final = -32001
HEADER_MISMATCH: Final = -32020  # since revision 2026-07-28: headers and body differ
UNSUPPORTED_VERSION: Final = -32022


class Refused(Exception):
    """A message is not forwarded.

    Attributes:
        number: the JSON-RPC error number. code: stable, for programs.
        message: for people; never content. data: the `data` of the JSON-RPC error.
    """

    def __init__(self, number: int, code: str, message: str, **data: Any) -> None:
        super().__init__(code)
        self.number = number
        self.code = code
        self.message = message
        self.data = {"code": code, **data}

    @property
    def decision_id(self) -> str | None:
        """The decision that refused it; None where there was none."""
        id_ = self.data.get("decision_id")
        return id_ if isinstance(id_, str) else None

    @property
    def outage(self) -> bool:
        """Whether the cause is an outage and not a decision: a retry may help."""
        return self.number in (UNAVAILABLE, CLOSED, TIMEOUT)


def of_decision(error: DecisionError) -> Refused:
    """The refusal for a decision that blocks the message."""
    decision = error.decision
    data: dict[str, Any] = {
        "decision_id": error.decision_id,
        "verdict": decision.verdict.value,
        "retryable": error.retryable,
    }
    message = error.user_message
    if isinstance(error, PolicyUnavailable):
        return Refused(UNAVAILABLE, error.code, f"{message} (decision {error.decision_id})", **data)
    if isinstance(error, ApprovalRequired):
        if error.approval_ids:
            data["approval_ids"] = list(error.approval_ids)
            message = f"{message} Waiting for approval {', '.join(error.approval_ids)}."
        return Refused(APPROVAL, error.code, f"{message} (decision {error.decision_id})", **data)
    return Refused(REFUSED, error.code, f"{message} (decision {error.decision_id})", **data)


def timed_out(who: str = "server") -> Refused:
    """The refusal of a call that `who`, the server or the client, did not answer in time."""
    return Refused(TIMEOUT, "mcp.timeout", f"The {who} did not answer in time.", retryable=True)


def client_disconnected() -> Refused:
    """The refusal of a server's call whose client disconnected before it answered."""
    return Refused(CLOSED, "mcp.client-disconnected", "The client left before it answered.", retryable=False)


def of_unreadable(error: CmfError) -> Refused:
    """The refusal of a message that is not valid MCP, or cannot be expressed in MCP."""
    where = f" at {error.path}" if error.path else ""
    hint = f"; {error.hint}" if error.hint else ""
    return Refused(INVALID_PARAMS, error.code, f"{error.message}{where}{hint}")


def of_frame(error: FrameError) -> dict[str, Any]:
    """The answer to a message that could not be parsed."""
    return error_body(error.id, Refused(error.number, error.code, error.message))


def error_body(id: Id | None, refused: Refused) -> dict[str, Any]:
    """A JSON-RPC error response."""
    error = {"code": refused.number, "message": refused.message, "data": refused.data}
    return {"jsonrpc": "2.0", "id": id, "error": error}


def refusal_body(id: Id, body: Mapping[str, Any], refused: Refused) -> dict[str, Any]:
    """The answer to the refused call `body`.

    A refused tool call gets a tool result with `isError`, so that the model that called the tool reads the reason.
    Outages and all other calls get a JSON-RPC error.
    """
    params = body.get("params") or {}
    if body.get("method") != "tools/call" or refused.outage:
        return error_body(id, refused)
    meta_out = {f"cmf/{name.replace('_', '-')}": value for name, value in refused.data.items()}
    result: dict[str, Any] = {
        "content": [{"type": "text", "text": refused.message}],
        "isError": True,
        "_meta": meta_out,
    }
    meta = params.get("_meta")
    if isinstance(meta, Mapping) and VERSION_KEY in meta:
        result["resultType"] = "complete"  # required in every result since revision 2026-07-28
    return {"jsonrpc": "2.0", "id": id, "result": result}
