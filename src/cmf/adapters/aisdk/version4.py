"""Messages of version 4 in the form of version 5, and back, so that their calls and files are judged as such.

Version 4 keeps calls in `toolInvocations` or in parts of type `tool-invocation`, files in `experimental_attachments` or
as base64 under `data`. Spec: docs/spec/adapters/aisdk.md [AISDK-10].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from cmf.errors import ShapeError
from cmf.json.codec import dumps
from cmf.json.frozen import freeze, same_json

_STATES: Final = {"partial-call": "input-streaming", "call": "input-available", "result": "output-available"}
_STATES_4: Final = {state: name for name, state in _STATES.items()}
_CALL: Final = {"state": "state", "step": "step", "toolCallId": "toolCallId", "args": "input", "result": "output"}
_FILE: Final = {"contentType": "mediaType", "url": "url", "name": "filename"}
_INVOCATION: Final = "tool-invocation"


def modernized(raw: Any, path: str) -> tuple[Any, dict[str, Any]]:
    """A UI message with its calls and files as parts of version 5, and where they were; as it is if it has none."""
    fields = raw if isinstance(raw, dict) else {}
    invoked, attached = fields.get("toolInvocations"), fields.get("experimental_attachments")
    parts, form = _parts(fields.get("parts"), path)
    if not (form or invoked or attached):
        return raw, {}
    body = {key: item for key, item in fields.items() if key != "parts"}
    if "parts" not in fields:
        form["unlisted"] = True
        if isinstance(body.get("content"), str):
            parts, form["content"] = [{"type": "text", "text": body.pop("content")}], True
    elif not isinstance(fields["parts"], list):
        raise _unreadable(f"{path}.parts")
    if invoked:
        inside = [fields["parts"][at]["toolInvocation"] for at in form.get("invocations", ())]
        listed = _objects(body.pop("toolInvocations"), f"{path}.toolInvocations")
        if same_json(inside, listed):
            form["repeated"] = True
        else:
            form["invoked"] = len(listed)
            parts += [_call(item, f"{path}.toolInvocations[{at}]") for at, item in enumerate(listed)]
    if attached:
        listed = _objects(body.pop("experimental_attachments"), f"{path}.experimental_attachments")
        form["attached"] = len(listed)
        parts += [_file(item, f"{path}.experimental_attachments[{at}]") for at, item in enumerate(listed)]
    ids = [part["toolCallId"] for part in parts if isinstance(part, dict) and "toolCallId" in part]
    if len(set(map(hashable, ids))) < len(ids):
        raise _unreadable(path)
    return freeze({**body, "parts": parts}), form


def hashable(raw: Any) -> Any:
    """An id as a key: text as it is, anything else by its JSON."""
    return raw if isinstance(raw, str) or raw is None else dumps(raw)


def _parts(listed: Any, path: str) -> tuple[list[Any], dict[str, Any]]:
    """The parts, those of version 4 in the form of version 5, and where these are."""
    parts, form = list(listed) if isinstance(listed, list) else [], dict[str, Any]()
    for at, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == _INVOCATION:
            if part.keys() != {"type", "toolInvocation"} or not isinstance(part["toolInvocation"], dict):
                raise _unreadable(f"{path}.parts[{at}]")
            parts[at] = _call(part["toolInvocation"], f"{path}.parts[{at}].toolInvocation")
            form.setdefault("invocations", []).append(at)
        elif isinstance(part, dict) and part.get("type") == "file" and "data" in part and "url" not in part:
            parts[at] = _held(part, f"{path}.parts[{at}]")
            form.setdefault("files", []).append(at)
    return parts, form


def as_it_was(body: dict[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """The UI message in the form of version 4 that it came in; as it is if its parts no longer fit in that."""
    parts, count = body["parts"], len(body["parts"])
    attached = range(count - form.get("attached", 0), count)
    invoked = range(attached.start - form.get("invoked", 0), attached.start)
    inside, files = form.get("invocations", ()), form.get("files", ())
    fits = all(
        max(ats, default=-1) < count and min(ats, default=0) >= 0 and all(_FITS[kind](parts[at]) for at in ats)
        for kind, ats in (("call", invoked), ("call", inside), ("file", attached), ("data", files))
    )
    said = parts[: invoked.start]
    if not fits or (form.get("content") and not all(part.get("type") == "text" for part in said)):
        return body
    for at, part in enumerate(said):
        if at in inside:
            said[at] = {"type": _INVOCATION, "toolInvocation": _invocation(part)}
        elif at in files:
            rest = {key: item for key, item in part.items() if key not in ("mediaType", "url")}
            said[at] = {**rest, "mimeType": part["mediaType"], "data": part["url"].partition(",")[2]}
    older = {key: item for key, item in body.items() if key != "parts"}
    if form.get("content"):
        older["content"] = "".join(part["text"] for part in said)
    elif said or not form.get("unlisted"):
        older["parts"] = said
    if invoked:
        older["toolInvocations"] = [_invocation(parts[at]) for at in invoked]
    elif form.get("repeated"):
        older["toolInvocations"] = [said[at]["toolInvocation"] for at in inside]
    if attached:
        files = [{old: parts[at][new] for old, new in _FILE.items() if new in parts[at]} for at in attached]
        older["experimental_attachments"] = files
    return older


def _objects(listed: Any, path: str) -> list[Any]:
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise _unreadable(path)
    return list(listed)


def _unreadable(path: str) -> ShapeError:
    return ShapeError(
        "not what a message of version 4 of the AI SDK has", path=path, hint="send it as parts of version 5"
    )


def _call(invocation: dict[str, Any], path: str) -> dict[str, Any]:
    name, state = invocation.get("toolName"), invocation.get("state")
    readable = (
        invocation.keys() <= {*_CALL, "toolName"}
        and isinstance(name, str)
        and isinstance(invocation.get("toolCallId"), str)
        and isinstance(invocation.get("args"), dict | str | None)
        and isinstance(state, str)
        and state in _STATES
        and ("result" in invocation) == (state == "result")
    )
    if not readable or not name:
        raise _unreadable(path)
    call = {new: invocation[old] for old, new in _CALL.items() if old in invocation}
    return {**call, "type": f"tool-{name}", "state": _STATES[str(state)]}


def _invocation(part: Mapping[str, Any]) -> dict[str, Any]:
    fields = {old: part[new] for old, new in _CALL.items() if new in part}
    return {**fields, "toolName": part["type"].removeprefix("tool-"), "state": _STATES_4[part["state"]]}


def _file(attachment: dict[str, Any], path: str) -> dict[str, Any]:
    texts = all(isinstance(item, str) for item in attachment.values())
    if not texts or not {"contentType", "url"} <= attachment.keys() <= _FILE.keys():
        raise _unreadable(path)
    return {"type": "file", **{new: attachment[old] for old, new in _FILE.items() if old in attachment}}


def _held(part: dict[str, Any], path: str) -> dict[str, Any]:
    kind, data = part.get("mimeType"), part["data"]
    fits = part.keys() <= {"type", "mimeType", "data", "filename"}
    if not (fits and isinstance(kind, str) and isinstance(data, str)):
        raise _unreadable(path)
    rest = {key: item for key, item in part.items() if key not in ("mimeType", "data")}
    return {**rest, "mediaType": kind, "url": f"data:{kind};base64,{data}"}


def _is_call(part: Mapping[str, Any]) -> bool:
    fits = part.keys() <= {"type", *_CALL.values()} and part.get("state") in _STATES_4
    return fits and str(part["type"]).startswith("tool-")


def _is_file(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "file" and part.keys() <= {"type", *_FILE.values()}


def _is_data(part: Mapping[str, Any]) -> bool:
    return _is_file(part) and str(part.get("url")).startswith(f"data:{part.get('mediaType')};base64,")


_FITS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {"call": _is_call, "file": _is_file, "data": _is_data}
