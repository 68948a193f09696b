"""The Messages format: the proofs over recorded traffic. Spec: docs/spec/adapters/anthropic_messages.md."""

from __future__ import annotations

from tests.cmf.adapters.harness import Proof
from tests.cmf.adapters.messages_bodies import ADAPTER, ASK


class TestWire(Proof):
    """What holds of every format, over recorded traffic of this one."""

    format_name = "anthropic_messages"


def test_a_request_is_weighed_and_a_model_described() -> None:
    assert ADAPTER.estimate_input_tokens(ADAPTER.from_wire_request(ASK)) > 0
    assert ADAPTER.capabilities("claude-sonnet-4-5").supports_tools
    assert not ADAPTER.capabilities("no-such-model").supports_tools
