"""A UI message as the chunks that stream it; they fold to the same message. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cmf.adapters.aisdk.fold import ASKED_AS, DONE, OpenParts, renamed
from cmf.adapters.aisdk.parts_in import FORMAT
from cmf.adapters.aisdk.response import current_body, stop_word
from cmf.adapters.wire.base import WireEvent
from cmf.adapters.wire.fields import extra_of
from cmf.adapters.wire.stream import LiveCalls, StreamEvent, TextDelta, ThinkingDelta
from cmf.enums import MessageStatus
from cmf.message.request import Response

_TEXTS: Final = ("text", "reasoning")
_ASKED_IN: Final = {name: key for key, name in ASKED_AS.items()}


def error_event(text: str, reply: Any) -> WireEvent:
    """The chunk for an error with this text."""
    return {"data": {"type": "error", "errorText": text}}


def write_events(response: Response) -> list[WireEvent]:
    """The events of the UI message: what it says, and nothing else that a stream may have said.

    `finish` and `[DONE]` are sent only if the answer came to its end.
    """
    choice = response.choices[0] if response.choices else None
    whole = choice is None or choice.message.status in (MessageStatus.COMPLETE, MessageStatus.ERROR)
    whole = whole and extra_of(response, FORMAT).get("partial") is not True
    body = current_body(response)
    failed = response.error.message or "" if response.error is not None and choice is not None else None
    aborted = choice is not None and choice.message.status is MessageStatus.CANCELLED
    chunks = [*_chunks(body, error=failed, aborted=aborted)]
    if whole and not ("error" in body and "parts" not in body):
        word = stop_word(choice)
        chunks.append({"type": "finish"} if word is None else {"type": "finish", "finishReason": word})
    events: list[WireEvent] = [{"data": chunk} for chunk in chunks]
    return [*events, {"data": DONE}] if whole else events


def _chunks(body: Mapping[str, Any], *, error: str | None, aborted: bool) -> Iterator[dict[str, Any]]:
    parts = body.get("parts")
    if not isinstance(parts, list):
        if isinstance(body.get("error"), str):
            yield {"type": "error", "errorText": body["error"]}
        return
    start: dict[str, Any] = {"type": "start"}
    if "id" in body:
        start["messageId"] = body["id"]
    if "metadata" in body:
        start["messageMetadata"] = body["metadata"]
    yield start
    in_step = False
    for part in parts:
        if part.get("type") == "step-start":
            if in_step:
                yield {"type": "finish-step"}
            in_step = True
            yield {"type": "start-step"}
        else:
            yield from _part(part)
    if error is not None:
        yield {"type": "error", "errorText": error}
    if in_step:
        yield {"type": "finish-step"}
    if aborted:
        yield {"type": "abort"}


def _part(part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = part.get("type")
    if kind in _TEXTS and isinstance(part.get("text"), str):
        yield from _text_part(part, str(kind))
    elif isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool"):
        yield from _tool(part, kind)
    else:
        yield dict(part)


def _text_part(part: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    own = part.get("id", kind)  # one part is open at a time, so that one id serves all
    start = {"type": f"{kind}-start", "id": own}
    if part.get("providerMetadata") is not None:
        start["providerMetadata"] = part["providerMetadata"]
    yield start
    if part["text"]:
        yield {"type": f"{kind}-delta", "id": own, "delta": part["text"]}
    if part.get("state", "done") == "done":
        end = {"type": f"{kind}-end", "id": own}
        yield {**end, "citations": part["citations"]} if part.get("citations") is not None else end


def _tool(part: Mapping[str, Any], kind: str) -> Iterator[dict[str, Any]]:
    call_id = part.get("toolCallId")
    name = part.get("toolName") if kind == "dynamic-tool" else kind.removeprefix("tool-")
    call = {key: part[key] for key in ("providerExecuted", "title", "toolMetadata") if key in part}
    call |= {"toolCallId": call_id, "toolName": name}
    if kind == "dynamic-tool":
        call["dynamic"] = True
    if part.get("callProviderMetadata") is not None:
        call["providerMetadata"] = part["callProviderMetadata"]
    state = part.get("state")
    if name:
        if "input" in part:
            yield {"type": "tool-input-available", **call, "input": part["input"]}
        else:
            yield {"type": "tool-input-start", **call}
    answers = [*_answers(part, call)]
    if state in ("output-available", "output-error"):
        yield from _approval(part, call_id)
        yield from answers
        return
    yield from answers  # what came after them gave the part its state
    yield from _approval(part, call_id)
    if state == "output-denied":
        yield {"type": "tool-output-denied", "toolCallId": call_id}


def _answers(part: Mapping[str, Any], call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The chunk of a call's output or error, if there is one."""
    answer: dict[str, Any] = {"toolCallId": call["toolCallId"]}
    if part.get("providerExecuted") is not None:
        answer["providerExecuted"] = part["providerExecuted"]
    if part.get("resultProviderMetadata") is not None:
        answer["providerMetadata"] = part["resultProviderMetadata"]
    error = {"errorText": part["errorText"]} if "errorText" in part else {}
    failed = bool(error) or part.get("state") == "output-error"
    if "output" in part and part.get("state") != "output-error":
        preliminary = {"preliminary": part["preliminary"]} if part.get("preliminary") is not None else {}
        yield {"type": "tool-output-available", **answer, **preliminary, "output": part["output"]}
    elif failed and "rawInput" in part and part.get("input") is None:
        call = {key: item for key, item in call.items() if key != "providerMetadata"}
        yield {"type": "tool-input-error", **call, **answer, "input": part["rawInput"], **error}
    elif failed:
        yield {"type": "tool-output-error", **answer, **error}


def _approval(part: Mapping[str, Any], call_id: Any) -> Iterator[dict[str, Any]]:
    approval = part.get("approval")
    if not isinstance(approval, dict) or "id" not in approval:
        return
    answered = "approved" in approval
    outcome = {key: approval[key] for key in ("approved", "reason") if answered and key in approval}
    rest = {key: item for key, item in approval.items() if key != "id" and key not in outcome}
    asked = renamed(rest, _ASKED_IN, leave=())
    yield {"type": "tool-approval-request", "toolCallId": call_id, "approvalId": approval["id"], **asked}
    if answered:
        yield {"type": "tool-approval-response", "approvalId": approval["id"], **outcome}


class LiveDecoder:
    """What each event adds at once: the live preview of a stream. Deltas that fold to nothing add nothing."""

    __slots__ = ("_calls", "_open")

    def __init__(self) -> None:
        self._open: OpenParts[None] = OpenParts()
        self._calls = LiveCalls()  # this step's, by id

    def __call__(self, event: WireEvent) -> list[StreamEvent]:
        """The canonical events of one wire event."""
        chunk = event.get("data")
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        if not isinstance(chunk, dict) or not isinstance(kind, str):
            return []
        if kind in ("finish-step", "reset-step"):
            self._open = OpenParts()
        elif kind == "start-step":
            self._calls.forget()
        elif kind in ("text-start", "text-delta", "text-end", "reasoning-start", "reasoning-delta", "reasoning-end"):
            return self._text_chunk(chunk, kind)
        elif kind.startswith("tool-input-"):
            return self._tool_chunk(chunk, kind)
        return []

    def _text_chunk(self, chunk: Mapping[str, Any], kind: str) -> list[StreamEvent]:
        what, _, step = kind.partition("-")
        text = chunk.get("delta")
        if step == "start":
            self._open.begin(what, chunk.get("id"), None)
        elif step == "end":
            self._open.end(what, chunk.get("id"))
        elif isinstance(text, str):
            if self._open.find(what, chunk.get("id")) is None:
                self._open.begin(what, chunk.get("id"), None)
            return [TextDelta(text=text) if what == "text" else ThinkingDelta(text=text)]
        return []

    def _tool_chunk(self, chunk: Mapping[str, Any], kind: str) -> list[StreamEvent]:
        call_id, name = chunk.get("toolCallId"), chunk.get("toolName")
        if not isinstance(call_id, str):
            return []
        added: list[StreamEvent] = []
        if call_id not in self._calls and isinstance(name, str):
            added.append(self._calls.begin(call_id, call_id, name))
        text = chunk.get("inputTextDelta")
        if kind == "tool-input-delta" and call_id in self._calls and isinstance(text, str):
            added.append(self._calls.grow(call_id, len(text)))
        return added
