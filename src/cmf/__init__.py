"""The canonical message format: pure values, no I/O, no clock, no policy. Spec: docs/spec/."""

# ruff: noqa: F403, F405 - `__all__` lists what stands in `exports`; tests/house/test_doors.py compares them
from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
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
    """What `exports` has, imported when first asked for: that takes pydantic, which many programs never need.

    So are the modules of the package: after `import cmf` there is `cmf.adapters.get(name)`.
    """
    if name not in __all__:
        if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
    exports = import_module("cmf.exports")
    globals().update({each: getattr(exports, each) for each in __all__})
    return globals()[name]


def __dir__() -> list[str]:
    """What the package offers, and nothing that it only uses: editors and notebooks ask for it."""
    return sorted(__all__)
