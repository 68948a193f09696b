"""May a request go on, as it is? Envoy's `ext_authz` asks, and sends it itself. Spec: gateway.md [GW-240] ff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmf.digests import canonical_bytes
from cmf.models import FORMAT_PROVIDERS
from pipeline.emission import emit, with_provider
from pipeline.errors import DecisionError
from pipeline.gateway.dialects import JSON
from pipeline.gateway.exchange import Asked, read_request, sayable
from pipeline.gateway.refusal import FINAL, Refusal, of_decision
from pipeline.gateway.reply import Answer, decision_headers
from pipeline.guard import raised

if TYPE_CHECKING:
    from pipeline.gateway.check import Checks


async def authorized(checks: Checks, asked: Asked) -> Answer:
    """200 where the request may go on just as it is: what Envoy sends is what it has, whatever is said here.

    Raises:
        Refusal: policy refuses it, or lets it go on changed alone; it cannot be read; policy cannot be asked.
    """
    name = asked.endpoint.dialect.name
    request = with_provider(read_request(asked), FORMAT_PROVIDERS[name])
    try:
        outcome = raised(await checks.judged(asked, request))
    except DecisionError as error:
        raise of_decision(error) from None
    headers = decision_headers(outcome.decision)
    with sayable(outcome, 400):
        left = emit(outcome, name)
    if canonical_bytes(left) != canonical_bytes(asked.body):
        message = "Policy lets this request go on only with changes, and nobody here could make them."
        message = f"{message} (decision {outcome.decision.id})"
        raise Refusal(403, "check.would-change", message, headers=headers | FINAL)
    return Answer(status=200, media_type=JSON, body=b"{}", headers=headers)


__all__ = ["authorized"]
