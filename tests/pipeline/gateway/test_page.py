"""What docs/gateway.md shows is what happens."""

from __future__ import annotations

import importlib.resources
import io
import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from tests.house.transcript import Command, Reader, steps
from tests.house.tree import ROOT
from tests.pipeline.gateway.servers import running
from tests.pipeline.gateway.test_crossing import post

from pipeline.gateway.config import config_file
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.service import built

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


def request_of(curl: str) -> tuple[str, Any, dict[str, str]]:
    """Path, body and headers of what a curl command sends."""
    _, _, address, *options = shlex.split(curl.replace("\\\n", " "))
    given = list(zip(options[::2], options[1::2], strict=True))
    headers = dict(text.split(": ") for name, text in given if name == "-H")
    [data] = [text for name, text in given if name == "-d"]
    return urlsplit(address).path, json.loads(data), headers


@pytest.mark.spec("GW-50")
def test_the_readme_s_request_to_the_demo_is_answered_as_it_says(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [curl] = re.findall(r"^```\n(curl .*?)^```$", readme, re.MULTILINE | re.DOTALL)
    shown = '"content":"You said: Is [MASKED] still valid?"'
    path, body, headers = request_of(curl)

    with demo(tmp_path) as url:
        status, _, raw = post(url, path, body, headers)
        refused, _, why = post(url, path, body | {"web_search_options": {}}, headers)

    assert (status, shown in raw.decode(), shown in readme) == (200, True, True)
    assert (refused, json.loads(why)["error"]["code"]) == (403, "tools.provider-executed")
    assert '`"web_search_options": {}`' in readme


def test_the_curl_commands_of_the_page_are_answered_as_shown(tmp_path: Path) -> None:
    commands = [step for step in steps(PAGE) if isinstance(step, Command) and step.text.startswith("curl ")]
    assert len(commands) == 2

    with demo(tmp_path) as url:
        for command in commands:
            path, body, headers = request_of(command.text)
            status, _, raw = post(url, path, body, headers)

            told, shown = json.loads(raw), json.loads(command.expected)
            assert (status, told | {key: shown[key] for key in ("decision_id", "revision")}) == (200, shown)


@pytest.mark.spec("GW-1")
def test_the_other_commands_of_the_page_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CMF_")]:
        monkeypatch.delenv(name)  # it would be read as a setting
    monkeypatch.setenv("OPENAI_API_KEY", "sk-your-key")  # each command has a shell of its own
    reader = Reader(tmp_path)
    others = [step for step in steps(PAGE) if not isinstance(step, Command) or not step.text.startswith("curl ")]

    for step in others:
        assert (problem := reader.do(step)) is None, problem
    assert len(others) == 4


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
