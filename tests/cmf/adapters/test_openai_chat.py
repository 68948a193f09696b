"""OpenAI chat completions: what its wire forms mean, and the proofs over recorded traffic."""

from __future__ import annotations

from tests.cmf.adapters.harness import Proof


class TestRecordedTraffic(Proof):
    format_name = "openai_chat"
