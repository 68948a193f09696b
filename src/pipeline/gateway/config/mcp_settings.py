"""The settings of MCP servers in `cmf.yaml`. Spec: docs/spec/mcp-proxy.md [MCPX-60] ff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from pipeline.decisions.decision import Mode
from pipeline.gateway.config.settings_base import PageOrigin, Seconds, Secret, Section, address
from pipeline.provenance.inference import InferenceMode

PATH: Final = "/mcp/"  # then the server's name
STDIO_KEYS: Final = ("args", "command", "stdio", "transport")  # keys of stdio servers in other products' settings


def endpoint(url: str) -> str:
    """The URL of a server, unchanged; ValueError says what is wrong with any other text."""
    parts = address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host/path or https://host/path")
    if parts.username is not None or parts.fragment:
        raise ValueError("a URL holds no key: give it separately")
    return url


Endpoint = Annotated[str, AfterValidator(endpoint)]


class McpServer(Section):
    """A server over streamable HTTP, served at `/mcp/<its name>`."""

    url: Endpoint
    """The server's URL (streamable HTTP)."""
    key: Secret | None = None
    """Where the server's key is read from."""
    policies: tuple[Path, ...] | None = None
    """Policy directories or bundles; by default those of the gateway."""
    mode: Mode | None = None
    """`enforce` or `observe`; by default that of the gateway."""
    inference: InferenceMode | None = None
    """Whether tools without a profile are known by their definitions; by default as for the gateway."""
    pins: Path | None = None
    """A file that keeps the tool definitions first seen; by default they are kept as long as the process."""
    origins: tuple[PageOrigin, ...] = ()
    """The origins of browser pages that may connect."""
    connect_seconds: Seconds = 10.0
    """How long a connection may take."""
    answer_seconds: Seconds = 300.0
    """How long an answer may take."""
    idle_seconds: Seconds = 3_600.0
    """How long a session may be idle before it ends."""
    sessions: Annotated[int, Field(ge=1, le=65_536)] = 1_024
    """Sessions at once."""
    subject_sessions: Annotated[int, Field(ge=1, le=65_536)] = 256
    """Sessions of one subject at once."""
