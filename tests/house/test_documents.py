"""What the documents show is what happens: Python runs, commands print it, links lead somewhere."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

import pytest

from pipeline.authoring.case import read_cases
from pipeline.authoring.run_cases import CaseRunner
from tests.house.transcript import Reader, steps
from tests.house.tree import ROOT, tracked_files

BLOCK = re.compile(r"^```(?P<language>[a-z]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)#\s]+)(?:#[^)]*)?\)")
TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
DOCUMENTS = [path for path in tracked_files() if path.suffix == ".md"]
README = ROOT / "README.md"


def _blocks(path: Path, language: str) -> list[str]:
    found = BLOCK.finditer(path.read_text(encoding="utf-8"))
    return [match["body"] for match in found if match["language"] == language]


@pytest.mark.parametrize("code", _blocks(README, "python"))
def test_the_readme_s_python_runs_as_it_stands(code: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    promised = re.findall(r"# prints: (.*)", code)
    assert done.stdout.splitlines() == promised


@pytest.mark.parametrize("page", ["profiles", "review"])
def test_the_python_of_a_page_runs_in_order(page: str, tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "profiles.yaml", tmp_path)
    known: dict[str, Any] = {}

    with chdir(tmp_path):
        for block in _blocks(ROOT / "docs" / f"{page}.md", "python"):
            exec(block, known)
        if "site" in known:
            known["site"].store.close()

    assert known


@pytest.mark.native
def test_the_cases_of_the_page_on_profiles_hold(tmp_path: Path) -> None:
    profiles, cases = _blocks(ROOT / "docs" / "profiles.md", "yaml")
    (tmp_path / "cases").mkdir()
    (tmp_path / "profiles.yaml").write_text(profiles, encoding="utf-8")
    (tmp_path / "cases" / "mail.yaml").write_text(cases, encoding="utf-8")
    with closing(CaseRunner(None)) as runner:
        found = [runner.run(case) for case in read_cases(tmp_path / "cases" / "mail.yaml")]

    assert [result.status for result in found] == ["passed", "passed"], found


@pytest.mark.native
def test_the_readme_s_commands_print_what_it_shows(tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    commands = steps(README)

    assert commands
    for step in commands:
        assert (problem := reader.do(step)) is None, problem


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    targets = [match["target"] for match in LINK.finditer(document.read_text(encoding="utf-8"))]
    local = [target for target in targets if "://" not in target and not target.startswith("mailto:")]

    assert [target for target in local if not (document.parent / target).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_into_a_page_leads_to_a_heading(document: Path) -> None:
    named = re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", BLOCK.sub("", document.read_text(encoding="utf-8")))

    lost = [(page, heading) for page, heading in named if heading not in _headings(document.parent / page, document)]
    assert lost == []


def _headings(page: Path, document: Path) -> set[str]:
    """What leads to each heading of a page, as forges make it of the heading's words."""
    text = BLOCK.sub("", (page if page.is_file() else document).read_text(encoding="utf-8"))
    said = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", words.lower()).replace(" ", "-") for words in said}


def test_every_page_is_linked_from_another() -> None:
    linked = {
        (document.parent / match["target"]).resolve()
        for document in DOCUMENTS
        for match in LINK.finditer(document.read_text(encoding="utf-8"))
    }

    pages = [page for page in DOCUMENTS if page.is_relative_to(ROOT / "docs")]
    assert [str(page) for page in pages if not linked & {page.resolve(), page.parent.resolve()}] == []


@pytest.mark.parametrize("folder", ["docs/spec", "examples"])
def test_an_index_leads_to_all_that_stands_in_its_folder(folder: str) -> None:
    index = ROOT / folder / "README.md"
    linked = {(index.parent / match["target"]).resolve() for match in LINK.finditer(index.read_text(encoding="utf-8"))}
    there = {path for path in tracked_files() if path.is_relative_to(index.parent)} - {index}

    lost = [path for path in there if linked.isdisjoint({path, *path.parents})]
    assert [str(path.relative_to(ROOT)) for path in lost] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(document: Path) -> None:
    known = set(TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8")))

    named = set(re.findall(r"(?:`|^|\$ )make ([a-z][a-z-]*)", document.read_text(encoding="utf-8"), re.MULTILINE))

    assert named - known == set()


def test_every_command_is_specified() -> None:
    from pipeline.cli.app import SECTIONS  # here, so that a broken command does not hide the tests above

    specified = (ROOT / "docs" / "spec" / "cli.md").read_text(encoding="utf-8")

    assert [name for section in SECTIONS.values() for name in section if f"cmf {name}" not in specified] == []
