"""The UI message stream of the AI SDK: chunks to one UI message, and back. Spec: docs/spec/adapters/aisdk.md [AISDK-7].

The fold builds what the SDK's own client would hold at the end. What such a client forgets or never keeps (an error, a
superseded input, a transient chunk, a delta without its start) is listed under `cmf_stream`, which ends in the
response's `extra`: nothing of a stream goes by unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from cmf.adapters.base import WireEvent
from cmf.codec import dumps, loads_object
from cmf.errors import ShapeError
from cmf.frozen import same_json

DONE: Final = "[DONE]"
STREAM: Final = "cmf_stream"
PARTIAL: Final = "cmf_partial"

_COPIED: Final = ("source-url", "source-document", "file", "reasoning-file", "custom")
_OWN_KEYS: Final = frozenset(
    {
        "type", "id", "delta", "toolCallId", "toolName", "inputTextDelta", "input", "output", "errorText", "dynamic",
        "providerExecuted", "providerMetadata", "messageId", "messageMetadata", "finishReason", "approvalId",
        "approved", "reason", "title", "toolMetadata", "preliminary",
    }
)  # fmt: skip


class Fold:
    """A UI message as it grows."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {"role": "assistant", "parts": []}
        self.notes: dict[str, Any] = {}
        self._open: dict[tuple[str, Any], dict[str, Any]] = {}
        self._unused: dict[tuple[str, Any], dict[str, Any]] = {}
        self._tools: dict[Any, dict[str, Any]] = {}
        self._inputs: dict[Any, str] = {}
        self._seen: list[dict[str, Any]] = []
        self._finished = self._started = False

    # -- chunk by chunk -----------------------------------------------------------------------------------------------

    def add(self, data: Any) -> None:
        """One chunk, or `[DONE]`.

        Raises:
            ShapeError: neither.
        """
        if data == DONE or data is None or data == "":
            return  # the end of the transport, a comment, a keep-alive: `finish` is what ends an answer
        if not isinstance(data, dict):
            raise ShapeError("an event that is no chunk", path="$", hint="see the UI message stream protocol")
        kind = data.get("type")
        handler = _HANDLERS.get(kind) if isinstance(kind, str) else None
        if isinstance(kind, str) and (kind.startswith("data-") or kind in _COPIED):
            self._copy(data, kind)
        elif handler is None:
            self._note("chunks", data)
        elif not handler(self, data):
            self._note("dropped", data)
        elif kind not in ("text-delta", "reasoning-delta", "tool-input-delta"):
            self._seen.append(data)

    def _note(self, name: str, chunk: Any) -> None:
        self.notes.setdefault(name, []).append(chunk)

    def _copy(self, chunk: dict[str, Any], kind: str) -> None:
        """A chunk that is a part as it stands; a later one of the same id takes its place."""
        if chunk.get("transient") is True:
            self._note("chunks", chunk)
            return
        parts = self.body["parts"]
        same = [at for at, part in enumerate(parts) if part["type"] == kind and _same_id(part, chunk)]
        if kind.startswith("data-") and same:
            self._note("superseded", parts[same[0]])
            parts[same[0]] = chunk
        else:
            parts.append(chunk)

    def start(self, chunk: dict[str, Any]) -> bool:
        """The message begins: its id, its metadata."""
        self._started = True
        if "messageId" in chunk:
            self.body["id"] = chunk["messageId"]
        return self.metadata(chunk)

    def metadata(self, chunk: dict[str, Any]) -> bool:
        """Metadata is merged, object by object."""
        found = chunk.get("messageMetadata")
        if found is not None:
            self.body["metadata"] = _merged(self.body.get("metadata"), found)
        return True

    def finish(self, chunk: dict[str, Any]) -> bool:
        """The answer is whole."""
        self._finished = True
        if "finishReason" in chunk:
            self.notes["finishReason"] = chunk["finishReason"]
        return self.metadata(chunk)

    def begin_step(self, _: dict[str, Any]) -> bool:
        """Another call of the model begins."""
        self.body["parts"].append({"type": "step-start"})
        return True

    def end_step(self, _: dict[str, Any]) -> bool:
        """What is still open is closed for good."""
        self._open.clear()
        return True

    def fail(self, chunk: dict[str, Any]) -> bool:
        """The server's error; the client is told, the message does not hold it."""
        self._note("errors", chunk)
        return True

    def abort(self, chunk: dict[str, Any]) -> bool:
        """The user stopped it."""
        self.notes["abort"] = chunk
        return True

    # -- text and reasoning -------------------------------------------------------------------------------------------

    def open(self, chunk: dict[str, Any]) -> bool:
        """A text or reasoning part begins."""
        kind = str(chunk["type"]).removesuffix("-start")
        part: dict[str, Any] = {"type": kind}
        if kind == "reasoning" and chunk.get("id", kind) != kind:  # the kind is what a part without an id is sent under
            part["id"] = chunk["id"]
        part |= {"text": "", "state": "streaming"}
        key = (kind, hashable(chunk.get("id")))
        self.body["parts"].append(part)
        self._open[key] = part
        self._unused[key] = chunk
        _take(part, "providerMetadata", chunk)
        return True

    def extend(self, chunk: dict[str, Any]) -> bool:
        """Some more of it."""
        if not isinstance(chunk.get("delta"), str):
            return False
        part = self._spoken(chunk, "-delta") or self._begun(chunk)
        part["text"] += chunk["delta"]
        if chunk.keys() - {"type", "id", "delta", "providerMetadata"}:
            self._note("superseded", chunk)
        self._replaced(part, chunk)
        return True

    def close(self, chunk: dict[str, Any]) -> bool:
        """It is whole."""
        part = self._spoken(chunk, "-end")
        if part is None:
            return False
        part["state"] = "done"
        self._replaced(part, chunk)
        self._open = {key: one for key, one in self._open.items() if one is not part}
        return True

    def _spoken(self, chunk: dict[str, Any], suffix: str) -> dict[str, Any] | None:
        """The part that the chunk goes on with; one with a strange id is kept to be seen."""
        key = open_key(self._open, str(chunk["type"]).removesuffix(suffix), chunk.get("id"))
        if key is None:
            return None
        if key[1] == hashable(chunk.get("id")):
            self._unused.pop(key, None)
        else:
            self._note("superseded", {"id": chunk.get("id")})
        return self._open[key]

    def _begun(self, chunk: dict[str, Any]) -> dict[str, Any]:
        """The part of a delta that nothing began, as in a stream that is resumed."""
        own = {"id": chunk["id"]} if "id" in chunk else {}
        kind = str(chunk["type"]).removesuffix("-delta")
        self.open({"type": f"{kind}-start", **own})
        del self._unused[kind, hashable(chunk.get("id"))]
        if own:
            self._note("superseded", own)
        part: dict[str, Any] = self.body["parts"][-1]
        return part

    def _replaced(self, part: dict[str, Any], chunk: dict[str, Any]) -> None:
        old, new = part.get("providerMetadata"), chunk.get("providerMetadata")
        if old is not None and new is not None and not same_json(old, new):
            self._note("superseded", {"providerMetadata": old})
        _take(part, "providerMetadata", chunk)

    # -- tools --------------------------------------------------------------------------------------------------------

    def tool_start(self, chunk: dict[str, Any]) -> bool:
        """A call begins; its input is still to come."""
        return self._tool(chunk, state="input-streaming", input=None)

    def tool_delta(self, chunk: dict[str, Any]) -> bool:
        """Some of a call's input, as text of JSON."""
        call_id, text = chunk.get("toolCallId"), chunk.get("inputTextDelta")
        if not isinstance(call_id, str) or call_id not in self._tools or not isinstance(text, str):
            return False
        self._inputs[call_id] = self._inputs.get(call_id, "") + text
        if chunk.keys() - {"type", "toolCallId", "inputTextDelta"}:
            self._note("superseded", chunk)
        return True

    def tool_input(self, chunk: dict[str, Any]) -> bool:
        """The whole input of a call."""
        if "input" not in chunk:
            return False
        self._compare_input(chunk)
        return self._tool(chunk, state="input-available", input=chunk["input"])

    def tool_input_error(self, chunk: dict[str, Any]) -> bool:
        """An input that the call's schema refuses."""
        self._compare_input(chunk)
        part = self._tools.get(hashable(chunk.get("toolCallId")))
        dynamic = part["type"] == "dynamic-tool" if part is not None else chunk.get("dynamic") is True
        given = {"input" if dynamic else "rawInput": chunk.get("input")}
        return self._tool(chunk, dynamic=dynamic, state="output-error", errorText=chunk.get("errorText"), **given)

    def _compare_input(self, chunk: dict[str, Any]) -> None:
        """The deltas are another spelling of the input; where they are not, they are kept to be seen."""
        text = self._inputs.pop(hashable(chunk.get("toolCallId")), None)
        given = chunk.get("input")
        if text is None or text == given:
            return
        spelt = loads_object(text)
        if not (spelt is not None and same_json(spelt, given)) and not (text == "" and given == {}):
            self._note("superseded", {"inputText": text})

    def tool_output(self, chunk: dict[str, Any]) -> bool:
        """What the tool returned; of several outputs the last is final."""
        if "output" not in chunk:
            return False
        part = self._answered(chunk)
        if part is None:
            return False
        if "output" in part and not same_json(part["output"], chunk["output"]):
            self._note("superseded", {"output": part["output"]})
        given = {"input": part.get("input")}
        return self._tool(
            chunk, state="output-available", output=chunk["output"], preliminary=chunk.get("preliminary"), **given
        )

    def tool_output_error(self, chunk: dict[str, Any]) -> bool:
        """The tool failed."""
        part = self._answered(chunk)
        if part is None:
            return False
        given = {"input": part.get("input"), "rawInput": part.get("rawInput")}
        return self._tool(chunk, state="output-error", errorText=chunk.get("errorText"), **given)

    def tool_denied(self, chunk: dict[str, Any]) -> bool:
        """The user did not let it run."""
        part = self._answered(chunk)
        if part is None:
            return False
        part["state"] = "output-denied"
        return True

    def approval_asked(self, chunk: dict[str, Any]) -> bool:
        """The user is asked whether it may run."""
        part = self._tools.get(hashable(chunk.get("toolCallId")))
        if part is None or "approvalId" not in chunk:
            return False
        rest = {key: item for key, item in chunk.items() if key not in ("type", "toolCallId", "approvalId")}
        part["state"] = "approval-requested"
        part["approval"] = {"id": chunk["approvalId"], **rest}
        return True

    def approval_given(self, chunk: dict[str, Any]) -> bool:
        """The user has answered."""
        for part in self._tools.values():
            approval = part.get("approval")
            if isinstance(approval, dict) and approval.get("id") == chunk.get("approvalId"):
                part["state"] = "approval-responded"
                approval |= {key: item for key, item in chunk.items() if key not in ("type", "approvalId")}
                return True
        return False

    def _answered(self, chunk: dict[str, Any]) -> dict[str, Any] | None:
        """The part of the call that is answered; one without a name where the call is in an earlier message."""
        call_id = chunk.get("toolCallId")
        if not isinstance(call_id, str):
            return None
        part = self._tools.get(call_id)
        if part is None:
            part = {"type": "dynamic-tool", "toolName": "", "toolCallId": call_id}
            self._tools[call_id] = part
            self.body["parts"].append(part)
        return part

    def _tool(self, chunk: dict[str, Any], *, dynamic: bool | None = None, state: str, **fields: Any) -> bool:
        call_id = chunk.get("toolCallId")
        if not isinstance(call_id, str):
            return False
        part = self._tools.get(call_id)
        if part is None:
            name = chunk.get("toolName")
            if not isinstance(name, str):
                return False
            if dynamic if dynamic is not None else chunk.get("dynamic") is True:
                part = {"type": "dynamic-tool", "toolName": name, "toolCallId": call_id}
            else:
                part = {"type": f"tool-{name}", "toolCallId": call_id}
            self._tools[call_id] = part
            self.body["parts"].append(part)
        for key in ("input", "rawInput", "output", "errorText", "preliminary"):
            part.pop(key, None)
        part |= {"state": state, **{key: item for key, item in fields.items() if item is not None}}
        if fields.get("input") is None and "input" in chunk and state == "input-available":
            part["input"] = None
        if "output" in fields:
            part["output"] = fields["output"]
        for key in ("providerExecuted", "title", "toolMetadata"):
            _take(part, key, chunk)
        answered = state in ("output-available", "output-error")
        _take(part, "resultProviderMetadata" if answered else "callProviderMetadata", chunk, "providerMetadata")
        return True

    # -- the end ------------------------------------------------------------------------------------------------------

    def whole(self) -> dict[str, Any]:
        """The body: a UI message, or `{"error": …}` for a stream that is nothing but an error."""
        for call_id, text in self._inputs.items():
            self._note("superseded", {"toolCallId": call_id, "inputText": text})
        for chunk in self._unused.values():
            self._note("superseded", chunk)
        self._note_lost()
        errors = self.notes.get("errors")
        body = self.body
        if errors and not body["parts"] and not self._started and isinstance(errors[0].get("errorText"), str):
            body = {"error": errors[0]["errorText"]}
        if self.notes:
            body[STREAM] = self.notes
        if not self._finished:
            body[PARTIAL] = True
        return body

    def _note_lost(self) -> None:
        """List the chunks with text that neither the message nor the notes hold any more."""
        if not self._seen:
            return
        kept = set(_strings(self.body)) | set(_strings(self.notes))
        names = {part["type"].removeprefix("tool-") for part in self.body["parts"]}
        ids = {key[1] for key in self._all_ids()}
        for chunk in self._seen:
            texts = {text for text in _strings(chunk) if text not in _OWN_KEYS} - {chunk["type"]} - kept - names - ids
            if texts:
                self._note("superseded", chunk)

    def _all_ids(self) -> Iterator[tuple[str, Any]]:
        for chunk in self._seen:
            if chunk["type"] in ("text-start", "text-end", "reasoning-end"):
                yield (chunk["type"], hashable(chunk.get("id")))


def open_key(found: Mapping[tuple[str, Any], Any], kind: str, own_id: Any) -> tuple[str, Any] | None:
    """The key of the open part that a delta or end belongs to: by id, else the only one of its kind; None if none."""
    key = (kind, hashable(own_id))
    if key in found:
        return key
    same = [one for one in found if one[0] == kind]
    return same[0] if len(same) == 1 else None


def hashable(raw: Any) -> Any:
    """An id as a key: text as it is, anything else by its JSON."""
    return raw if isinstance(raw, str) or raw is None else dumps(raw)


def _same_id(part: dict[str, Any], chunk: dict[str, Any]) -> bool:
    return "id" in chunk and part.get("id") == chunk["id"] and type(part.get("id")) is type(chunk["id"])


def _take(part: dict[str, Any], key: str, chunk: dict[str, Any], source: str | None = None) -> None:
    item = chunk.get(source or key)
    if item is not None:
        part[key] = item


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merged(old[key], item) if key in old else item for key, item in new.items()}}


def _strings(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack += item.keys()
            stack += item.values()
        elif isinstance(item, list):
            stack += item


_HANDLERS: Final[dict[str, Callable[[Fold, dict[str, Any]], bool]]] = {
    "start": Fold.start,
    "message-metadata": Fold.metadata,
    "finish": Fold.finish,
    "start-step": Fold.begin_step,
    "finish-step": Fold.end_step,
    "error": Fold.fail,
    "abort": Fold.abort,
    "text-start": Fold.open,
    "text-delta": Fold.extend,
    "text-end": Fold.close,
    "reasoning-start": Fold.open,
    "reasoning-delta": Fold.extend,
    "reasoning-end": Fold.close,
    "tool-input-start": Fold.tool_start,
    "tool-input-delta": Fold.tool_delta,
    "tool-input-available": Fold.tool_input,
    "tool-input-error": Fold.tool_input_error,
    "tool-output-available": Fold.tool_output,
    "tool-output-error": Fold.tool_output_error,
    "tool-output-denied": Fold.tool_denied,
    "tool-approval-request": Fold.approval_asked,
    "tool-approval-response": Fold.approval_given,
}


def fold(events: Iterable[WireEvent | Any]) -> dict[str, Any]:
    """The UI message of a stream, with what else there was under `cmf_stream`; `cmf_partial` if it was cut."""
    growing = Fold()
    for event in events:
        growing.add(event.get("data") if isinstance(event, dict) else event)
    return growing.whole()
