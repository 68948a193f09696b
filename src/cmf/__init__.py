"""The canonical message format: pure values, no I/O, no clock, no policy. Spec: docs/spec/."""

from __future__ import annotations

from cmf.content import AudioPart as AudioPart
from cmf.content import ContentPart as ContentPart
from cmf.content import DocumentPart as DocumentPart
from cmf.content import ImagePart as ImagePart
from cmf.content import OpaquePart as OpaquePart
from cmf.content import Part as Part
from cmf.content import PromptRequestPart as PromptRequestPart
from cmf.content import PromptResultPart as PromptResultPart
from cmf.content import RedactedThinkingPart as RedactedThinkingPart
from cmf.content import ResourcePart as ResourcePart
from cmf.content import ResourceRefPart as ResourceRefPart
from cmf.content import TextPart as TextPart
from cmf.content import ThinkingPart as ThinkingPart
from cmf.content import ToolCallPart as ToolCallPart
from cmf.content import ToolResultPart as ToolResultPart
from cmf.content import VideoPart as VideoPart
from cmf.decomposition import iter_views as iter_views
from cmf.enums import Capability as Capability
from cmf.enums import Channel as Channel
from cmf.enums import ContentType as ContentType
from cmf.enums import Hook as Hook
from cmf.enums import MessageStatus as MessageStatus
from cmf.enums import ResourceType as ResourceType
from cmf.enums import Role as Role
from cmf.enums import RoutingMode as RoutingMode
from cmf.enums import SideEffects as SideEffects
from cmf.enums import StopReason as StopReason
from cmf.enums import SubjectType as SubjectType
from cmf.enums import Tier as Tier
from cmf.enums import ViewAction as ViewAction
from cmf.enums import ViewKind as ViewKind
from cmf.errors import CapabilityError as CapabilityError
from cmf.errors import CmfError as CmfError
from cmf.errors import DecodeError as DecodeError
from cmf.errors import ShapeError as ShapeError
from cmf.extensions import AgentExtension as AgentExtension
from cmf.extensions import CompletionExtension as CompletionExtension
from cmf.extensions import ConversationContext as ConversationContext
from cmf.extensions import DelegationExtension as DelegationExtension
from cmf.extensions import DelegationHop as DelegationHop
from cmf.extensions import Extensions as Extensions
from cmf.extensions import FrameworkExtension as FrameworkExtension
from cmf.extensions import HttpExtension as HttpExtension
from cmf.extensions import LLMExtension as LLMExtension
from cmf.extensions import MCPExtension as MCPExtension
from cmf.extensions import MetaExtension as MetaExtension
from cmf.extensions import PromptMetadata as PromptMetadata
from cmf.extensions import ProvenanceExtension as ProvenanceExtension
from cmf.extensions import RequestExtension as RequestExtension
from cmf.extensions import ResourceMetadata as ResourceMetadata
from cmf.extensions import RoutingExtension as RoutingExtension
from cmf.extensions import TokenUsage as TokenUsage
from cmf.extensions import ToolMetadata as ToolMetadata
from cmf.frozen import FrozenDict as FrozenDict
from cmf.frozen import FrozenList as FrozenList
from cmf.message import SCHEMA_VERSION as SCHEMA_VERSION
from cmf.message import Message as Message
from cmf.request import Choice as Choice
from cmf.request import ErrorInfo as ErrorInfo
from cmf.request import Request as Request
from cmf.request import Response as Response
from cmf.request import Sampling as Sampling
from cmf.request import ToolChoice as ToolChoice
from cmf.security import DataPolicy as DataPolicy
from cmf.security import ObjectSecurityProfile as ObjectSecurityProfile
from cmf.security import RetentionPolicy as RetentionPolicy
from cmf.security import SecurityExtension as SecurityExtension
from cmf.security import SubjectExtension as SubjectExtension
from cmf.tools import ToolDefinition as ToolDefinition
from cmf.view import MessageView as MessageView

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
