"""Requests of the AI SDK, both ways: what `useChat` sends to its server. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.aisdk.parts_in import FORMAT, read_message
from cmf.adapters.aisdk.parts_out import write_messages, write_plain
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.fields import Fields, extra_of
from cmf.adapters.wire.layout import respell_one, shape_of, spelled_one
from cmf.adapters.wire.loss import drop, drop_foreign_extras
from cmf.errors import UnsupportedError
from cmf.json.frozen import freeze
from cmf.json.value import trusted
from cmf.message.message import Message
from cmf.message.request import Request

_CALL: Final = HttpCall(path="/api/chat", headers={"Content-Type": "application/json"})


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request: of an object with `messages` (or the last `message` alone), or a list of messages."""
    raw = freeze(body)
    request, form = _decode(raw, model)
    return spelled_one(request, _encode(request, form), raw, format_name=FORMAT, notes=form)


def _decode(raw: Any, model: str | None) -> tuple[Request, dict[str, Any]]:
    """The request, and how its messages were arranged in the body."""
    if isinstance(raw, list):
        return trusted(Request, model=model, messages=_conversation(raw, "$")), {"form": "list"}
    fields = Fields(raw, "$")
    listed = fields.take("messages", list)
    form: dict[str, Any] = {}
    if listed is None:
        listed, form = [fields.need("message", dict)], {"form": "one"}
        messages = _conversation(listed, "$.message")
    else:
        messages = _conversation(listed, "$.messages")
    named = fields.take("model", str)
    model = named if named is not None else model
    return trusted(Request, model=model, messages=messages, extra=fields.rest(FORMAT)), form


def _conversation(listed: list[Any], path: str) -> tuple[Message, ...]:
    messages: list[Message] = []
    for index, raw in enumerate(listed):
        at = f"{path}[{index}]"
        messages += read_message(raw, at, index=index, split=True, encode=_encoder(index), names={})
    return tuple(messages)


def _encoder(index: int) -> Any:
    return lambda group: write_plain(group, index=index)


# -- writing -----------------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """The POST to the application's chat route."""
    return _CALL


def write_request(request: Request) -> Any:
    """The body of a request."""
    drop_foreign_extras(FORMAT, request)
    return respell_one(
        _encode(request, shape_of(request, FORMAT)),
        request,
        format_name=FORMAT,
        decode=lambda spelt: _decode(spelt, request.model)[0],
    )


def _encode(request: Request, form: Mapping[str, Any]) -> Any:
    for name in ("tools", "tool_choice", "response_schema"):
        if getattr(request, name) not in (None, ()):
            raise UnsupportedError(
                f"a UI message request cannot carry {name}", path=name, hint="set it on the chat's server"
            )
    for name, item in (*request.sampling.model_dump().items(), ("reasoning_effort", request.reasoning_effort)):
        if item is not None:
            drop(FORMAT, name, "set on the chat's server")
    messages = write_messages(request.messages)
    if form.get("form") == "list":
        return messages
    body: dict[str, Any] = dict(extra_of(request, FORMAT))
    if form.get("form") == "one" and len(messages) == 1:
        body["message"] = messages[0]
    else:
        body["messages"] = messages
    if request.model is not None:
        body["model"] = request.model
    return body
