"""Envoy's `ext_authz`: whether a request may go on unchanged. Spec: gateway.md [GW-240] ff."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cmf.message.digests import canonical_bytes
from cmf.message.model_ids import FORMAT_PROVIDERS
from pipeline.gateway.checks.check_request import would_change
from pipeline.gateway.http.client_response import Answer, decision_headers
from pipeline.gateway.http.dialects import JSON
from pipeline.gateway.proxy.proxy import IncomingRequest, read_request
from pipeline.run.emit import with_provider
from pipeline.run.offload import apart

if TYPE_CHECKING:
    from pipeline.gateway.checks.check import Checks


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
