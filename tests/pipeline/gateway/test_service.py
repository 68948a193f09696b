"""What a gateway is put together from, and what it leaves out."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# What a plain gateway has no use for, and what would hold the memory: pages, protocols, other stores, migrations.
UNUSED = {
    "PIL",
    "alembic",
    "cmf.adapters.gemini",
    "cryptography.x509",
    "jinja2",
    "jwt",
    "mako",
    "opentelemetry",
    "pipeline.engines.opa",
    "pipeline.gateway.checks",
    "pipeline.gateway.auth.tokens",
    "pipeline.gateway.mcp",
    "pipeline.gateway.review_site",
    "pipeline.run.masking",
    "pipeline.mcp",
    "pipeline.authoring.playground",
    "pipeline.replay.replay",
    "pipeline.review.site",
    "psycopg",
    "redis",
    "rich",
    "sqlalchemy.dialects.postgresql",
    "sqlalchemy.orm",
    "starlette",
}
STARTED = f"""
import sys
from pathlib import Path
from pipeline.cli import serve
from pipeline.gateway.config.config_file import load
from pipeline.gateway.service import assembled
settings = load(Path(sys.argv[1]), {{}}).settings
with serve.reviewed(settings), assembled(settings) as service:
    print(service.gateway.is_open, *sorted({UNUSED} & sys.modules.keys()))
"""

JUDGES = {"pipeline.gateway.service", "pipeline.guard", "sqlalchemy"}


@pytest.mark.spec("GW-224")
def test_who_only_begins_workers_imports_nothing_that_judges() -> None:
    code = (
        f"import sys, pipeline.cli.serve, pipeline.gateway.processes.workers; print(*({JUDGES} & sys.modules.keys()))"
    )

    imported = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True).stdout

    assert imported.split() == []
    assert all(map(find_spec, JUDGES)), "a name of a module that there is not says nothing"


@pytest.mark.spec("GW-224")
def test_a_plain_gateway_imports_nothing_that_its_settings_do_not_ask_for(tmp_path: Path) -> None:
    settings = {
        "anonymous": True,
        "upstreams": {"up": {"dialect": "openai_chat", "base_url": "http://127.0.0.1:9"}},
        "routes": [{"name": "all", "upstream": "up"}],
        "store": "cmf.db",
    }
    (tmp_path / "cmf.yaml").write_text(json.dumps(settings), encoding="utf-8")

    words = [sys.executable, "-c", STARTED, str(tmp_path / "cmf.yaml")]
    started = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout

    assert started.split() == ["False"]
    assert all(map(find_spec, UNUSED)), "a name of a module that there is not says nothing"
