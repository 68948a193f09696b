"""The settings of MCP servers in `cmf.yaml`. Spec: docs/spec/mcp-proxy.md [MCPX-60] ff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from pipeline.decision import Mode
from pipeline.gateway.sections import Seconds, Secret, Section, address

PATH: Final = "/mcp/"  # then the server's name


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
    key: Secret | None = None
    policies: tuple[Path, ...] | None = None
    mode: Mode | None = None
    pins: Path | None = None  # by default, pins last as long as the process
    origins: tuple[str, ...] = ()  # of browser pages that may connect
    connect_seconds: Seconds = 10.0
    answer_seconds: Seconds = 300.0
    idle_seconds: Seconds = 3_600.0  # after which a session ends
    sessions: Annotated[int, Field(ge=1, le=65_536)] = 1_024  # at once
    subject_sessions: Annotated[int, Field(ge=1, le=65_536)] = 256  # of them, of one subject


__all__ = ["PATH", "Endpoint", "McpServer", "endpoint"]
