"""What a model can do, declared honestly [F7]. Spec: docs/spec/capabilities.md; seed 000 §7.2.

The declarations live in a versioned YAML file; a model that is not in it gets the most restrictive answer.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from cmf.value import Str, Value, value


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
    max_context_tokens: Annotated[int, Field(ge=0, strict=True)] = 0
    max_output_tokens: Annotated[int, Field(ge=0, strict=True)] = 0
    accepted_image_media_types: tuple[Str, ...] = ()
