"""The canonical message format: pure values, no I/O, no clock, no policy. Spec: docs/spec/."""

# ruff: noqa: F403, F405 - `__all__` lists what stands in `exports`; tests/house/test_doors.py compares them
from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmf.exports import *

__all__ = [
    "SCHEMA_VERSION",
    "AgentExtension",
    "AudioPart",
    "Capability",
    "CapabilityError",
    "Channel",
    "Choice",
    "CmfError",
    "CompletionExtension",
    "ContentPart",
    "ContentType",
    "ConversationContext",
    "DataPolicy",
    "DecodeError",
    "DelegationExtension",
    "DelegationHop",
    "DocumentPart",
    "ErrorInfo",
    "Extensions",
    "FrameworkExtension",
    "FrozenDict",
    "FrozenList",
    "Hook",
    "HttpExtension",
    "ImagePart",
    "LLMExtension",
    "MCPExtension",
    "Message",
    "MessageStatus",
    "MessageView",
    "MetaExtension",
    "ObjectSecurityProfile",
    "OpaquePart",
    "Part",
    "PromptMetadata",
    "PromptRequestPart",
    "PromptResultPart",
    "ProvenanceExtension",
    "RedactedThinkingPart",
    "Request",
    "RequestExtension",
    "ResourceMetadata",
    "ResourcePart",
    "ResourceRefPart",
    "ResourceType",
    "Response",
    "RetentionPolicy",
    "Role",
    "RoutingExtension",
    "RoutingMode",
    "Sampling",
    "SecurityExtension",
    "ShapeError",
    "SideEffects",
    "StopReason",
    "SubjectExtension",
    "SubjectType",
    "TextPart",
    "ThinkingPart",
    "Tier",
    "TokenUsage",
    "ToolCallPart",
    "ToolChoice",
    "ToolDefinition",
    "ToolMetadata",
    "ToolResultPart",
    "VideoPart",
    "ViewAction",
    "ViewKind",
    "iter_views",
]


def __getattr__(name: str) -> Any:
    """What `exports` has, imported when first asked for: that takes pydantic, which many programs never need."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cmf import exports

    globals().update({each: getattr(exports, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    """The names there are, for whoever completes or lists them."""
    return sorted([*globals(), *__all__])
