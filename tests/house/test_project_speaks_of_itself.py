"""Nothing that is tracked speaks of the machine it was written on, or carries a secret."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.tree import ROOT, tracked_files

# Written in two pieces, so that this file does not find itself.
BUILD_PATHS = re.compile(r"/wo" r"rk/(?:main|shared|\.library)|/tm" r"p/brief|/ro" r"ot/|/home/[a-z]+/")
REGISTRY_HOSTS = re.compile(
    r"py"
    r"pi\.org|pythonho"
    r"sted\.org|(?:static|index)\.crates"
    r"\.io|proxy\.gol"
    r"ang\.org"
    r"|sum\.gol"
    r"ang\.org|registry\.npm"
    r"js\.org|repo1?\.ma"
    r"ven\.(?:apache\.)?org|deb\.deb"
    r"ian\.org"
)
SECRETS = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )?PRIVATE K" r"EY-----\s*\\?n?[A-Za-z0-9+/]{40}"),
    "an AWS key id": re.compile(r"\bAK" r"IA[0-9A-Z]{16}\b"),
    "an Anthropic key": re.compile(r"\bsk-a" r"nt-[A-Za-z0-9_-]{40,}"),
    "an OpenAI key": re.compile(r"\bsk-(?:pr" r"oj-)?[A-Za-z0-9]{40,}"),
    "a GitHub token": re.compile(r"\bgh" r"[pousr]_[A-Za-z0-9]{36}\b"),
    "a Slack token": re.compile(r"\bxo" r"x[abprs]-[0-9]{10,}-[A-Za-z0-9-]{20,}"),
    "a Google key": re.compile(r"\bAI" r"za[0-9A-Za-z_-]{35}\b"),
}
# A secret rule needs secret-shaped samples; theirs say in the token itself that they open nothing.
HARMLESS = re.compile(r"EXAMPLE|FAKE|NOTREAL|0{8}|x{8}|abcdef|123456", re.IGNORECASE)
MAX_TRACKED_BYTES = 2 * 1024 * 1024  # a larger file is data that belongs elsewhere, or a build product


def test_no_tracked_file_names_a_path_of_a_build_machine() -> None:
    assert list(_hits(BUILD_PATHS)) == []


def test_no_tracked_file_names_a_registry_host() -> None:
    """Where packages come from is the reader's configuration; locks carry hashes, not addresses."""
    assert list(_hits(REGISTRY_HOSTS)) == []


@pytest.mark.parametrize("kind", SECRETS)
def test_no_tracked_file_holds_a_secret(kind: str) -> None:
    assert list(_hits(SECRETS[kind], harmless=HARMLESS)) == []


def test_no_tracked_file_is_a_build_product() -> None:
    offenders = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if path.stat().st_size > MAX_TRACKED_BYTES or path.suffix in {".so", ".whl", ".pyc", ".sqlite3"}
    ]

    assert offenders == []


@pytest.mark.parametrize(
    ("pattern", "planted"),
    [
        (BUILD_PATHS, "/wo" + "rk/main/src"),
        (REGISTRY_HOSTS, "https://py" + "pi.org/simple"),
        (SECRETS["an AWS key id"], "AK" + "IAQ7ZP3M2K9LX4TB8W"),
        (SECRETS["a GitHub token"], "gh" + "p_" + "k7Zq9" * 7 + "Q"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: re.Pattern[str], planted: str) -> None:
    assert pattern.search(planted)


def _hits(pattern: re.Pattern[str], harmless: re.Pattern[str] | None = None) -> Iterator[str]:
    for path in tracked_files():
        for number, line in enumerate(_lines(path), 1):
            for match in pattern.finditer(line):
                if harmless is None or not harmless.search(match[0]):
                    yield f"{path.relative_to(ROOT)}:{number}"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:  # binary fixtures are judged by the tests that use them
        return []
