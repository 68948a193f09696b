"""Small bodies of Gemini's, and what must hold of each that is read."""

from __future__ import annotations

from typing import Any

import orjson

from cmf.adapters import get
from cmf.json.frozen import same_spelling
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views

GEMINI = get("gemini")


def asked(*parts: Any, **envelope: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": list(parts)}], **envelope}


def answered(*parts: Any, **candidate: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, "finishReason": "STOP", **candidate}]}


def shown(value: Request | Response) -> str:
    return orjson.dumps([view.to_opa_input() for view in iter_views(value)]).decode()


def part_of(raw: dict[str, Any]) -> Any:
    """The one part of a model's turn; the turn comes back as it was."""
    body = {"contents": [{"role": "model", "parts": [raw]}]}
    request = GEMINI.from_wire_request(body)
    assert same_spelling(GEMINI.to_wire(request), body)
    return request.messages[0].content[0]


def kept(body: dict[str, Any]) -> Request:
    """The request of a body that comes back as it was."""
    request = GEMINI.from_wire_request(body)
    assert same_spelling(GEMINI.to_wire(request), body)
    return request


def heard(body: Any) -> Response:
    """The response of a body that comes back as it was."""
    response = GEMINI.from_wire_response(body)
    assert same_spelling(GEMINI.to_wire_response(response), body)
    return response


def chunks(*bodies: Any) -> list[Any]:
    return [{"data": body} for body in bodies]
