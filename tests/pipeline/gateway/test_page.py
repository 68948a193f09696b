"""What docs/gateway.md shows is what happens."""

from __future__ import annotations

import importlib.resources
import io
import re
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from tests.house.tree import ROOT
from tests.pipeline.gateway.servers import running

from pipeline.gateway import config_file
from pipeline.gateway.service import built

pytest.importorskip("openai", reason="the provider's own SDK is a development dependency")
pytest.importorskip("anthropic", reason="the provider's own SDK is a development dependency")


@pytest.mark.spec("GW-50")
def test_the_page_shows_what_the_demo_does(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    demo = importlib.resources.files("pipeline").joinpath("gateway", "demo.yaml")
    with importlib.resources.as_file(demo) as file:
        settings = config_file.load(file, {}).settings.model_copy(update={"store": tmp_path / "demo.db"})

    with built(settings, {}) as gateway, running(gateway) as url:
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
