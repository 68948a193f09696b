"""Gemini's requests, both ways. Spec: docs/spec/adapters/gemini.md [GEM-2], [GEM-3], [GEM-10] to [GEM-15]."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from cmf.adapters.gemini.names import CONTENT, REQUEST, normal, spelt
from cmf.adapters.gemini.parts_in import FORMAT, decode_part, inside
from cmf.adapters.gemini.parts_out import Names, encode_group
from cmf.adapters.gemini.tools import SCHEMA_NOTE, decode_schema, decode_tools, encode_schema, encode_tools
from cmf.adapters.wire import loss
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.fields import Fields, extra_of, merge, opened
from cmf.adapters.wire.layout import grouped, joined, respell, respell_one, shape_of, spelled, spelled_one, user_runs
from cmf.adapters.wire.options import read_sampling, write_sampling
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import same_spelling
from cmf.json.value import replace, trusted
from cmf.message.message import Message
from cmf.message.request import Request, ToolChoice

_ROLES: Final = ("user", "function", "tool")
_SAMPLING: Final = {
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "maxOutputTokens": "max_output_tokens",
    "seed": "seed",
    "stopSequences": "stop",
}
# Models that refuse calls in their history which nobody signed [GEM-26].
_SIGNING: Final = re.compile(r"(?:models/)?gemini-(?:[3-9]|[1-9][0-9]|(?:[a-z]+-)+latest)")
_UNSIGNED: Final = "skip_thought_signature_validator"  # the provider's word for calls that none of its models made
_MODES: Final = {"AUTO": "auto", "VALIDATED": "auto", "NONE": "none", "ANY": "required"}


# -- reading -----------------------------------------------------------------------------------------------------------


def read_request(body: Any, model: str | None, headers: Mapping[str, str]) -> Request:
    """The canonical request; `model` is the one in the path. ShapeError where the body names another [GEM-1]."""
    raw = opened(body)
    whole, names = normal(raw, REQUEST)
    messages: list[Message] = []
    if whole.get("systemInstruction") is not None:
        messages += _read_content(whole.pop("systemInstruction"), 0, "$.systemInstruction", system=True)
    contents = whole.get("contents")
    if contents:
        if not isinstance(contents, list):
            raise ShapeError("`contents` is not an array", path="$.contents", hint="see the provider's reference")
        for index, content in enumerate(whole.pop("contents")):
            messages += _read_content(content, index + 1, f"$.contents[{index}]")
    request, sizes = _decode_envelope(whole, model)
    request = replace(request, messages=tuple(messages))
    plain = _encode_envelope(request, sizes)
    if contents:
        del plain["contents"]
    notes = {"names": names, "tools": sizes}
    return spelled_one(
        request, plain, whole, format_name=FORMAT, notes={key: item for key, item in notes.items() if item}
    )


def _read_content(raw: Any, index: int, path: str, *, system: bool = False) -> tuple[Message, ...]:
    """The messages of one content, with the layout that gives its spelling back.

    Messages of role tool always have one: it says which results stood together in one content.
    """
    content, names = normal(raw, CONTENT, path)
    group = decode_content(content, path, system=system)
    notes = {"names": names} if names else {}
    keep = group[0].role is Role.TOOL
    plain = encode_group(group)
    return spelled(group, plain, content, format_name=FORMAT, path=path, index=index, keep=keep, notes=notes)


def decode_content(content: Any, path: str, *, system: bool = False, reply: bool = False) -> list[Message]:
    """The messages of one content in normal form: one, but for a user's turn, where each tool result is its own."""
    fields = Fields(content, path)
    raw_role = fields.peek("role")
    role = Role.SYSTEM if system else Role.ASSISTANT
    if raw_role == "model" and not system:
        fields.drop("role", "model")
    elif not system and not reply:
        if raw_role is not None and raw_role not in _ROLES:
            raise UnknownRoleError("unknown role", path=f"{path}.role", hint="use user or model")
        role = Role.USER
    if role is not Role.ASSISTANT:
        fields.drop("role", "user")
    fields.drop("role", None)
    raw = fields.optional("parts", list) or ()
    parts = [decode_part(part, f"{path}.parts[{index}]") for index, part in enumerate(raw)]
    runs = user_runs(parts) if role is Role.USER else [(role, tuple(parts))]
    extra = fields.rest(FORMAT)
    return [
        trusted(Message, role=each, content=content, extra=None if at else extra)
        for at, (each, content) in enumerate(runs)
    ]


def _decode_envelope(whole: dict[str, Any], model: str | None) -> tuple[Request, list[int] | None]:
    """A request's own fields, without its turns, and how its tools were grouped, if not in the usual way."""
    fields = Fields(whole, "$")
    for key in ("contents", "systemInstruction"):
        fields.drop(key, None)
    if fields.peek("contents") == []:
        fields.take("contents", list)
    tools, sizes = decode_tools(fields)
    options = _generation(fields)
    choice = _tool_choice(fields)
    named = fields.peek("model")
    if isinstance(named, str) and model is not None and not _same_model(named, model):
        raise ShapeError("the body names another model than the path", path="$.model", hint="leave it out")
    if model is None and isinstance(named, str):
        model = named
    return trusted(Request, model=model, tools=tools, tool_choice=choice, **options, extra=fields.rest(FORMAT)), sizes


def _same_model(named: str, model: str) -> bool:
    return named.removeprefix("models/") == model.removeprefix("models/")


def _generation(fields: Fields) -> dict[str, Any]:
    config = inside(fields, "generationConfig")
    if config is None:
        return {}
    sampling = read_sampling(config, _SAMPLING)
    schema, note = decode_schema(config, "responseJsonSchema", "responseSchema")
    if schema is not None:
        config.drop("responseMimeType", "application/json")
    if note is not None:
        config.put_back(SCHEMA_NOTE, note)
    effort = _effort(config)
    fields.leave("generationConfig", config)
    return {"sampling": sampling, "response_schema": schema, "reasoning_effort": effort}


def _effort(config: Fields) -> str | None:
    """The level of thinking in lower case; another case stays in `extra` as well."""
    thinking = config.peek("thinkingConfig")
    level = thinking.get("thinkingLevel") if isinstance(thinking, dict) else None
    if not isinstance(level, str):
        return None
    if level == level.lower():
        rest = {key: value for key, value in thinking.items() if key != "thinkingLevel"}
        config.take("thinkingConfig", dict)
        if rest:
            config.put_back("thinkingConfig", rest)
    return level.lower()


def _tool_choice(fields: Fields) -> ToolChoice | None:
    config = inside(fields, "toolConfig")
    if config is None:
        return None
    calling = config.peek("functionCallingConfig")
    choice = _chosen(calling)
    if choice is not None and same_spelling(_calling(choice), calling):
        config.take("functionCallingConfig", dict)
    fields.leave("toolConfig", config)
    return choice


def _chosen(calling: Any) -> ToolChoice | None:
    mode = calling.get("mode") if isinstance(calling, dict) else None
    chosen = _MODES.get(mode.upper()) if isinstance(mode, str) else None
    listed = calling.get("allowedFunctionNames") if isinstance(calling, dict) else None
    allowed = tuple(name for name in listed if isinstance(name, str)) if listed and isinstance(listed, list) else None
    if chosen is None and allowed is None:
        return None
    if chosen == "required" and allowed is not None and len(allowed) == 1:
        return trusted(ToolChoice, mode="tool", name=allowed[0])
    return trusted(ToolChoice, mode=chosen or "auto", allowed=allowed)


def _calling(choice: ToolChoice) -> dict[str, Any]:
    if choice.mode == "tool":
        return {"mode": "ANY", "allowedFunctionNames": [choice.name or ""]}
    return {"mode": {"auto": "AUTO", "none": "NONE", "required": "ANY"}[choice.mode]}


# -- writing -----------------------------------------------------------------------------------------------------------


def http_call(request: Request) -> HttpCall:
    """`POST /v1beta/models/<model>:generateContent`, or `:streamGenerateContent?alt=sse` for a stream [GEM-1]."""
    if not request.model:
        raise UnsupportedError("Gemini's path names the model", path="model", hint="say which model is asked")
    model = quote(request.model.removeprefix("models/"), safe="")
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return HttpCall(path=f"/v1beta/models/{model}:{method}", headers={"content-type": "application/json"})


def write_request(request: Request) -> dict[str, Any]:
    """The body of a request; UnsupportedError for arguments, files or tools that Gemini cannot take."""
    shape = shape_of(request, FORMAT)
    sizes = shape.get("tools")
    fits = isinstance(sizes, list) and sum(sizes) == len(request.tools)
    body = respell_one(
        _encode_envelope(request, sizes if fits else None),
        # The turns have layouts of their own; whether to stream is given in the path.
        replace(request, messages=(), stream=None),
        format_name=FORMAT,
        decode=lambda spelt: _decode_envelope(spelt, request.model)[0],
    )
    system, contents = _turns(request.messages, call_names(request.messages))
    if system is not None:
        body["systemInstruction"] = system
    if _SIGNING.match(request.model or "") and not _is_own(request):
        _sign(contents)
    if contents:
        body["contents"] = contents
    renamed: dict[str, Any] = spelt(body, shape.get("names") or {}, REQUEST)
    return renamed


def _is_own(request: Request) -> bool:
    """Whether the request has something that only this format can express."""
    layouts = [request.provider_raw, *(message.provider_raw for message in request.messages)]
    extras = [request.extra, *(message.extra for message in request.messages)]
    extras += [part.extra for message in request.messages for part in message.content]
    has_layout = any(layout is not None and layout.format == FORMAT for layout in layouts)
    return has_layout or any(FORMAT in (extra or ()) for extra in extras)


def _sign(contents: Iterable[dict[str, Any]]) -> None:
    """Say of the first call of each turn that another model made it."""
    for content in contents:
        call = next((part for part in content.get("parts", ()) if "functionCall" in part), None)
        if call is not None:
            call.setdefault("thoughtSignature", _UNSIGNED)


def _encode_envelope(request: Request, sizes: Sequence[int] | None) -> dict[str, Any]:
    """A request's own fields, without its turns, in normal form; `contents` is there, empty."""
    own = dict(extra_of(request, FORMAT))
    body: dict[str, Any] = {"contents": []}
    original = own.get("toolConfig")
    if isinstance(original, dict) and _chosen(original.get("functionCallingConfig")) != request.tool_choice:
        own["toolConfig"] = {key: item for key, item in original.items() if key != "functionCallingConfig"}
    is_spelled = isinstance(original, dict) and own["toolConfig"] is original
    offered = request.tools
    if not is_spelled:
        request = loss.narrowed(FORMAT, request)
        sizes = sizes if request.tools == offered else None
    config = _config(request, own)
    if config:
        body["generationConfig"] = config
    if request.tools or sizes:  # objects that hold no tool are objects all the same
        body["tools"] = encode_tools(request.tools, sizes)
    if request.tool_choice is not None and not is_spelled:
        body["toolConfig"] = {"functionCallingConfig": _calling(request.tool_choice)}
    if isinstance(own.get("model"), str) and request.model is not None:
        body["model"] = own["model"] if _same_model(own["model"], request.model) else request.model
    if request.response_schema_name is not None:
        loss.drop(FORMAT, "response_schema_name", "a schema has no name here")
    loss.drop_foreign_extra(FORMAT, request, "request")
    merge(body, own)
    generation = body.get("generationConfig")
    if isinstance(generation, dict) and SCHEMA_NOTE in generation:
        body["generationConfig"] = {key: item for key, item in generation.items() if key != SCHEMA_NOTE}
    return body


def _config(request: Request, own: Mapping[str, Any]) -> dict[str, Any]:
    original = own.get("generationConfig")
    original = original if isinstance(original, dict) else {}
    config = write_sampling(request.sampling, _SAMPLING)
    if request.response_schema is not None:
        key = "responseSchema" if SCHEMA_NOTE in original else "responseJsonSchema"
        config[key] = encode_schema(request.response_schema, original.get(SCHEMA_NOTE))
        if "responseMimeType" not in original:
            config["responseMimeType"] = "application/json"
    thinking = original.get("thinkingConfig")
    level = thinking.get("thinkingLevel") if isinstance(thinking, dict) else None
    if request.reasoning_effort is not None and (
        not isinstance(level, str) or level.lower() != request.reasoning_effort
    ):
        config["thinkingConfig"] = {"thinkingLevel": request.reasoning_effort}
    return config


def _turns(messages: Sequence[Message], names: Names) -> tuple[Any, list[Any]]:
    """The system instruction, if any, and the contents; system text is hoisted [A5]."""
    system = [message for message in messages if message.role in (Role.SYSTEM, Role.DEVELOPER)]
    turns = [message for message in messages if message.role not in (Role.SYSTEM, Role.DEVELOPER)]
    # The results of one turn stand in one content, if their grouping was not recorded.
    together = joined(
        grouped(turns, FORMAT), lambda group: first if (first := _loose(group[0])) == _loose(group[-1]) else None
    )
    contents = [_content(group, names) for group in together]
    head = _content(tuple(system), names, system=True) if system else None
    return head, [content for content in contents if content is not None]


def _loose(message: Message) -> int | None:
    """The number of the content in which a tool message came (-1: from another format); None for other messages."""
    if message.role is not Role.TOOL:
        return None
    layout = message.provider_raw
    return layout.group if layout is not None and layout.format == FORMAT else -1


def _content(group: tuple[Message, ...], names: Names, *, system: bool = False) -> Any:
    plain = encode_group(group, names)
    if not plain["parts"] and any(message.content for message in group):
        return None  # all of it was dropped, with records
    body = respell(plain, group, format_name=FORMAT, decode=lambda spelt: decode_content(spelt, "$", system=system))
    return spelt(body, shape_of(group[0], FORMAT).get("names") or {}, CONTENT)
