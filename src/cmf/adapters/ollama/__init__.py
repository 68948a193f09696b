"""The wire format of Ollama's `/api/chat`. Spec: docs/spec/adapters/ollama.md."""

from cmf.adapters.ollama.adapter import ADAPTER

__all__ = ["ADAPTER"]
