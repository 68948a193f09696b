"""From requests and answers of the Responses format to canonical values. Spec: openai_responses.md [RSP-1], [RSP-9]."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from cmf.adapters.openai_responses.items import CLIENT_TOOLS, FORMAT, KINDS, leftover
from cmf.adapters.openai_responses.parts_in import ItemReader, taken
from cmf.adapters.wire.fields import PARTIAL, allowed_names
from cmf.enums import MessageStatus, Role, StopReason
from cmf.errors import ShapeError
from cmf.json.codec import SAFE_INTEGER
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping
from cmf.json.value import trusted
from cmf.message.message import Message, Part, TextPart, TokenUsage
from cmf.message.pairing import has_client_call
from cmf.message.request import NO_SAMPLING, Choice, ErrorInfo, Request, Response, Sampling, ToolChoice
from cmf.message.tools import ToolDefinition

OWN: Final = frozen_mapping({FORMAT: frozen_mapping({})})
TOOL_MODES: Final = frozenset({"auto", "none", "required"})
_HINT: Final = "see the provider's reference"


# -- requests ----------------------------------------------------------------------------------------------------------


def decode_envelope(body: Any, *, model: str | None = None) -> Request:
    """The request without what `input` and `instructions` say."""
    left = dict(_object(body))
    if left.get("input") is None or isinstance(left["input"], str | list):
        left.pop("input", None)
    if left.get("instructions") is None or isinstance(left["instructions"], str):
        left.pop("instructions", None)
    named = taken(left, "model")
    schema, schema_name = _schema(left)
    return trusted(
        Request,
        model=named if named is not None else model,
        tools=_tools(left),
        tool_choice=_tool_choice(left),
        response_schema=schema,
        response_schema_name=schema_name,
        sampling=_sampling(left),
        reasoning_effort=_effort(left),
        stream=left.pop("stream") if isinstance(left.get("stream"), bool) else None,
        extra=leftover(left),
    )


def _object(body: Any) -> FrozenDict:
    frozen = freeze(body)
    if not isinstance(frozen, FrozenDict):
        raise ShapeError("expected a JSON object", path="$", hint=_HINT)
    return frozen


def _schema(left: dict[str, Any]) -> tuple[FrozenDict | None, str | None]:
    text = left.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    if (
        not isinstance(text, dict)
        or not isinstance(shape, dict)
        or shape.get("type") != "json_schema"
        or not isinstance(shape.get("schema"), dict)
    ):
        return None, None
    rest = {key: value for key, value in shape.items() if key not in ("type", "schema")}
    name = taken(rest, "name")
    _leave(left, "text", {**text, "format": frozen_mapping(rest)} if rest else _without(text, "format"))
    return shape["schema"], name


def _effort(left: dict[str, Any]) -> str | None:
    reasoning = left.get("reasoning")
    if not isinstance(reasoning, dict):
        return None
    effort = reasoning.get("effort")
    if not isinstance(effort, str):
        return None
    _leave(left, "reasoning", _without(reasoning, "effort"))
    return effort


def _without(block: Any, key: str) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != key}


def _leave(left: dict[str, Any], key: str, rest: dict[str, Any]) -> None:
    """Keep what is left of an object, if anything is."""
    if rest:
        left[key] = frozen_mapping(rest)
    else:
        del left[key]


def _sampling(left: dict[str, Any]) -> Sampling:
    found: dict[str, Any] = {
        key: left.pop(key) for key in ("temperature", "top_p") if type(left.get(key)) in (int, float)
    }
    if type(left.get("max_output_tokens")) is int:
        found["max_output_tokens"] = left.pop("max_output_tokens")
    return trusted(Sampling, **found) if found else NO_SAMPLING


def _tool_choice(left: dict[str, Any]) -> ToolChoice | None:
    """The canonical choice. A spelling that is not the plain one stays in `left`, for the encoder to find."""
    raw = left.get("tool_choice")
    choice = tool_choice(raw)
    if choice is not None and (isinstance(raw, str) or raw == {"type": "function", "name": choice.name}):
        del left["tool_choice"]
    return choice


def tool_choice(raw: Any) -> ToolChoice | None:
    """The canonical choice that a `tool_choice` means; None where it has no canonical meaning."""
    if isinstance(raw, str):
        return trusted(ToolChoice, mode=raw) if raw in TOOL_MODES else None
    kind = raw.get("type") if isinstance(raw, dict) else None
    if kind == "allowed_tools":
        mode = "required" if raw.get("mode") == "required" else "auto"
        return trusted(ToolChoice, mode=mode, allowed=allowed_names(raw.get("tools")))
    if kind in ("function", "custom") and isinstance(raw.get("name"), str):
        return trusted(ToolChoice, mode="tool", name=raw["name"])
    return None


def _tools(left: dict[str, Any]) -> tuple[ToolDefinition, ...]:
    listed = left.get("tools")
    if listed is None:
        left.pop("tools", None)
        return ()
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        return ()
    del left["tools"]
    return tuple(definition for tool in listed for definition in _tool(tool))


def _tool(tool: dict[str, Any]) -> list[ToolDefinition]:
    kind = tool.get("type")
    if not isinstance(kind, str) or kind in ("function", "custom"):
        return [_own_tool(tool, kind, None)]
    left = {key: value for key, value in tool.items() if key != "type"}
    if kind == "namespace" and isinstance(tool.get("name"), str) and _are_tools(tool.get("tools")):
        return _namespace(left)
    space = taken(left, "server_label") if kind == "mcp" else None
    is_own = kind in CLIENT_TOOLS and kind != "namespace"  # one that holds others was read
    if kind == "shell" and _in_container(left):
        is_own = False
    runner = "client" if is_own else "provider"
    extra = leftover(left) or OWN  # a tool may be nothing but its type: the mark shows that it is this format's
    return [trusted(ToolDefinition, name=kind, namespace=space, type=kind, executed_by=runner, extra=extra)]


def _in_container(left: dict[str, Any]) -> bool:
    """Whether a shell is the provider's: its environment is not named as the client's own."""
    place = left.get("environment")
    return place is not None and (not isinstance(place, dict) or place.get("type") != "local")


def _own_tool(tool: dict[str, Any], kind: Any, namespace: str | None) -> ToolDefinition:
    """A tool that the client runs: a function, or one with free-text input."""
    left = dict(tool)
    if isinstance(kind, str):
        del left["type"]
    name = taken(left, "name")
    schema = left.pop("parameters") if isinstance(left.get("parameters"), dict) else None
    return trusted(
        ToolDefinition,
        name=name if name is not None else "",
        description=taken(left, "description"),
        input_schema=schema,
        namespace=namespace,
        type="custom" if kind == "custom" else None,
        extra=leftover(left),
    )


def _are_tools(listed: Any) -> bool:
    return isinstance(listed, list) and all(
        isinstance(tool, dict) and tool.get("type") in ("function", "custom") for tool in listed
    )


def _namespace(left: dict[str, Any]) -> list[ToolDefinition]:
    """The namespace itself, then each of its tools with its own definition."""
    name = left.pop("name")
    inner = [_own_tool(tool, tool["type"], name) for tool in left.pop("tools")]
    space = trusted(
        ToolDefinition,
        name=name,
        description=taken(left, "description"),
        type="namespace",
        extra=leftover(left),
    )
    return [space, *inner]


# -- responses ---------------------------------------------------------------------------------------------------------


def decode_answer(body: Any) -> tuple[Response, dict[str, Any]]:
    """The response, and how it was spelled as far as the encoder cannot tell: `error` and `derived` [RSP-12]."""
    frozen = freeze(body)
    form: dict[str, Any] = {}
    left = dict(_object(frozen))
    if left.get("object") == COUNTED and (counted := _tokens(left)) is not None:
        return counted, form
    partial = left.pop(PARTIAL, None) is True
    output = left.pop("output") if isinstance(left.get("output"), list) else None
    error = _error(left, form, answered=output is not None)
    choices: tuple[Choice, ...] = ()
    without_output = left.get("output") is None and (left.get("object") == "response" or "status" in left)
    if output is not None or (error is None and without_output):
        message_parts = _answer_parts(output or ())
        choices = (_choice(left, message_parts, partial=partial),)
        form |= _kinds(message_parts)
        text = joined_text(message_parts)
        if output is not None and left.get("output_text") == text and text:
            del left["output_text"]
            form["derived"] = True
    elif error is None:
        error = _other_error(left, form)
    usage = _usage(left)
    model = taken(left, "model")
    return trusted(Response, choices=choices, usage=usage, model=model, error=error, extra=leftover(left)), form


COUNTED: Final = "response.input_tokens"  # the `object` of the answer to how many tokens a request would be


def _tokens(left: dict[str, Any]) -> Response | None:
    """The number of tokens of a request, if the body has one and nothing that belongs to an answer."""
    count = left.get("input_tokens")
    if not _ANSWERED.isdisjoint(left) or type(count) is not int or not 0 <= count <= SAFE_INTEGER:
        return None
    rest = {key: value for key, value in left.items() if key not in ("object", "input_tokens")}
    return trusted(Response, usage=trusted(TokenUsage, input_tokens=count, total_tokens=count), extra=leftover(rest))


_ANSWERED: Final = frozenset({"output", "status", "error", "usage", "model", PARTIAL})


def _kinds(parts: tuple[Part, ...]) -> dict[str, Any]:
    """The item types of calls and results, by number of the part, and how many parts there are."""
    types = {str(at): kind for at, part in enumerate(parts) if (kind := wire_type(part)) in KINDS}
    return {"kinds": types, "parts": len(parts)} if types else {}


def _answer_parts(output: Iterable[Any]) -> tuple[Part, ...]:
    items = list(output)
    reader = ItemReader(answer=True, items=items)
    return tuple(part for at, item in enumerate(items) for part in reader.read(item, f"$.output[{at}]")[1])


def joined_text(parts: Iterable[Part]) -> str:
    """The text of the answer's `output_text` parts, without refusals: the format's own summary."""
    return "".join(part.text for part in parts if isinstance(part, TextPart) and not is_refusal(part))


def is_refusal(part: Part) -> bool:
    """Whether a text part is a refusal on the wire."""
    return wire_type(part) == "refusal"


def wire_type(part: Part) -> str | None:
    """The type of the wire block that a part was, where it is not the usual one."""
    own = part.extra.get(FORMAT) if part.extra is not None else None
    named = own.get("type") if isinstance(own, dict) else None
    return named if isinstance(named, str) else None


STATUSES: Final = {
    "completed": MessageStatus.COMPLETE,
    "complete": MessageStatus.COMPLETE,
    "incomplete": MessageStatus.COMPLETE,  # the answer ended, if early: see its stop reason
    "failed": MessageStatus.ERROR,
    "cancelled": MessageStatus.CANCELLED,
    "queued": MessageStatus.PARTIAL,
    "in_progress": MessageStatus.PARTIAL,
}
INCOMPLETE: Final = {"max_output_tokens": StopReason.MAX_TOKENS, "content_filter": StopReason.CONTENT_FILTER}


def _choice(left: dict[str, Any], parts: tuple[Part, ...], *, partial: bool) -> Choice:
    raw = taken(left, "status")
    status = STATUSES.get(raw, MessageStatus.COMPLETE) if raw is not None else MessageStatus.COMPLETE
    if partial:
        status = MessageStatus.PARTIAL
    message = trusted(Message, role=Role.ASSISTANT, content=parts, status=status)
    stop = None if status is MessageStatus.PARTIAL else stop_reason(raw, left, parts)
    return trusted(Choice, message=message, stop_reason=stop, raw_stop_reason=raw)


def stop_reason(status: str | None, envelope: dict[str, Any], parts: Iterable[Part]) -> StopReason | None:
    """Why an answer with this status (None: the server sends none) and these parts ended [RSP-11]."""
    details = envelope.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    if status in ("completed", "complete") or (status is None and not isinstance(reason, str)):
        listed = tuple(parts)
        if has_client_call(listed):
            return StopReason.CALL
        return StopReason.REFUSAL if any(is_refusal(part) for part in listed) else StopReason.END
    if status in ("queued", "in_progress"):
        return None
    if status == "failed":
        return StopReason.ERROR
    if isinstance(reason, str) and status in (None, "incomplete"):
        return INCOMPLETE.get(reason, StopReason.OTHER)
    return StopReason.OTHER


def _error(left: dict[str, Any], form: dict[str, Any], *, answered: bool) -> ErrorInfo | None:
    error = left.get("error")
    if isinstance(error, dict):
        rest = dict(error)
        found = {key: text for key in ("message", "type", "code") if (text := taken(rest, key)) is not None}
        _leave(left, "error", rest)
        return trusted(ErrorInfo, **found)
    if isinstance(error, str) and not answered:
        del left["error"]
        form["error"] = "string"
        return trusted(ErrorInfo, message=error, code=taken(left, "code"))
    return None


def _other_error(left: dict[str, Any], form: dict[str, Any]) -> ErrorInfo:
    """A body that is not a response: an error of a server in between, in one of its shapes."""
    for key in ("message", "detail"):
        text = taken(left, key)
        if text is not None:
            form["error"] = key
            return trusted(ErrorInfo, message=text)
    form["error"] = "none"
    return trusted(ErrorInfo)


def _usage(left: dict[str, Any]) -> TokenUsage | None:
    """Tokens as [A10] counts them; what the numbers do not say again stays in `left`."""
    usage = left.get("usage")
    if not isinstance(usage, dict):
        return None
    rest = dict(usage)
    listed = usage.get("input_tokens_details")
    if not isinstance(listed, dict | None):
        return None
    details = dict(listed or {})
    counts = [_count(rest, key) for key in ("input_tokens", "output_tokens", "total_tokens")]
    cached, written = _count(details, "cached_tokens"), _count(details, "cache_write_tokens")
    uncounted = _COUNTS & rest.keys() or _CACHE_COUNTS & details.keys()
    if uncounted or counts[0] < cached + written:
        return None  # no counts that we know: the block stays as it is
    if listed is not None:
        _leave(rest, "input_tokens_details", details)
    _leave(left, "usage", rest)
    return trusted(
        TokenUsage,
        input_tokens=counts[0] - cached - written,
        output_tokens=counts[1],
        total_tokens=counts[2],
        cached_input_tokens=cached,
        cache_creation_input_tokens=written,
    )


_COUNTS: Final = frozenset({"input_tokens", "output_tokens", "total_tokens"})
_CACHE_COUNTS: Final = frozenset({"cached_tokens", "cache_write_tokens"})


def _count(block: dict[str, Any], key: str) -> int:
    value = block.get(key)
    if type(value) is not int or value < 0:
        return 0
    del block[key]
    return value
