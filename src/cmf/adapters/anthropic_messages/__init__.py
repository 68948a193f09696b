"""Anthropic's Messages API (also as Vertex AI and Bedrock serve it). Spec: docs/spec/adapters/anthropic_messages.md."""

from cmf.adapters.anthropic_messages.adapter import ADAPTER

__all__ = ["ADAPTER"]
