"""What a model can do, declared honestly [F7], and what a conversation needs of one. Spec: capabilities.md.

The declarations live in a versioned YAML file; a model that is not in it gets the most restrictive answer.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import yaml

from cmf.enums import Role
from cmf.errors import ShapeError, UnsupportedError
from cmf.json.value import Count, Str, Value, value
from cmf.message.message import ImagePart, Message, ToolCallPart, ToolResultPart
from cmf.message.model_ids import model_matches, wire_name
from cmf.message.request import Request
from cmf.message.transform import part_paths

_EXAMPLE: Final = "see cmf/models/models.yaml for one"


@value
class ModelCapabilities(Value):
    """The thirteen declarations of one model. Limits are in tokens; 0 means: not known, so nothing may rely on it."""

    supports_thinking: bool = False
    supports_images: bool = False
    supports_tools: bool = False
    supports_system_prompt: bool = False
    supports_structured_output: bool = False
    supports_streaming: bool = False
    supports_streaming_tool_calls: bool = False
    supports_parallel_tool_calls: bool = False
    supports_prompt_caching: bool = False
    supports_system_messages_in_list: bool = False
    max_context_tokens: Count = 0
    max_output_tokens: Count = 0
    accepted_image_media_types: tuple[Str, ...] = ()


NONE = ModelCapabilities()
"""The answer for a model that nobody declared: it can do nothing that was not promised."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityTable:
    """Declarations by wire format and model pattern; the most specific (longest) pattern wins."""

    version: str
    formats: Mapping[str, Mapping[str, ModelCapabilities]]

    def lookup(self, wire_format: str, model: str) -> ModelCapabilities:
        """What `model` can do through `wire_format`; `NONE` for one that is not declared. Case counts."""
        patterns = self.formats.get(wire_format, {})
        fitting = [pattern for pattern in patterns if model_matches(model, pattern)]
        return patterns[max(fitting, key=len)] if fitting else NONE


def parse_table(text: str) -> CapabilityTable:
    """The table that YAML `text` spells. Raises ShapeError, with a path, where it is none."""
    try:
        body = yaml.safe_load(text)
    except yaml.YAMLError:
        raise ShapeError("the capability table is not YAML", path="$", hint=_EXAMPLE) from None
    if not isinstance(body, dict) or not isinstance(body.get("formats"), dict) or "version" not in body:
        raise ShapeError("a capability table has `version` and `formats`", path="$", hint=_EXAMPLE)
    shared = _object(body.get("profiles", {}), "$.profiles")
    formats = {
        name: {
            pattern: _entry(entry, shared, f"$.formats.{name}.{pattern}")
            for pattern, entry in _object(models, f"$.formats.{name}").items()
        }
        for name, models in body["formats"].items()
    }
    return CapabilityTable(version=str(body["version"]), formats=formats)


def _entry(entry: Any, shared: Mapping[str, Any], path: str) -> ModelCapabilities:
    fields = dict(_object(entry, path))
    base = fields.pop("like", None)
    if base is not None and (not isinstance(base, str) or base not in shared):
        raise ShapeError("no such profile", path=f"{path}.like", hint="name one that the table has under `profiles`")
    inherited = {} if base is None else _object(shared[base], f"$.profiles.{base}")
    try:
        declared: ModelCapabilities = ModelCapabilities.model_validate({**inherited, **fields})
    except ShapeError as error:
        raise error.at(path) from None
    return declared


def _object(item: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise ShapeError("not an object", path=path, hint=_EXAMPLE)
    return item


@cache
def shipped_table() -> CapabilityTable:
    """The table that comes with the package."""
    return parse_table(importlib.resources.files("cmf.models").joinpath("models.yaml").read_text("utf-8"))


def lookup(wire_format: str, model: str) -> ModelCapabilities:
    """What `model`, with its provider's key or without, can do through `wire_format`, by the shipped table."""
    return shipped_table().lookup(wire_format, wire_name(model))


# -- what a conversation needs that a model does not offer [CAP-5] to [CAP-7] ------------------------------------------
# It is asked before a swap or a route, not found out on the wire. What may be dropped with a record (thinking, cache
# marks) is no shortfall.


class Shortfall(NamedTuple):
    """One thing that is needed: the declaration that is missing, where it is needed, and what it is in plain words."""

    capability: str
    path: str
    what: str


def shortfalls(
    value: Request | Sequence[Message], offered: ModelCapabilities, *, input_tokens: int = 0
) -> tuple[Shortfall, ...]:
    """What of a request, or of a session's messages, a model with these declarations cannot take, each thing once.

    A model that nobody declared offers nothing; a size that nobody estimated is 0.
    """
    messages, prefix = (value.messages, "$.messages") if isinstance(value, Request) else (value, "$")
    first: dict[str, Shortfall] = {}
    missing = list(_of_messages(messages, prefix, offered))
    if isinstance(value, Request):
        missing += _of_request(value, offered)
    if input_tokens > offered.max_context_tokens:
        missing.append(Shortfall("max_context_tokens", prefix, "more tokens"))
    for shortfall in missing:
        first.setdefault(shortfall.capability, shortfall)
    return tuple(first.values())


def check_swap(messages: Sequence[Message], offered: ModelCapabilities, *, name: str, input_tokens: int = 0) -> None:
    """Nothing, where the session can go on with the model called `name`.

    Raises:
        UnsupportedError: it cannot; code `swap.<capability>`, and the path of the first part in the way.
    """
    for shortfall in shortfalls(messages, offered, input_tokens=input_tokens):
        raise UnsupportedError(
            f"Cannot swap to {name}: session contains {shortfall.what} that this model can't process.",
            path=shortfall.path,
            code=f"swap.{shortfall.capability.replace('_', '-')}",
            hint=f"choose a model that declares {shortfall.capability}",
        )


def _of_messages(messages: Iterable[Message], prefix: str, offered: ModelCapabilities) -> Iterator[Shortfall]:
    accepted = offered.accepted_image_media_types
    for index, message in enumerate(messages):
        at = f"{prefix}[{index}]"
        if message.role in (Role.SYSTEM, Role.DEVELOPER) and message.content and not offered.supports_system_prompt:
            yield Shortfall("supports_system_prompt", at, "a system prompt")
        for path, part in part_paths(message):
            where = f"{at}.{path}"
            if isinstance(part, ToolCallPart | ToolResultPart) and not offered.supports_tools:
                yield Shortfall("supports_tools", where, "tool calls")
            elif isinstance(part, ImagePart) and not offered.supports_images:
                yield Shortfall("supports_images", where, "images")
            elif isinstance(part, ImagePart) and (kind := part.media_type) is not None and kind.lower() not in accepted:
                yield Shortfall("accepted_image_media_types", where, "images of a type")


def _of_request(request: Request, offered: ModelCapabilities) -> Iterator[Shortfall]:
    streams_calls = request.stream is True and bool(request.tools)
    wanted = request.sampling.max_output_tokens
    needs = (
        ("supports_tools", "$.tools", "tools", bool(request.tools)),
        ("supports_structured_output", "$.response_schema", "a response schema", request.response_schema is not None),
        ("supports_streaming", "$.stream", "a stream", request.stream is True),
        ("supports_streaming_tool_calls", "$.stream", "streamed tool calls", streams_calls),
    )
    for capability, path, what, needed in needs:
        if needed and not getattr(offered, capability):
            yield Shortfall(capability, path, what)
    if wanted is not None and wanted > offered.max_output_tokens:
        yield Shortfall("max_output_tokens", "$.sampling.max_output_tokens", "more output tokens")
