"""May a request go on, as it is? Envoy's `ext_authz` asks, and sends it itself. Spec: gateway.md [GW-240] ff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmf.digests import canonical_bytes
from cmf.models import FORMAT_PROVIDERS
from pipeline.emission import with_provider
from pipeline.gateway.dialects import JSON
from pipeline.gateway.exchange import Asked, read_request
from pipeline.gateway.questions import would_change
from pipeline.gateway.reply import Answer, decision_headers

if TYPE_CHECKING:
    from pipeline.gateway.check import Checks


async def authorized(checks: Checks, asked: Asked) -> Answer:
    """200 where the request may go on just as it is: what Envoy sends is what it has, whatever is said here.

    Raises:
        Refusal: policy refuses it, or lets it go on changed alone; it cannot be read; policy cannot be asked.
    """
    name = asked.endpoint.dialect.name
    request = with_provider(read_request(asked), FORMAT_PROVIDERS[name])
    outcome, left = await checks.left_of(asked, request, name)
    if canonical_bytes(left) != canonical_bytes(asked.body):
        raise would_change(
            outcome, "Policy lets this request go on only with changes, and nobody here could make them."
        )
    return Answer(status=200, media_type=JSON, body=b"{}", headers=decision_headers(outcome.decision))


__all__ = ["authorized"]
