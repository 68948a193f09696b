"""The Vercel AI SDK: UI messages, and the stream of chunks that builds one. Spec: docs/spec/adapters/aisdk.md."""

from cmf.adapters.aisdk.adapter import ADAPTER

__all__ = ["ADAPTER"]
