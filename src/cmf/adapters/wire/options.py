"""What requests of all formats say alike, under names of their own: how an answer is drawn, and a tool's definition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.adapters.wire.fields import Fields
from cmf.json.value import present, trusted
from cmf.message.request import NO_SAMPLING, Sampling
from cmf.message.tools import ToolDefinition

_COUNTS: Final = frozenset({"max_output_tokens", "seed"})


def read_sampling(fields: Fields, names: Mapping[str, str]) -> Sampling:
    """The options that stand under these wire names, each taken if it has the type of its field; others stay."""
    drawn: dict[str, Any] = {}
    for key, name in names.items():
        if name == "stop":
            drawn[name] = fields.take_texts(key)
        else:
            drawn[name] = fields.take(key, int) if name in _COUNTS else fields.take_number(key)
    drawn = present(**drawn)
    return trusted(Sampling, **drawn) if drawn else NO_SAMPLING


def write_sampling(sampling: Sampling, names: Mapping[str, str]) -> dict[str, Any]:
    """The options under their wire names, without those that are None."""
    drawn = {key: item for key, name in names.items() if (item := getattr(sampling, name)) is not None}
    return {key: list(item) if isinstance(item, tuple) else item for key, item in drawn.items()}


def write_definition(tool: ToolDefinition, schema_key: str) -> dict[str, Any]:
    """The name, description and input schema of a tool, the last under the key that the format has for it."""
    return {"name": tool.name, **present(description=tool.description, **{schema_key: tool.input_schema})}
