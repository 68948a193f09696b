"""Small bodies of Ollama's, and what must hold of each that is read."""

from __future__ import annotations

import base64
from typing import Any

import orjson

from cmf.adapters import get
from cmf.json.frozen import same_spelling
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views

OLLAMA = get("ollama")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n...").decode()


def asked(*messages: Any, **envelope: Any) -> dict[str, Any]:
    return {"model": "qwen3:4b", "messages": list(messages), "stream": False, **envelope}


def answered(**message: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "message": {"role": "assistant", "content": "", **message},
        "done": True,
        "done_reason": "stop",
    }


def shown(value: Request | Response) -> str:
    return orjson.dumps([view.to_opa_input() for view in iter_views(value)]).decode()


def kept(body: dict[str, Any]) -> Request:
    """The request of a body that comes back as it was."""
    request = OLLAMA.from_wire_request(body)
    assert same_spelling(OLLAMA.to_wire(request), body)
    return request


def heard(body: dict[str, Any]) -> Response:
    """The response of a body that comes back as it was."""
    response = OLLAMA.from_wire_response(body)
    assert same_spelling(OLLAMA.to_wire_response(response), body)
    return response


def call(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": {}}, **more}
