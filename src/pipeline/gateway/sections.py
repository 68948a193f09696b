"""What every part of `cmf.yaml` is made of. Spec: docs/spec/gateway.md [GW-1] ff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Section(BaseModel):
    """A part of the file: what it does not know it refuses."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Secret(Section):
    """Where a secret is read from when the gateway starts; the secret itself never stands in the file."""

    env: str | None = None
    file: Path | None = None

    @model_validator(mode="after")
    def _one(self) -> Secret:
        if (self.env is None) == (self.file is None):
            raise ValueError("give `env` or `file`, one of them")
        return self

    def __str__(self) -> str:
        return f"env:{self.env}" if self.env is not None else f"file:{self.file}"


def address(url: str) -> SplitResult:
    """The parts of an address that somebody could be reached at; ValueError, and why, for what is none."""
    parts = urlsplit(url)
    if not all("!" <= character <= "~" for character in url):
        raise ValueError("an address has no spaces, and letters of ASCII alone")
    try:
        _ = parts.port, (parts.hostname or "").encode("idna")
    except ValueError:  # who connects would find that out, request by request
        raise ValueError("this is no host or no port") from None
    return parts


__all__ = ["Name", "Seconds", "Secret", "Section", "address"]
