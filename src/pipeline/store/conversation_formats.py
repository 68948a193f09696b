"""Importing and exporting conversations. Spec: docs/spec/ledger.md [LED-12].

This is for operators, not for traffic: no policy is evaluated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cmf import adapters
from cmf.errors import CmfError, ShapeError
from cmf.interop.agent_threads import from_agent_threads, to_agent_threads
from cmf.json.codec import dumps, loads
from cmf.message.message import Message
from cmf.message.request import Request

CANONICAL: Final = "canonical"
AGENT_THREADS: Final = "agent_threads"
WIRES: Final = ("openai_chat", "anthropic_messages", "aisdk")
FORMATS: Final = (CANONICAL, AGENT_THREADS, *WIRES)
_HINT: Final = "give a list of messages, or an object with `messages`"


def read_conversation(data: bytes, name: str) -> list[Message]:
    """The messages in a file of the format `name`: JSON lines if canonical, otherwise one JSON value.

    Raises:
        CmfError: not that format, with the path. UnknownFormatError: no such format.
    """
    found = _read(data, name)
    if not found:
        raise ShapeError("the conversation has no messages", hint="give at least one")
    return found


def _read(data: bytes, name: str) -> list[Message]:
    if name == CANONICAL:
        return [_line(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    body = loads(data)
    if name == AGENT_THREADS:
        return [from_agent_threads(one, f"$[{place}]") for place, one in enumerate(_listed(body))]
    adapter = adapters.get(name)
    return list(adapter.from_wire_request({"messages": body} if isinstance(body, list) else body).messages)


def _line(number: int, line: bytes) -> Message:
    try:
        return Message.model_validate_json(line)
    except CmfError as error:
        error.message = f"line {number} is no message: {error.message}"
        error.hint = error.hint or "give lines as `cmf ledger export` writes them, or name the format"
        raise


def write_conversation(messages: Sequence[Message], name: str) -> bytes:
    """The file that `read_conversation` reads; what a wire format cannot express is dropped and recorded as a loss.

    Raises:
        CmfError: something that the format cannot express. UnknownFormatError: no such format.
    """
    if name == CANONICAL:
        return b"".join(message.model_dump_json() + b"\n" for message in messages)
    if name == AGENT_THREADS:
        return dumps([to_agent_threads(message) for message in messages]) + b"\n"
    body = adapters.get(name).to_wire(Request(messages=tuple(messages)))
    return dumps(body if isinstance(body, list) else {key: body[key] for key in ("system", "messages") if key in body})


def _listed(body: Any) -> list[Any]:
    found = body.get("messages") if isinstance(body, dict) else body
    if not isinstance(found, list):
        raise ShapeError("not a conversation", path="$", hint=_HINT)
    return found
