"""The MCP servers of a gateway, as its settings name them. Spec: mcp-proxy.md [MCPX-60]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipeline.decisions.decision import Mode
from pipeline.gateway.config.config_file import secret_of
from pipeline.gateway.config.mcp_settings import McpServer
from pipeline.gateway.config.settings import Settings
from pipeline.guard import Guard
from pipeline.mcp.http_server import Address
from pipeline.mcp.param_headers import ParamHeaders
from pipeline.mcp.pins import Pins


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One MCP server, and the guard for its traffic."""

    name: str
    settings: McpServer
    guard: Guard
    address: Address
    pins: Pins
    enforce: bool
    params: ParamHeaders = field(default_factory=ParamHeaders)


def endpoints_of(
    settings: Settings, guard_of: Callable[[McpServer], Guard], environment: Mapping[str, str] | None
) -> dict[str, Endpoint]:
    """The MCP servers in the settings, each with its guard, key and pins.

    Raises:
        ConfigError: a key is missing, or pins cannot be read.
    """
    made = {}
    for name, one in settings.mcp.items():
        key = None if one.key is None else secret_of(one.key, environment, setting=f"mcp.{name}.key")
        address = Address(
            url=one.url,
            headers={} if key is None else {"authorization": f"Bearer {key}"},
            connect_seconds=one.connect_seconds,
            silent_seconds=one.answer_seconds,
            message_bytes=settings.limits.reply_bytes,
        )
        made[name] = Endpoint(
            name=name,
            settings=one,
            guard=guard_of(one),
            address=address,
            pins=Pins(one.pins),
            enforce=(one.mode or settings.mode) is Mode.ENFORCE,
        )
    return made
