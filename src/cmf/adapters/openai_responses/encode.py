"""From canonical requests and responses to the Responses format. Spec: openai_responses.md [RSP-9] to [RSP-12]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from cmf.adapters.openai_responses.decode import COUNTED, STATUSES, is_refusal, joined_text, stop_reason, tool_choice
from cmf.adapters.openai_responses.items import CLIENT_TOOLS, FORMAT, HOSTED_TOOLS
from cmf.adapters.openai_responses.parts_out import ItemWriter, with_leftover
from cmf.adapters.wire.fields import extra_of, merge, object_in, unmarked
from cmf.adapters.wire.loss import drop, narrowed, refuse_foreign_kind
from cmf.enums import MessageStatus, StopReason
from cmf.errors import UnsupportedError
from cmf.json.frozen import FrozenDict, FrozenList
from cmf.message.message import NO_SHAPE, Part, TokenUsage
from cmf.message.request import Request, Response
from cmf.message.tools import ToolDefinition

SCHEMA_NAME: Final = "response"  # the format demands one


# -- requests ----------------------------------------------------------------------------------------------------------


def encode_envelope(request: Request) -> dict[str, Any]:
    """Everything of the request but `input` and `instructions`."""
    body: dict[str, Any] = {}
    if request.model is not None:
        body["model"] = request.model
    spelled = extra_of(request, FORMAT).get("tool_choice")
    if request.tool_choice is None or tool_choice(spelled) != request.tool_choice:
        request, spelled = narrowed(FORMAT, request), None
    if request.tools:
        body["tools"] = _tools(request.tools)
    if (choice := request.tool_choice) is not None:
        named = next((tool for tool in request.tools if tool.name == choice.name), None)
        kind = "custom" if named is not None and named.type == "custom" else "function"
        body["tool_choice"] = spelled or ({"type": kind, "name": choice.name} if choice.mode == "tool" else choice.mode)
    if request.response_schema is not None:
        name = request.response_schema_name
        shape = {"type": "json_schema", "name": name if name is not None else SCHEMA_NAME}
        body["text"] = {"format": {**shape, "schema": request.response_schema}}
    if request.reasoning_effort is not None:
        body["reasoning"] = {"effort": request.reasoning_effort}
    if request.stream is not None:
        body["stream"] = request.stream
    for name, value in request.sampling.model_dump().items():
        if name in _SAMPLING:
            body[name] = value
        else:
            drop(FORMAT, f"sampling.{name}", "no such parameter in this format")
    return merge(body, _riding_envelope(request))


def _riding_envelope(request: Request) -> dict[str, Any]:
    own = extra_of(request, FORMAT)
    if tool_choice(own.get("tool_choice")) is not None:  # written already, or no longer asked for
        own = {key: value for key, value in own.items() if key != "tool_choice"}
    text = own.get("text")
    shape = text.get("format") if isinstance(text, dict) else None
    if request.response_schema is None and isinstance(text, dict) and isinstance(shape, dict) and "type" not in shape:
        # What accompanied a schema that was removed is not a format by itself.
        return {**own, "text": {key: value for key, value in text.items() if key != "format"}}
    return own


_SAMPLING: Final = frozenset({"temperature", "top_p", "max_output_tokens"})


def _tools(definitions: Sequence[ToolDefinition]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = []
    for tool in definitions:
        own = extra_of(tool, FORMAT)
        if tool.type == "namespace" and "tools" not in own:
            space = {"type": "namespace", "name": tool.name}
            if tool.description is not None:
                space["description"] = tool.description
            listed.append(with_leftover({**space, "tools": []}, own))
        elif tool.executed_by == "provider" or (tool.type in CLIENT_TOOLS and tool.type != "custom"):
            listed.append(_hosted(tool, own))
        elif tool.namespace is not None:
            if not listed or listed[-1].get("type") != "namespace" or listed[-1]["name"] != tool.namespace:
                listed.append({"type": "namespace", "name": tool.namespace, "tools": []})
            listed[-1]["tools"].append(_function(tool, own))
        else:
            listed.append(_function(tool, own))
    return listed


def _function(tool: ToolDefinition, own: dict[str, Any]) -> dict[str, Any]:
    refuse_foreign_kind(FORMAT, tool)
    written: dict[str, Any] = {"type": "custom" if tool.type == "custom" else "function", "name": tool.name}
    if tool.description is not None:
        written["description"] = tool.description
    if tool.input_schema is not None:
        written["parameters"] = tool.input_schema
    if tool.type != "custom" and FORMAT not in (tool.extra or ()):
        written["strict"] = _is_strict(tool)
    return with_leftover(written, own)


def _is_strict(tool: ToolDefinition) -> bool:
    """Whether the tool said so in its own format: there the default is that it is not, here that it is."""
    kept = [own for own in (tool.extra or {}).values() if isinstance(own, dict)]
    return any(own.get("strict") is True for own in (*kept, *(object_in(one, "function") for one in kept)))


def _hosted(tool: ToolDefinition, own: dict[str, Any]) -> dict[str, Any]:
    if FORMAT not in (tool.extra or ()) and tool.type not in HOSTED_TOOLS and tool.type not in CLIENT_TOOLS:
        raise UnsupportedError(
            "this format does not know the provider-run tool",
            about=tool,
            hint="remove the tool, or route to its own provider",
        )
    written: dict[str, Any] = {"type": tool.type}
    if tool.type == "mcp" and tool.namespace is not None:
        written["server_label"] = tool.namespace
    return with_leftover(written, own)


# -- responses ---------------------------------------------------------------------------------------------------------


def encode_answer(response: Response, form: dict[str, Any]) -> Any:
    """The response as plainly as its provider would say it; `form` is what `decode_answer` gave [RSP-12]."""
    own = unmarked(extra_of(response, FORMAT))
    if (asked := _asked(response)) is not None:
        return merge({"object": COUNTED, "input_tokens": asked}, own)
    body: dict[str, Any] = {}
    if response.model is not None:
        body["model"] = response.model
    if response.choices:
        _write_choice(body, response, own, form)
    if response.error is not None:
        _write_error(body, response, own, form)
    if response.usage is not None:
        body["usage"] = _usage(response.usage, foreign=not own)
    merge(body, own)
    if response.choices and not own:
        for key, value in _ENVELOPE.items():
            body.setdefault(key, value)
    return body


def _asked(response: Response) -> int | None:
    """The number of tokens of a request, if that is all that the response has."""
    if response.choices or response.error is not None or response.model is not None or response.usage is None:
        return None
    alone = TokenUsage(input_tokens=response.usage.input_tokens, total_tokens=response.usage.input_tokens)
    return alone.input_tokens if response.usage == alone else None


# What clients of the format expect of any answer; no clock here, so the time is nought.
_ENVELOPE: Final[dict[str, Any]] = {
    "id": "resp_0",
    "object": "response",
    "created_at": 0,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "metadata": FrozenDict(),
    "parallel_tool_calls": True,
    "temperature": None,
    "tool_choice": "auto",
    "tools": FrozenList(),
    "top_p": None,
}


def _write_choice(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    choice = response.choices[0]
    for other in response.choices[1:]:
        drop(FORMAT, "choice", "an answer has one choice here", message=other.message)
    parts = choice.message.content
    raw = choice.raw_stop_reason
    cut = choice.message.status is MessageStatus.PARTIAL and choice.stop_reason is None
    if raw is not None and (own or raw in STATUSES) and (cut or _still(raw, own, parts, choice.stop_reason)):
        body["status"] = raw
    else:
        refused = choice.stop_reason is StopReason.REFUSAL and not any(map(is_refusal, parts))
        status, reason = _STATUS.get(StopReason.CONTENT_FILTER if refused else choice.stop_reason, ("completed", None))
        if "status" not in own:
            body["status"] = "in_progress" if choice.message.status is MessageStatus.PARTIAL else status
        # By the details, without a status.
        explained = not refused and raw is None and (cut or _still(None, own, parts, choice.stop_reason))
        if not explained and (reason is not None or "incomplete_details" in own):
            body["incomplete_details"] = {"reason": reason} if reason is not None else None
    kinds = form.get("kinds") if form.get("parts") == len(parts) else None
    writer = ItemWriter(answer=True, stem=_stem(own.get("id")))
    body["output"] = writer.items(choice.message, kinds if isinstance(kinds, dict) else NO_SHAPE)
    if form.get("derived") is True and (text := joined_text(parts)):
        body["output_text"] = text


def _stem(answer_id: Any) -> str:
    """What the ids of an answer's items have between their kind and their number: items are known by them [C9]."""
    return f"{answer_id.removeprefix('resp_')}_" if isinstance(answer_id, str) and answer_id else ""


def _still(raw: str | None, own: dict[str, Any], parts: Iterable[Part], wanted: StopReason | None) -> bool:
    """Whether the original status still gives the reason why the answer ended."""
    reason_of_status = stop_reason(raw, own, parts)
    return reason_of_status is wanted or (
        reason_of_status in _ENDED and wanted in _ENDED
    )  # the status does not tell these apart


_ENDED: Final = frozenset(
    {StopReason.END, StopReason.RETURN, StopReason.CALL, StopReason.STOP_SEQUENCE, StopReason.REFUSAL}
)


_STATUS: Final[dict[StopReason | None, tuple[str, str | None]]] = {
    StopReason.MAX_TOKENS: ("incomplete", "max_output_tokens"),
    StopReason.CONTENT_FILTER: ("incomplete", "content_filter"),
    StopReason.ERROR: ("failed", None),
}


def _write_error(body: dict[str, Any], response: Response, own: dict[str, Any], form: dict[str, Any]) -> None:
    error = response.error
    spelt = form.get("error")
    error_fields = {} if error is None else error.model_dump()
    error_fields.pop("status", None)  # of the HTTP answer, not of its body
    if spelt == "string":
        body["error"] = error_fields.get("message", "")
        if "code" in error_fields:
            body["code"] = error_fields["code"]
    elif spelt in ("message", "detail"):
        body[spelt] = error_fields.get("message", "")
    elif spelt != "none":
        # `type` is the discriminator of nothing here, so it may be absent; clients read `message`.
        body["error"] = (
            error_fields
            if own or not error_fields
            else {"message": "", "type": None, "param": None, "code": None} | error_fields
        )


def _usage(usage: TokenUsage, *, foreign: bool) -> dict[str, Any]:
    cached, written = usage.cached_input_tokens, usage.cache_creation_input_tokens
    asked = usage.input_tokens + cached + written
    details = {"cached_tokens": cached} | ({"cache_write_tokens": written} if written or foreign else {})
    counts: dict[str, Any] = {
        "input_tokens": asked,
        "input_tokens_details": details,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens or asked + usage.output_tokens,
    }
    if foreign:
        counts["output_tokens_details"] = {"reasoning_tokens": 0}
    return counts
