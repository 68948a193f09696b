"""The Messages format: what its wire forms mean. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

from tests.cmf.adapters.harness import Proof


class TestWire(Proof):
    """What holds of every format, over recorded traffic of this one."""

    format_name = "anthropic_messages"
