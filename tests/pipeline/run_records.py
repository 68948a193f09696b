"""Records of made-up runs, for the tests of what writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ulid import ULID

from cmf.message.message import RequestExtension
from cmf.message.security import SubjectExtension
from pipeline.audit.record import Record, Run, record_of
from pipeline.decisions.context import Context
from pipeline.decisions.decision import Action, Coverage, Decision, Effect, Hit, Mode, Verdict, ViewDecision

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ANN = Context(
    subject=SubjectExtension(id="ann", roles=frozenset({"agent"}), claims={"token": "CLAIM-CONTENT"}),  # type: ignore[arg-type]
    session="s1",
    environment="test",
    request=RequestExtension(request_id="req-1", trace_id="t1", span_id="p1"),
)


def hit(effect: Effect = Effect.DENY, **fields: Any) -> Hit:
    """A hit whose free texts would give it away if they were kept."""
    return Hit(
        rule="test/a",
        code="test.a",
        effect=effect,
        reason="REASON-CONTENT",
        detail={"quoted": "DETAIL-CONTENT"},
        fields=fields,
    )


def view(*hits: Hit, uri: str | None = "tool://_/pay", name: str | None = "pay") -> ViewDecision:
    return ViewDecision(
        path="messages[0].content[0]",
        kind="tool_call",
        role="assistant",
        uri=uri,
        name=name,
        action="execute",
        direction="pre",
        verdict=Verdict.DENY,
        outcome=Action.REFUSE,
        hits=hits,
    )


def decision(*views: ViewDecision) -> Decision:
    return Decision(
        id=f"dec_{ULID()}",
        verdict=Verdict.DENY,
        action=Action.REFUSE,
        mode=Mode.ENFORCE,
        revision="r" * 64,
        views=views,
        coverage=Coverage(produced=len(views), evaluated=len(views)),
    )


def run(timings: Mapping[str, int] | None = None) -> Run:
    return Run(timestamp=NOON, input_digest="a" * 64, session_version=3, timings=timings or {"evaluate_ns": 1_200})


def made_record(context: Context = ANN) -> Record:
    """A record under a fresh id."""
    return record_of(decision(view(hit())), context, run())
