"""MCP: every method and result has its row, and nothing of a message is lost. Spec: docs/spec/adapters/mcp.md."""

from __future__ import annotations

from tests.cmf.adapters.harness import Proof


class TestWire(Proof):
    format_name = "mcp"
