"""What docs/gateway.md shows is what happens."""

from __future__ import annotations

import importlib.resources
import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.house.transcript import Command, steps
from tests.house.tree import ROOT
from tests.pipeline.gateway.servers import running
from tests.pipeline.gateway.test_crossing import post

from pipeline.gateway import config_file
from pipeline.gateway.service import built
from pipeline.gateway.settings import Settings

pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")
pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")


PAGE = ROOT / "docs" / "gateway.md"


@contextmanager
def demo(home: Path) -> Iterator[str]:
    """The address of what `cmf serve --demo` serves."""
    with importlib.resources.as_file(importlib.resources.files("pipeline").joinpath("gateway", "demo.yaml")) as file:
        settings = config_file.load(file, {}).settings.model_copy(update={"store": home / "demo.db"})
    with built(settings, {}) as gateway, running(gateway) as url:
        yield url


def test_what_the_page_asks_for_by_curl_is_answered_so(tmp_path: Path) -> None:
    commands = [step for step in steps(PAGE) if isinstance(step, Command)]
    assert len(commands) == 2

    with demo(tmp_path) as url:
        for command in commands:
            _, _, address, *options = shlex.split(command.text.replace("\\\n", " "))
            said = list(zip(options[::2], options[1::2], strict=True))
            headers = dict(text.split(": ") for name, text in said if name == "-H")
            [data] = [text for name, text in said if name == "-d"]
            status, _, raw = post(url, urlsplit(address).path, json.loads(data), headers)

            told, shown = json.loads(raw), json.loads(command.expected)
            assert (status, told | {key: shown[key] for key in ("decision_id", "revision")}) == (200, shown)


@pytest.mark.spec("GW-50")
def test_the_page_shows_what_the_demo_does(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    with demo(tmp_path) as url:
        for block in blocks:
            shown = io.StringIO()
            with redirect_stdout(shown):
                exec(block.replace("http://127.0.0.1:8600", url), {})
            expected = "\n".join(re.findall(r"^# prints: (.*)$", block, re.MULTILINE))
            assert shown.getvalue().strip() == expected

    assert len(blocks) == 2


@pytest.mark.spec("GW-1")
def test_settings_that_a_page_shows_as_a_whole_are_settings(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "cmf.yaml").write_text(shown, encoding="utf-8")

    found = config_file.load(tmp_path / "cmf.yaml", {}).settings

    assert [route.name for route in found.routes] == ["claude", "quick", "trial"]


@pytest.mark.spec("GW-1")
def test_settings_that_the_page_shows_in_part_are_settings(tmp_path: Path) -> None:
    digest = f"sha256:{'0' * 64}"
    upstream = {"dialect": "anthropic_messages", "base_url": "https://api.example"}
    around: dict[str, Any] = {
        "upstreams": {"claude": upstream, "local": upstream},
        "routes": [{"name": "all", "upstream": "claude"}],
        "keys": [{"name": "rita", "hash": digest, "subject": {"id": "rita", "roles": ["auditor"]}}],
    }
    page = PAGE.read_text(encoding="utf-8").replace("sha256:…", f"sha256:{'1' * 64}")
    shown = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    ours = [part for part in shown if part.keys() <= Settings.model_fields.keys()]

    for part in ours:
        upstreams = {"upstreams": around["upstreams"] | part.get("upstreams", {})}
        (tmp_path / "cmf.yaml").write_text(yaml.safe_dump(around | part | upstreams), encoding="utf-8")
        assert config_file.load(tmp_path / "cmf.yaml", {}).settings

    assert len(ours) == len(shown) - 3  # the others are a script's replies, Envoy's and LiteLLM's
