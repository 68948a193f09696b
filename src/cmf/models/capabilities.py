"""What a model can do, declared honestly [F7]. Spec: docs/spec/capabilities.md; seed 000 §7.2.

The declarations live in a versioned YAML file; a model that is not in it gets the most restrictive answer.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

from cmf.errors import ShapeError
from cmf.json.value import Count, Str, Value, value
from cmf.message.model_ids import model_matches, wire_name

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


def _object(found: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise ShapeError("not an object", path=path, hint=_EXAMPLE)
    return found


@cache
def shipped_table() -> CapabilityTable:
    """The table that comes with the package."""
    return parse_table(importlib.resources.files("cmf.models").joinpath("models.yaml").read_text("utf-8"))


def lookup(wire_format: str, model: str) -> ModelCapabilities:
    """What `model`, with its provider's key or without, can do through `wire_format`, by the shipped table."""
    return shipped_table().lookup(wire_format, wire_name(model))
