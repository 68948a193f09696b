"""Envoy's `ext_authz`: whether a request may go on unchanged. Spec: gateway.md [GW-240] ff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmf.digests import canonical_bytes
from cmf.models import FORMAT_PROVIDERS
from pipeline.emission import with_provider
from pipeline.gateway.dialects import JSON
from pipeline.gateway.exchange import IncomingRequest, read_request
from pipeline.gateway.questions import would_change
from pipeline.gateway.reply import Answer, decision_headers
from pipeline.offload import apart

if TYPE_CHECKING:
    from pipeline.gateway.check import Checks


async def authorized(checks: Checks, incoming: IncomingRequest) -> Answer:
    """200 if the request may go on exactly as it is, since Envoy sends what it holds.

    Raises:
        Refusal: policy refuses it, or allows it only with changes; it cannot be read; policy was unavailable.
    """
    name = incoming.endpoint.dialect.name
    request = with_provider(await apart(read_request, incoming), FORMAT_PROVIDERS[name])
    outcome, left = await checks.left_of(incoming, request, name)
    if await apart(canonical_bytes, left) != await apart(canonical_bytes, incoming.body):
        raise would_change(outcome, "Policy allows this request only with changes, which Envoy cannot make.")
    return Answer(status=200, media_type=JSON, body=b"{}", headers=decision_headers(outcome.decision))


__all__ = ["authorized"]
