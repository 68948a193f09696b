"""Gemini's requests and tools, both ways. Spec: docs/spec/adapters/gemini.md [GEM-2], [GEM-3], [GEM-10] to [GEM-15]."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from cmf.adapters.gemini.names import CLIENT_RUN, CONTENT, PROVIDER_TOOLS, REQUEST, normal, spelt
from cmf.adapters.gemini.parts import FORMAT, Names, decode_part, encode_group
from cmf.adapters.wire import loss
from cmf.adapters.wire.base import HttpCall
from cmf.adapters.wire.call_ids import call_names
from cmf.adapters.wire.fields import Fields, extra_of, merge, object_in, opened, read_sampling, write_sampling
from cmf.adapters.wire.layout import grouped, joined, respell, respell_one, shape_of, spelled, spelled_one, user_runs
from cmf.enums import Role
from cmf.errors import ShapeError, UnknownRoleError, UnsupportedError
from cmf.json.frozen import FrozenDict, freeze, frozen_mapping, same_spelling
from cmf.json.value import present, replace, trusted
from cmf.message.message import Message
from cmf.message.request import Request, ToolChoice
from cmf.message.tools import ToolDefinition

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
    notes = present(names=names or None, tools=sizes)
    return spelled_one(request, plain, whole, format_name=FORMAT, notes=notes)


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
    options: dict[str, Any] = {}
    if (config := fields.inside("generationConfig")) is not None:
        options = _decode_config(config)
        fields.leave("generationConfig", config)
    choice = None
    if (config := fields.inside("toolConfig")) is not None:
        calling = config.peek("functionCallingConfig")
        choice = _chosen(calling)
        if choice is not None and same_spelling(_calling(choice), calling):
            config.take("functionCallingConfig", dict)
        fields.leave("toolConfig", config)
    named = fields.peek("model")
    if isinstance(named, str) and model is not None and not _same_model(named, model):
        raise ShapeError("the body names another model than the path", path="$.model", hint="leave it out")
    if model is None and isinstance(named, str):
        model = named
    return trusted(Request, model=model, tools=tools, tool_choice=choice, **options, extra=fields.rest(FORMAT)), sizes


def _same_model(named: str, model: str) -> bool:
    return named.removeprefix("models/") == model.removeprefix("models/")


def _decode_config(config: Fields) -> dict[str, Any]:
    """The options of a request. The level of thinking is in lower case; another case stays in `extra` as well."""
    sampling = read_sampling(config, _SAMPLING)
    schema, note = decode_schema(config, "responseJsonSchema", "responseSchema")
    if schema is not None:
        config.drop("responseMimeType", "application/json")
    if note is not None:
        config.put_back(SCHEMA_NOTE, note)
    thinking = config.peek("thinkingConfig")
    level = thinking.get("thinkingLevel") if isinstance(thinking, dict) else None
    level = level if isinstance(level, str) else None
    if level is not None and level == level.lower():
        config.take("thinkingConfig", dict)
        if rest := {key: value for key, value in thinking.items() if key != "thinkingLevel"}:
            config.put_back("thinkingConfig", rest)
    effort = None if level is None else level.lower()
    return {"sampling": sampling, "response_schema": schema, "reasoning_effort": effort}


def _chosen(calling: Any) -> ToolChoice | None:
    if not isinstance(calling, dict):
        return None
    mode, listed = calling.get("mode"), calling.get("allowedFunctionNames")
    chosen = _MODES.get(mode.upper()) if isinstance(mode, str) else None
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
        for content in contents:  # say of the first call of each turn that another model made it
            call = next((part for part in content.get("parts", ()) if "functionCall" in part), None)
            if call is not None:
                call.setdefault("thoughtSignature", _UNSIGNED)
    if contents:
        body["contents"] = contents
    renamed: dict[str, Any] = spelt(body, shape.get("names") or {}, REQUEST)
    return renamed


def _is_own(request: Request) -> bool:
    """Whether the request has something that only this format can express."""
    holders: tuple[Any, ...] = (request, *request.messages)
    laid_out = any(each.provider_raw is not None and each.provider_raw.format == FORMAT for each in holders)
    parts = (part for message in request.messages for part in message.content)
    return laid_out or any(FORMAT in (each.extra or ()) for each in (*holders, *parts))


def _encode_envelope(request: Request, sizes: Sequence[int] | None) -> dict[str, Any]:
    """A request's own fields, without its turns, in normal form; `contents` is there, empty."""
    own = dict(extra_of(request, FORMAT))
    body: dict[str, Any] = {"contents": []}
    original = own.get("toolConfig")
    is_spelled = isinstance(original, dict) and _chosen(original.get("functionCallingConfig")) == request.tool_choice
    if not is_spelled:
        if isinstance(original, dict):
            own["toolConfig"] = {key: item for key, item in original.items() if key != "functionCallingConfig"}
        narrowed = loss.narrowed(FORMAT, request)
        sizes = sizes if narrowed.tools == request.tools else None
        request = narrowed
    if config := _encode_config(request, object_in(own, "generationConfig")):
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


def _encode_config(request: Request, original: Mapping[str, Any]) -> dict[str, Any]:
    config = write_sampling(request.sampling, _SAMPLING)
    if request.response_schema is not None:
        note = original.get(SCHEMA_NOTE)
        key = "responseSchema" if SCHEMA_NOTE in original else "responseJsonSchema"
        config[key] = raised(request.response_schema) if note == OPENAPI else request.response_schema
        if "responseMimeType" not in original:
            config["responseMimeType"] = "application/json"
    effort, level = request.reasoning_effort, object_in(original, "thinkingConfig").get("thinkingLevel")
    if effort is not None and (not isinstance(level, str) or level.lower() != effort):
        config["thinkingConfig"] = {"thinkingLevel": effort}
    return config


def _turns(messages: Sequence[Message], names: Names) -> tuple[Any, list[Any]]:
    """The system instruction, if any, and the contents; system text is hoisted [A5]."""
    system = [message for message in messages if message.role in (Role.SYSTEM, Role.DEVELOPER)]
    turns = [message for message in messages if message.role not in (Role.SYSTEM, Role.DEVELOPER)]
    # The results of one turn stand in one content, if their grouping was not recorded.
    together = joined(
        grouped(turns, FORMAT), lambda group: first if (first := _loose(group[0])) == _loose(group[-1]) else None
    )
    contents = [content for group in together if (content := _content(group, names)) is not None]
    return (_content(tuple(system), names, system=True) if system else None), contents


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


# -- tool objects [GEM-13] ---------------------------------------------------------------------------------------------

SCHEMA_NOTE: Final = "cmf_schema"  # the name of a schema's key, if that was the older one
OPENAPI: Final = "openapi"

_UPPER: Final = ("OBJECT", "ARRAY", "STRING", "NUMBER", "INTEGER", "BOOLEAN", "NULL")
_LOWERED: Final = {name: name.lower() for name in _UPPER}
_RAISED: Final = {lower: name for name, lower in _LOWERED.items()}
_ONE: Final = ("items", "additionalProperties")  # the value under these is a schema
_LISTED: Final = ("anyOf", "prefixItems")  # a list of schemas
_NAMED: Final = ("properties", "defs")  # an object of schemas


def decode_tools(fields: Fields) -> tuple[tuple[ToolDefinition, ...], list[int] | None]:
    """The tools of a request, and how many came in each object, if not in the usual way."""
    flat: list[ToolDefinition] = []
    sizes: list[int] = []
    for index, raw in enumerate(fields.optional("tools", list) or ()):
        path = f"{fields.path}.tools[{index}]"
        if not isinstance(raw, dict):
            raise ShapeError("expected a JSON object", path=path, hint="a tool is an object with one key for its kind")
        before = len(flat)
        for key, value in raw.items():
            if key == "functionDeclarations" and (value is None or isinstance(value, list)):
                flat += [_declared(each, f"{path}.{key}[{at}]") for at, each in enumerate(value or ())]
            elif value is not None or key not in PROVIDER_TOOLS:
                own = frozen_mapping({FORMAT: frozen_mapping({key: value})})
                runner = "client" if key in CLIENT_RUN else "provider"
                flat.append(trusted(ToolDefinition, name=key, type=key, executed_by=runner, extra=own))
        sizes.append(len(flat) - before)
    return tuple(flat), (None if sizes == _plain_sizes(flat) else sizes)


def _declared(raw: Any, path: str) -> ToolDefinition:
    fields = Fields(raw, path)
    name = fields.need("name", str)
    description = fields.optional("description", str)
    schema, note = decode_schema(fields, "parametersJsonSchema", "parameters")
    if note is not None:
        fields.put_back(SCHEMA_NOTE, note)
    return trusted(ToolDefinition, name=name, description=description, input_schema=schema, extra=fields.rest(FORMAT))


def decode_schema(fields: Fields, new: str, old: str) -> tuple[FrozenDict | None, str | None]:
    """The schema under the one name or the other, if there is only one; and a note if it was the older name.

    The note is that name, or that the schema's types had OpenAPI's names there [GEM-25].
    """
    if new in fields and old in fields:
        return None, None
    if SCHEMA_NOTE in fields:
        raise ShapeError("a reserved key", path=f"{fields.path}.{SCHEMA_NOTE}", hint="leave it out")
    newer = fields.take(new, FrozenDict)
    if newer is not None:
        return newer, None
    older = fields.take(old, FrozenDict)
    lower = None if older is None else lowered(older)
    return (older, None if older is None else old) if lower is None else (lower, OPENAPI)


def _plain_sizes(tools: Sequence[ToolDefinition]) -> list[int]:
    """How tools are grouped unless they came otherwise: consecutive functions together, each provider's tool alone."""
    sizes: list[int] = []
    together = False
    for tool in tools:
        if together and _is_declared(tool):
            sizes[-1] += 1
        else:
            sizes.append(1)
        together = _is_declared(tool)
    return sizes


def _is_declared(tool: ToolDefinition) -> bool:
    """Whether it is a function declaration, and no key of a tool object."""
    return tool.executed_by == "client" and tool.type not in CLIENT_RUN


def encode_tools(tools: Sequence[ToolDefinition], sizes: Sequence[int] | None) -> list[dict[str, Any]]:
    """Tool objects in normal form; UnsupportedError for what another provider runs."""
    objects: list[dict[Any, Any]] = []
    at = 0
    for size in _plain_sizes(tools) if sizes is None else sizes:
        together: dict[Any, Any] = {}
        for tool in tools[at : at + size]:
            own = extra_of(tool, FORMAT)
            if _is_declared(tool):
                together.setdefault("functionDeclarations", []).append(_declaration(tool, own))
            elif own:
                together.update(own)
            elif tool.type in PROVIDER_TOOLS:
                together[tool.type] = {}
            else:
                hint = "offer one of Gemini's, or drop it"
                raise UnsupportedError("a tool that another provider runs", about=tool, hint=hint)
        objects.append(together)
        at += size
    return objects


def _declaration(tool: ToolDefinition, own: Mapping[str, Any]) -> dict[str, Any]:
    loss.refuse_foreign_kind(FORMAT, tool)
    loss.drop_foreign_extra(FORMAT, tool, "tool_definition")
    note, schema = own.get(SCHEMA_NOTE), tool.input_schema
    declared = {"name": tool.name, **present(description=tool.description)}
    if schema is not None:
        kind = schema.get("type")
        upper = isinstance(kind, str) and kind.isupper()  # OpenAPI's spelling, which only the older name takes
        key = "parameters" if note is not None or upper else "parametersJsonSchema"
        declared[key] = raised(schema) if note == OPENAPI else schema
    return merge(declared, {key: item for key, item in own.items() if key != SCHEMA_NOTE})


# -- types of schemas: OpenAPI's upper-case names, as Gemini's older schemas have them, and JSON Schema's [GEM-25] -----
# A canonical schema is JSON Schema: tools are checked by it, and other providers refuse `OBJECT`.


def lowered(schema: FrozenDict) -> FrozenDict | None:
    """The schema with JSON Schema's names of types; None unless it has types, and OpenAPI's alone."""
    others: list[Any] = []
    names: list[str] = []

    def lowered(name: Any) -> Any:
        lower = _LOWERED.get(name) if isinstance(name, str) else None
        (others if lower is None else names).append(name)
        return lower

    retyped = _retyped(schema, lowered)
    return freeze(retyped) if names and not others else None


def raised(schema: Any) -> Any:
    """The schema with OpenAPI's names of types; a type that has none there stays."""
    return _retyped(schema, lambda name: _RAISED.get(name, name) if isinstance(name, str) else name)


def _retyped(schema: Any, change: Callable[[Any], Any]) -> Any:
    if not isinstance(schema, dict):
        return schema
    retyped: dict[str, Any] = {}
    for key, item in schema.items():
        if key == "type":
            retyped[key] = change(item)
        elif key in _ONE:
            retyped[key] = _retyped(item, change)
        elif key in _LISTED and isinstance(item, list):
            retyped[key] = [_retyped(each, change) for each in item]
        elif key in _NAMED and isinstance(item, dict):
            retyped[key] = {name: _retyped(each, change) for name, each in item.items()}
        else:
            retyped[key] = item
    return retyped
