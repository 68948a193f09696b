"""The AI SDK: UI messages and their stream. Spec: docs/spec/adapters/aisdk.md."""

from __future__ import annotations

from tests.cmf.adapters.harness import Proof


class TestWire(Proof):
    format_name = "aisdk"
