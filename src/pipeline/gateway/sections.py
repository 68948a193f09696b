"""What all parts of `cmf.yaml` share. Spec: docs/spec/gateway.md [GW-1] ff."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


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


__all__ = ["Name", "Seconds", "Secret", "Section", "address"]
