"""All commands of `cmf` and their options. What they do is imported when they run, so that `--help` is fast.

Spec: docs/spec/cli.md.
"""

from __future__ import annotations

from pipeline.decisions.errors import needs

with needs("cli"):
    from pipeline.cli.commands import audit, bundle, gateway, ledger, mcp_proxy, people, policies, recorded, review
    from pipeline.cli.commands.root import app

for commands in (policies, recorded, gateway, mcp_proxy, bundle, people, review, audit, ledger):
    commands.add_to(app)

__all__ = ["app"]
