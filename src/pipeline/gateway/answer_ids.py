"""An id, and a time, for an answer whose upstream's dialect has none to give [GW-19]. Adapters mint nothing [A2]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ulid import ULID

from cmf.frozen import FrozenDict, freeze
from cmf.request import Response
from cmf.value import replace

# What the Responses format says of an answer beside its id.
_RESPONSE: Final[Mapping[str, Any]] = {
    "object": "response",
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
}


def identified(response: Response, dialect: str, request_id: ULID) -> Response:
    """The response with an id in `dialect`, made of the request's; as it is where it has one, or is an error."""
    if response.error is not None or not response.choices or dialect == "ollama":
        return response
    if dialect == "anthropic_messages":
        first, *others = response.choices
        if first.message.id is not None:
            return response
        named = replace(first, message=replace(first.message, id=f"msg_{request_id}"))
        return replace(response, choices=(named, *others))
    extra = response.extra or FrozenDict()
    if dialect in extra:
        return response  # it came in this very dialect
    return replace(response, extra=freeze({**extra, dialect: _facts(dialect, request_id)}))


def _facts(dialect: str, request_id: ULID) -> dict[str, Any]:
    made = int(request_id.timestamp)
    if dialect == "openai_chat":
        return {"id": f"chatcmpl-{request_id}", "created": made}
    if dialect == "openai_responses":
        return {**_RESPONSE, "id": f"resp_{request_id}", "created_at": made}
    return {"responseId": str(request_id)}


__all__ = ["identified"]
