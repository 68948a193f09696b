"""What all parts of `cmf.yaml` share. Spec: docs/spec/gateway.md [GW-1] ff."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class SettingError(ValueError):
    """A setting that is refused, with its place below the section that was checked, and what to write instead."""

    def __init__(self, why: str, *steps: int | str, hint: str = "") -> None:
        super().__init__(why)
        self.steps = steps
        self.hint = hint


class Section(BaseModel):
    """A part of the file. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Secret(Section):
    """Where a secret is read from when the gateway starts; the file never holds the secret itself."""

    env: str | None = None
    """The name of an environment variable."""
    file: Path | None = None
    """A file that holds nothing else."""

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("give either `env` or `file`")
        return self

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


def _bindable(host: str) -> str:
    if ":" in host:
        try:
            IPv6Address(host)
        except ValueError:
            why = "this is no address to listen on"
            raise SettingError(
                why, hint="write the host alone (IPv6 without brackets), and its port as `port`"
            ) from None
    return host


Host = Annotated[str, AfterValidator(_bindable)]
HostName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]

PageOrigin = Annotated[str, Field(pattern=r"^[a-z][a-z0-9+.-]*://[a-z0-9.:_-]+$|^https?://\[[0-9a-f:.]+\](:[0-9]+)?$")]
"""The origin of a page as browsers send it, `https://app.example`: no path, no slash at its end."""


def address(url: str) -> SplitResult:
    """The parts of a URL that can be connected to; ValueError says what is wrong with any other."""
    parts = urlsplit(url)
    if not all("!" <= character <= "~" for character in url):
        raise ValueError("a URL has no spaces and only ASCII characters")
    try:
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # or each request would find it out
        raise ValueError("its host or its port is not valid") from None
    return parts


def is_loopback(host: str) -> bool:
    """Whether a host name, or an address without brackets, is this machine's own."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def origin(url: str) -> str:
    """The address of a provider without a slash at its end; ValueError says what is wrong with any other text."""
    parts = address(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingError("this is no URL of a server", hint="write http://host or https://host")
    if parts.username is not None or parts.query or parts.fragment:
        hint = "write scheme, host, port and path only; set `key` for the key"
        raise SettingError("this URL holds more than an address", hint=hint)
    return url.rstrip("/")


_APIS: Final = re.compile(r"/(?:api/)?(?:v1|v1beta)(?:/(?:chat|chat/completions|responses|messages|models))?$")
_ENDPOINTS: Final = re.compile(r"/(?:api|api/chat|chat/completions)$")


def repeated_end(dialect: str, base_url: str) -> str:
    """The end of `base_url` that repeats what the dialect adds; empty if there is none."""
    found = _APIS.search(base_url) or _ENDPOINTS.search(base_url)
    is_own = found is not None and (found[0] != "/api" or dialect in ("ollama", "openrouter"))
    return found[0] if found is not None and is_own else ""
