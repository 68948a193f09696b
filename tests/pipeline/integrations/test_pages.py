"""What the pages of docs/integrations show is what happens."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from tests.house.tree import ROOT

PAGES = ROOT / "docs" / "integrations"
NAMES = sorted(page.stem for page in PAGES.glob("*.md"))
OWN = {"openai_agents": "agents", "litellm": "litellm", "langchain": "langchain", "pydantic_ai": "pydantic_ai"}


def _blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / f"{name}.md").read_text(encoding="utf-8"), re.DOTALL)


@contextmanager
def _loop() -> Iterator[None]:
    """For pages that run without one: a package's blocking call would make a loop that nobody closes."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@pytest.mark.spec("INT-1", "INT-10", "INT-20", "INT-30")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_what_happens(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # it asks the network otherwise, as it is imported
    if name in OWN:
        pytest.importorskip(OWN[name], reason="in an environment of its own")
    for rule in _blocks(name, "rego"):
        package = re.findall(r"^package cmf\.rules\.(\w+)\.(\w+)$", rule, re.MULTILINE)[0]
        file = tmp_path.joinpath("policy", "cmf", "rules", *package, f"{package[1]}.rego")
        file.parent.mkdir(parents=True)
        file.write_text(rule, encoding="utf-8")
    blocks = _blocks(name, "python")
    known: dict[str, Any] = {}

    with chdir(tmp_path), _loop():
        for block in blocks:
            shown = io.StringIO()
            with redirect_stdout(shown):
                exec(block, known)
            assert shown.getvalue().splitlines() == re.findall(r"^# prints: (.*)$", block, re.MULTILINE)

    assert any("# prints: " in block for block in blocks)


def test_every_module_has_its_page_and_tests() -> None:
    modules = {file.stem for file in (ROOT / "src" / "pipeline" / "integrations").glob("*.py")}
    here = Path(__file__).parent

    assert modules - {"__init__", "judged_calls", "turn"} == set(NAMES) - {"pytest_plugin"}  # that is `cmf_pytest`
    assert all((here / f"test_{name}.py").is_file() for name in NAMES)
