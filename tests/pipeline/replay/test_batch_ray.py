"""On a local Ray the same comes out as without it; and the page about batches does what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.house.tree import ROOT
from tests.pipeline.conftest import write_rules
from tests.pipeline.replaying import asks, judged

from pipeline.decisions.errors import ConfigError
from pipeline.policy import policy_set
from pipeline.replay import batch_ray
from pipeline.run.recorded_input import append

NO = 'deny contains {"code": "test.no", "reason": "No."} if contains(input.content, "no")'
CMF = str(Path(sys.executable).with_name("cmf"))
PAGE = ROOT / "docs" / "batch.md"
SECONDS = 300  # starting Ray on a busy machine takes most of a minute


@pytest.mark.spec("BAT-6")
def test_an_extra_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)

    with pytest.raises(ConfigError, match=r"cmf-pipeline\[ray\]") as caught:
        list(batch_ray.spread_on_ray([b"x"], lambda: lambda lines: []))

    assert caught.value.code == "extra.missing"


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.spec("BAT-5")
def test_an_impact_comes_to_the_same_on_ray(tmp_path: Path) -> None:
    base, head = (
        write_rules(tmp_path / name, {"deny": NO.replace('"no"', f'"{word}"')}, kinds="text")
        for name, word in (("base", "yes"), ("head", "no"))
    )
    loaded = policy_set.load(base)
    for text in ("no", "yes", "other", "no no"):
        append(tmp_path / "records.jsonl", judged(asks(text), loaded))
    with (tmp_path / "records.jsonl").open("ab") as stream:
        stream.write(b"broken\n")
    command = [CMF, "impact", "--base", base, "--head", head, "--records", tmp_path / "records.jsonl"]
    command += ["--format", "json"]

    here = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    there = subprocess.run([*command, "--ray", "--jobs", "1"], capture_output=True, text=True, timeout=SECONDS)

    assert there.returncode == here.returncode == 0, there.stderr
    assert there.stdout == here.stdout
    assert '"count": 2' in here.stdout or '"count":2' in here.stdout


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.spec("BAT-4")
def test_the_page_about_batches_does_what_it_shows(tmp_path: Path) -> None:
    """Its last block asks Ray, and holds its rows against those that were made without it."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    environment = {**os.environ, "RAY_DATA_DISABLE_PROGRESS_BARS": "1"}

    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, env=environment
    )

    assert done.returncode == 0, done.stderr[-2_000:]
    assert len(blocks) == 5
    assert (tmp_path / "judged.jsonl").read_text(encoding="utf-8").count("\n") == 100
