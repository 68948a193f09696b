"""What it takes to look at the two packages, and in which order their modules can be loaded."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType

import pytest

import cmf
import pipeline

HEAVY = {"pydantic", "yaml", "aiohttp", "wcmatch", "jsonschema"}


@pytest.mark.parametrize("module", ["cmf", "pipeline", "pipeline.cli.app"])
def test_looking_at_a_package_loads_none_of_the_heavy_libraries(module: str) -> None:
    script = f"import sys, {module}; print(*(sys.modules.keys() & {HEAVY}))"

    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout

    assert loaded.split() == []


@pytest.mark.parametrize(
    "module", ["message.message", "message.request", "message.security", "views.iterate", "views.render", "views.view"]
)
def test_each_module_on_its_own_can_build_parts_that_hold_messages(module: str) -> None:
    script = (
        f"import cmf.{module}; from cmf.message.message import PromptResultPart as P; P(prompt_name='p', messages=[])"
    )

    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


@pytest.mark.parametrize("expression", ["cmf.adapters.get('gemini')", "pipeline.guard.Guard"])
def test_the_modules_of_a_package_are_there_once_it_is_imported(expression: str) -> None:
    subprocess.run([sys.executable, "-c", f"import cmf, pipeline; {expression}"], check=True, capture_output=True)


@pytest.mark.parametrize("package", [cmf, pipeline])
@pytest.mark.parametrize("name", ["nothing", "_native_secrets"])
def test_a_name_that_is_none_is_an_attribute_error(package: ModuleType, name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute '{name}'"):
        getattr(package, name)
