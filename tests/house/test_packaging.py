"""What `pip install` brings works alone: built, installed by hash in an empty place, run elsewhere [D8]."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.house.tree import PACKAGES, ROOT, SRC, tracked_files

pytestmark = [pytest.mark.slow, pytest.mark.native]

SCRIPTS = Path(sysconfig.get_path("scripts"))
BUILD_SECONDS = 600  # a cold release build of the crate on two cores takes about three minutes
RUN_SECONDS = 60


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    _run([SCRIPTS / "maturin", "build", "--release", "--quiet", "--out", out], cwd=ROOT, seconds=BUILD_SECONDS)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of an environment that holds the wheel and the runtime lock, and nothing else."""
    environment = tmp_path_factory.mktemp("environment") / "venv"
    install = [SCRIPTS / "uv", "pip", "install", "--quiet", "--python", environment / "bin" / "python"]
    _run([SCRIPTS / "uv", "venv", "--quiet", "--python", sys.executable, environment], cwd=ROOT)
    _run(
        [*install, "--require-hashes", "-r", ROOT / "requirements" / "base.txt"],
        cwd=ROOT,
        seconds=BUILD_SECONDS,
    )
    _run([*install, "--no-deps", "--offline", wheel], cwd=ROOT)
    return environment / "bin"


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts folder of an environment that holds what the wheel itself asks for, in tested versions; no extra."""
    environment = tmp_path_factory.mktemp("alone") / "venv"
    _run([SCRIPTS / "uv", "venv", "--quiet", "--python", sys.executable, environment], cwd=ROOT)
    install = [SCRIPTS / "uv", "pip", "install", "--quiet", "--python", environment / "bin" / "python"]
    _run([*install, "-c", ROOT / "requirements" / "base.txt", wheel], cwd=ROOT, seconds=BUILD_SECONDS)
    return environment / "bin"


def test_the_wheel_holds_its_packages_and_nothing_beside_them(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in _names(wheel)}

    assert {top for top in tops if not top.endswith(".dist-info")} == {*PACKAGES, "cmf_pytest"}


def test_the_wheel_holds_every_tracked_file_of_the_packages(wheel: Path) -> None:
    expected = {
        str(path.relative_to(SRC))
        for path in tracked_files()
        if path.is_relative_to(SRC) and path.suffix not in {".so"}
    }

    assert expected - _names(wheel) == set()


def test_the_wheel_holds_every_shipped_policy(wheel: Path) -> None:
    expected = {
        f"pipeline/_policies/{path.relative_to(ROOT / 'policies')}"
        for path in tracked_files()
        if path.is_relative_to(ROOT / "policies")
    }

    assert expected
    assert expected - _names(wheel) == set()


def test_the_wheel_serves_every_supported_python(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name


def test_the_installed_packages_import_without_any_development_dependency(installed: Path, tmp_path: Path) -> None:
    script = (
        "import pkgutil, importlib, cmf, pipeline\n"
        "walks = [pkgutil.walk_packages(p.__path__, p.__name__ + '.') for p in (cmf, pipeline)]\n"
        "names = [m.name for walk in walks for m in walk if not m.name.endswith('__main__')]\n"
        "for name in names: importlib.import_module(name)\n"
        "print(len(names), cmf.__file__)\n"
    )

    printed = _run([installed / "python", "-I", "-c", script], cwd=tmp_path)

    assert int(printed.split()[0]) > 10
    assert str(ROOT) not in printed


def test_the_installed_command_prints_the_schema_of_the_policy_input(installed: Path, tmp_path: Path) -> None:
    schema = json.loads(_run([installed / "cmf", "schema"], cwd=tmp_path))

    assert schema["$schema"].startswith("https://json-schema.org/")


def test_the_installed_command_judges_with_the_shipped_policies(installed: Path, tmp_path: Path) -> None:
    """From an empty folder, with no checkout near: the policies are found in the package."""
    token = "AKIAIOSFODNN7EXAMPLE"
    message = {"role": "user", "content": [{"content_type": "text", "text": f"I use {token}"}]}
    (tmp_path / "message.json").write_text(json.dumps(message), encoding="utf-8")

    printed = _run([installed / "cmf", "eval", "--from", "canonical", "--format", "json", "message.json"], cwd=tmp_path)

    judged = json.loads(printed)
    assert [hit["code"] for hit in judged["views"][0]["hits"]] == ["data.secret", "data.secret-label"]
    assert judged["action"] == "forward_modified"
    assert token not in printed


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


def _run(command: list[str | Path], *, cwd: Path, seconds: float = RUN_SECONDS) -> str:
    """Standard output of a command that must succeed, run without this checkout on its path."""
    kept = ("HOME", "PATH", "SSL_CERT_FILE", "CARGO_HOME", "RUSTUP_HOME", "UV_CACHE_DIR", "LANG")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_the_installed_command_begins_a_project_that_is_green(installed: Path, tmp_path: Path) -> None:
    _run([installed / "cmf", "init", "project"], cwd=tmp_path)

    printed = _run([installed / "cmf", "test"], cwd=tmp_path / "project")

    assert " 0 failed" in printed


@pytest.mark.spec("GRD-17")
def test_the_wheel_alone_guards_values_and_says_which_extra_is_missing(alone: Path, tmp_path: Path) -> None:
    script = """
import importlib
from cmf import Message, TextPart
from pipeline import ConfigError, Guard

guard = Guard()
found = Message(role="tool", content=[TextPart(text="The key is AKIAIOSFODNN7EXAMPLE")])
print(guard.check(found, subject={"id": "ann"}, session="s").value.content[0].text)

@guard.tool
def add(count: int) -> int:
    return count + 1

print(add(1))
for module in ("store.database", "sessions.redis", "media.media_pipeline", "gateway.http.server", "review.web"):
    try:
        importlib.import_module(f"pipeline.{module}")
    except ConfigError as error:
        print(error.hint)
"""

    printed = _run([alone / "python", "-I", "-c", script], cwd=tmp_path)

    extras = ("sql", "redis", "media", "gateway", "review")
    advice = [f'run: pip install "cmf-pipeline[{extra}]"' for extra in extras]
    assert printed.splitlines() == ["The key is [MASKED]", "2", *advice]


@pytest.mark.spec("GRD-17")
def test_the_command_of_the_wheel_alone_says_which_extra_it_needs(alone: Path, tmp_path: Path) -> None:
    done = subprocess.run([alone / "cmf", "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_SECONDS)

    assert (done.returncode, done.stdout) == (2, "")
    assert 'pip install "cmf-pipeline[cli]"' in done.stderr
    assert len(done.stderr.splitlines()) == 1
