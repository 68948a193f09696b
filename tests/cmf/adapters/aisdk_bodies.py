"""Bodies of the AI SDK, and what its tests ask of them."""

from __future__ import annotations

import json
from typing import Any

from cmf.adapters import get
from cmf.message.request import Request, Response
from cmf.views.iterate import iter_views

AISDK = get("aisdk")
PNG = "iVBORw0KGgo="


def ui(*parts: dict[str, Any], role: str = "assistant", **own: Any) -> dict[str, Any]:
    return {"id": "m1", "role": role, "parts": list(parts), **own}


def text(said: str, **own: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **own}


def tool(state: str, *, name: str = "look", call_id: str = "c1", **own: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, **own}


STEP = {"type": "step-start"}


def read(*messages: dict[str, Any]) -> Request:
    return AISDK.from_wire_request({"id": "chat", "messages": list(messages), "trigger": "submit-message"})


def written(request: Request) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = AISDK.to_wire(request)["messages"]
    return found


def shown(value: Request | Response) -> str:
    return json.dumps([view.to_opa_input() for view in iter_views(value)])
