"""Every closed set of the format, once. Spec: docs/spec/message.md."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """The author of a message."""

    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Channel(StrEnum):
    """What kind of output a message is; unset means a standard message."""

    ANALYSIS = "analysis"
    COMMENTARY = "commentary"
    FINAL = "final"


class ContentType(StrEnum):
    """The discriminator of content parts: the twelve of CMF v2 and two additive ones."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    RESOURCE = "resource"
    RESOURCE_REF = "resource_ref"
    PROMPT_REQUEST = "prompt_request"
    PROMPT_RESULT = "prompt_result"
    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    DOCUMENT = "document"
    REDACTED_THINKING = "redacted_thinking"
    OPAQUE = "opaque"


class ResourceType(StrEnum):
    """What a resource is."""

    FILE = "file"
    BLOB = "blob"
    URI = "uri"
    DATABASE = "database"
    API = "api"
    MEMORY = "memory"
    ARTIFACT = "artifact"


class MessageStatus(StrEnum):
    """How far a message has come. Only complete messages are held to the invariants."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    CANCELLED = "cancelled"
    ERROR = "error"


class ViewKind(StrEnum):
    """What one view shows."""

    TEXT = "text"
    THINKING = "thinking"
    TOOL_CALL = "tool_call"
    TOOL_RESULT = "tool_result"
    RESOURCE = "resource"
    RESOURCE_REF = "resource_ref"
    PROMPT_REQUEST = "prompt_request"
    PROMPT_RESULT = "prompt_result"
    IMAGE = "image"
    VIDEO = "video"
    AUDIO = "audio"
    DOCUMENT = "document"
    REQUEST = "request"
    RESPONSE = "response"
    TOOL_DEFINITION = "tool_definition"
    OPAQUE = "opaque"


class ViewAction(StrEnum):
    """What happens with what a view shows."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    INVOKE = "invoke"
    SEND = "send"
    RECEIVE = "receive"
    GENERATE = "generate"


class Hook(StrEnum):
    """Where in the traffic a view is judged [B10]."""

    LLM_REQUEST = "llm_request"
    LLM_RESPONSE = "llm_response"
    TOOL_PRE = "tool_pre"
    TOOL_POST = "tool_post"
    RESOURCE_PRE = "resource_pre"
    RESOURCE_POST = "resource_post"
    PROMPT_PRE = "prompt_pre"
    PROMPT_POST = "prompt_post"


class Tier(StrEnum):
    """How an extension slot may change on its way through the pipeline."""

    IMMUTABLE = "immutable"
    MONOTONIC = "monotonic"
    GUARDED = "guarded"
    MUTABLE = "mutable"


class Capability(StrEnum):
    """What a reader or a stage may see or change."""

    READ_SUBJECT = "read_subject"
    READ_ROLES = "read_roles"
    READ_PERMISSIONS = "read_permissions"
    READ_TEAMS = "read_teams"
    READ_CLAIMS = "read_claims"
    READ_AGENT = "read_agent"
    READ_HEADERS = "read_headers"
    WRITE_HEADERS = "write_headers"
    READ_LABELS = "read_labels"
    READ_OBJECTS = "read_objects"
    READ_DATA = "read_data"
    READ_DELEGATION = "read_delegation"


class SubjectType(StrEnum):
    """What kind of entity made the request."""

    USER = "user"
    AGENT = "agent"
    SERVICE = "service"
    SYSTEM = "system"


class StopReason(StrEnum):
    """Why generation ended: the five of CMF v2, and five additive ones [A9]."""

    END = "end"
    RETURN = "return"
    CALL = "call"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    PAUSE = "pause"
    ERROR = "error"
    OTHER = "other"


class SideEffects(StrEnum):
    """What running a tool does to the world."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


class RoutingMode(StrEnum):
    """Why a turn went to its model, as the message keeps it: coarser than `ChainPolicy`."""

    OVERRIDE = "override"
    MANUAL = "manual"
    RULE = "rule"
    PATTERN = "pattern"
    DELEGATE = "delegate"
    DEFAULT = "default"

    @classmethod
    def from_policy(cls, policy: ChainPolicy | str) -> RoutingMode:
        """The mode that stands for a policy of a routing chain; ValueError for an unknown policy."""
        return _MODE_OF_POLICY[ChainPolicy(policy)]


class ChainPolicy(StrEnum):
    """The finer-grained policies of a routing chain."""

    PER_MESSAGE_OVERRIDE = "PER_MESSAGE_OVERRIDE"
    MANUAL_STICKY = "MANUAL_STICKY"
    RULE = "RULE"
    PATTERN = "PATTERN"
    DELEGATE_REQUEST = "DELEGATE_REQUEST"
    WORKSPACE_DEFAULT = "WORKSPACE_DEFAULT"
    GLOBAL_DEFAULT = "GLOBAL_DEFAULT"


_MODE_OF_POLICY = {
    ChainPolicy.PER_MESSAGE_OVERRIDE: RoutingMode.OVERRIDE,
    ChainPolicy.MANUAL_STICKY: RoutingMode.MANUAL,
    ChainPolicy.RULE: RoutingMode.RULE,
    ChainPolicy.PATTERN: RoutingMode.PATTERN,
    ChainPolicy.DELEGATE_REQUEST: RoutingMode.DELEGATE,
    ChainPolicy.WORKSPACE_DEFAULT: RoutingMode.DEFAULT,
    ChainPolicy.GLOBAL_DEFAULT: RoutingMode.DEFAULT,
}
