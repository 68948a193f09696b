"""Ids and a time for a response from an upstream whose dialect has none [GW-19]. Adapters mint nothing [A2]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ulid import ULID

from cmf.adapters.wire.call_ids import with_ids
from cmf.json.frozen import FrozenDict, freeze
from cmf.json.value import replace
from cmf.message.request import Response

# The fields of an answer in the Responses format beside its id.
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


def identified(response: Response, dialect: str, request_id: str) -> Response:
    """The response with ids in `dialect` for itself and its calls, derived from the request's. Its own ids are kept.

    Plain numbers would repeat from turn to turn, and clients tell the calls of a conversation apart by their ids.
    """
    if response.error is not None or not response.choices or dialect == "ollama":
        return response
    if dialect == "anthropic_messages":
        first, *others = response.choices
        if first.message.id is not None:
            return response
        first = replace(first, message=replace(first.message, id=f"msg_{request_id}"))
        return _with_call_ids(replace(response, choices=(first, *others)), request_id)
    extra = response.extra or FrozenDict()
    if dialect in extra:
        return response  # it came in this very dialect
    named = replace(response, extra=freeze({**extra, dialect: _facts(dialect, request_id)}))
    return named if dialect == "gemini" else _with_call_ids(named, request_id)


def _with_call_ids(response: Response, request_id: str) -> Response:
    messages = with_ids([choice.message for choice in response.choices], prefix=f"call_{request_id}_")
    choices = [
        choice if message is choice.message else replace(choice, message=message)
        for choice, message in zip(response.choices, messages, strict=True)
    ]
    return replace(response, choices=tuple(choices))


def _facts(dialect: str, request_id: str) -> dict[str, Any]:
    created = int(ULID.from_str(request_id).timestamp)
    if dialect == "openai_chat":
        return {"id": f"chatcmpl-{request_id}", "created": created}
    if dialect == "openai_responses":
        return {**_RESPONSE, "id": f"resp_{request_id}", "created_at": created}
    return {"responseId": request_id}
