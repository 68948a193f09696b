"""All commands of `cmf`, registered. Spec: docs/spec/cli.md."""

from __future__ import annotations

from pipeline.cli import authors, reviewing
from pipeline.cli.app import app

authors.add_to(app)
reviewing.add_to(app)

__all__ = ["app"]
