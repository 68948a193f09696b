"""Fields beside an answer, by format, that have nothing of its words. Spec: docs/spec/effects.md [EFF-10].

All else may say them again: token by token as probabilities or ids, as what was found or quoted, parsed, or in a
filter's notes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cmf.json.frozen import FrozenDict

_SILENT: Final = frozenset(
    {
        "id", "object", "created", "created_at", "completed_at", "createdAt", "createTime", "responseId", "request_id",
        "provider", "service_tier", "system_fingerprint", "usage", "usageMetadata", "status", "error",
        "incomplete_details", "done_reason", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration",
    }
)  # fmt: skip
_OF_FORMAT: Final[Mapping[str, frozenset[str]]] = {
    # what was asked for, which this format repeats
    "openai_responses": frozenset(
        {
            "background", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
            "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "reasoning",
            "safety_identifier", "store", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
            "truncation", "user",
        }
    ),
    # the form in which it came
    "aisdk": frozenset({"partial"}),
    "mcp": frozenset({"answers", "bare", "batch", "entry", "envelope", "key"}),
}  # fmt: skip


def silent(extra: Mapping[str, Any] | None) -> FrozenDict | None:
    """What stays of `extra`: by format what is no echo, and the word for a form."""
    kept: dict[str, Any] = {}
    for name, own in (extra or {}).items():
        left = own
        if isinstance(own, Mapping):
            known = _SILENT | _OF_FORMAT.get(name, frozenset())
            left = {key: item for key, item in own.items() if key in known}
        if left:
            kept[name] = left
    return FrozenDict(kept) if kept else None
