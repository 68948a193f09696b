"""The settings of questions to people: how long a reply waits for the answer, and who is told.

Spec: docs/spec/gateway.md [GW-87] ff., [GW-214] ff.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pipeline.gateway.config.settings_base import Seconds, Secret, Section, address, is_loopback, origin

WaitSeconds = Annotated[float, Field(ge=0, le=3_600)]


class RouteApprovals(Section):
    """What a route does where a person has to approve; what is not given is set by `approvals`."""

    wait_seconds: WaitSeconds | None = None
    """How long a request or reply of this route waits for a person's answer; by default as in `approvals`."""


def _receiver(url: str) -> str:
    parts = address(url)
    if not parts.hostname or parts.username is not None or parts.fragment or "/" not in url.partition("://")[2]:
        raise ValueError("write https://host/path")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise ValueError("messages go out over https; over http only to this machine")
    return url


class Webhook(Section):
    """Who is told at once what waits for a person. The message holds no content."""

    url: Annotated[str, AfterValidator(_receiver)] | Secret
    """Where messages are posted to: https, or http on this machine; as `{env: …}` where the URL itself is a secret, as
    Slack's are."""
    secret: Secret
    """What messages are signed with, and answers have to be, as Standard Webhooks are: HMAC-SHA-256 of id, time and
    body."""
    form: Literal["cmf", "slack"] = "cmf"
    """`slack`: `{text, blocks}`, as Slack and what is compatible with it take them."""
    answers: bool = False
    """Whether answers signed with the secret are taken, at `POST /approvals/answer` on the clients' port."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that are not public and in which the receiver may be; without them only public addresses are reached."""
    tries: Annotated[int, Field(ge=1, le=10)] = 5
    """How often a message is sent until the receiver takes it."""
    retry_seconds: Seconds = 1.0
    """The time before the second try; it doubles with each."""
    timeout_seconds: Seconds = 10.0
    """How long one try may take."""


class ApprovalSettings(Section):
    """What the gateway does where a person has to approve."""

    wait_seconds: WaitSeconds = 0.0
    """How long a request or reply waits for a person's answer before it is refused; 0 refuses it at once."""
    waiting: Annotated[int, Field(ge=1, le=65_536)] = 64
    """How many may wait at once in each process; more are refused at once. Each counts as a request in progress."""
    ping_seconds: Seconds = 15.0
    """After how long without an answer a stream that waits is kept alive with a comment or ping, where its dialect has
    one."""
    site: Annotated[str, AfterValidator(origin)] | None = None
    """Where people reach the review site, `https://host/review`, for the link in messages."""
    webhook: Webhook | None = None
    """Who is told at once what waits for a person."""
