"""The settings of questions to people: how long a reply waits for the answer. Spec: [GW-87] ff."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from pipeline.gateway.config.settings_base import Seconds, Section

WaitSeconds = Annotated[float, Field(ge=0, le=3_600)]


class RouteApprovals(Section):
    """What a route does where a person has to approve; what is not given is set by `approvals`."""

    wait_seconds: WaitSeconds | None = None
    """How long a request or reply of this route waits for a person's answer; by default as in `approvals`."""


class ApprovalSettings(Section):
    """What the gateway does where a person has to approve."""

    wait_seconds: WaitSeconds = 0.0
    """How long a request or reply waits for a person's answer before it is refused; 0 refuses it at once."""
    waiting: Annotated[int, Field(ge=1, le=65_536)] = 64
    """How many may wait at once in each process; more are refused at once. Each counts as a request in progress."""
    ping_seconds: Seconds = 15.0
    """After how long without an answer a stream that waits is kept alive with a comment or ping, where its dialect has
    one."""
