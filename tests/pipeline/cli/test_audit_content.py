"""`cmf audit reveal|erase|hold|holds|release|sweep`, and stores as `--records`."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import says
from typer.testing import CliRunner

from cmf import SubjectExtension
from pipeline import Config, Context, Guard, Pipeline
from pipeline.cli.app import app
from pipeline.store.database import Store
from pipeline.store.recorder import Recorder

WHO = ("--as", "eve", "--reason", "a complaint")


def cmf(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    rule = 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")'
    return write_rules(tmp_path / "policies", {"deny": rule})


@pytest.fixture
def kept(tmp_path: Path, policies: Path) -> Callable[..., tuple[Path, list[str]]]:
    def make(*texts: str, key: Path | None = None) -> tuple[Path, list[str]]:
        file = tmp_path / "cmf.db"
        with Store.at(file, key=key) as store:
            pipeline = Pipeline(policies=policies, config=Config(content="whole"), recorder=Recorder(store))
            context = Context(subject=SubjectExtension(id="ann"), session="s")
            return file, [pipeline.run(says("user", text), context).decision.id for text in texts]

    return make


@pytest.mark.spec("CLI-86")
def test_content_is_shown_held_and_erased(kept: Callable[..., tuple[Path, list[str]]]) -> None:
    store, (first, _) = kept("hello", "goodbye")

    assert json.loads(cmf("audit", "reveal", store, first, *WHO))["id"] == first
    held = cmf("audit", "hold", store, *WHO, "--subject", "ann").strip()
    assert held in cmf("audit", "holds", store)
    assert "0 contents erased, 2 stay" in cmf("audit", "erase", store, *WHO, "--session", "s")
    assert "contents: 0 erased" in cmf("audit", "sweep", store)
    cmf("audit", "release", store, held, *WHO, "--second", "bob")
    assert cmf("audit", "holds", store) == "cmf: no hold is in force\n"
    assert "2 contents erased" in cmf("audit", "erase", store, *WHO, "--before", "2999-01-01")
    assert "content.none" in cmf("audit", "reveal", store, first, *WHO, "--second", "bob", code=4)
    assert "holds" in cmf("audit", "verify", store)
    kinds = [json.loads(line)["kind"] for line in cmf("audit", "tail", store, "--format", "json").splitlines()]
    assert sorted(set(kinds)) == ["decision", "erasure", "hold", "log", "reveal"]


@pytest.mark.spec("CLI-82")
@pytest.mark.spec("AUD-53")
def test_content_is_exported_only_with_a_name_and_a_reason_and_verifies_elsewhere(
    kept: Callable[..., tuple[Path, list[str]]], tmp_path: Path
) -> None:
    store, (first, second) = kept("a word that is nowhere else", "goodbye")
    whole, some = tmp_path / "whole.zip", tmp_path / "some.zip"

    assert "--as" in cmf("audit", "export", store, whole, "--contents", code=2)
    cmf("audit", "export", store, whole, "--contents", "--query", "wrong", *WHO, code=4)
    assert not whole.exists()
    assert cmf("audit", "find", store, "kind:reveal") == "cmf: no record matches\n"

    cmf("audit", "export", store, whole, "--contents", *WHO)
    cmf("audit", "export", store, some, "--contents", "--query", f"id:{second}", *WHO, "--second", "bob")
    assert "holds" in cmf("audit", "verify", whole)
    assert "holds" in cmf("audit", "verify", some)
    found = [json.loads(line) for line in cmf("audit", "find", store, "kind:reveal", "--format", "json").splitlines()]
    assert [one["action"] for one in found] == ["export", "export"]

    with closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("DELETE FROM contents WHERE record = ?", (first,))
    missing = cmf("audit", "verify", store, code=2)
    assert "FAILS  content.missing" in missing
    assert first in missing


@pytest.mark.spec("CLI-97")
def test_lists_are_available_as_json_and_empty_ones_print_one_line(kept: Callable[..., tuple[Path, list[str]]]) -> None:
    store, (first,) = kept("hello")

    for words in ("asks", "grants", "holds", "overrides"):
        empty = CliRunner().invoke(app, ["audit", words, str(store), "--format", "json"])
        assert (empty.exit_code, empty.stdout, empty.stderr.count("\n")) == (0, "", 1)
    asked = cmf("audit", "ask", store, first, *WHO).strip()
    cmf("audit", "hold", store, *WHO, "--subject", "ann")
    (told,) = cmf("audit", "asks", store, "--format", "json").splitlines()
    (held,) = cmf("audit", "holds", store, "--format", "json").splitlines()

    assert (json.loads(told)["id"], json.loads(told)["at"][-1]) == (asked, "Z")
    assert (json.loads(held)["subject"], json.loads(held)["released_at"]) == ("ann", None)


@pytest.mark.spec("CLI-88")
def test_a_store_that_asks_for_two_shows_nothing_to_one(kept: Callable[..., tuple[Path, list[str]]]) -> None:
    store, (first, _) = kept("hello", "goodbye")
    cmf("audit", "two-people", store, "on", *WHO)
    bob = ("--as", "bob", "--reason", "agreed")

    assert "audit.four-eyes" in cmf("audit", "reveal", store, first, *WHO, code=4)
    asked = cmf("audit", "ask", store, first, *WHO).strip()
    assert f"{asked}  " in cmf("audit", "asks", store)
    assert "audit.four-eyes" in cmf("audit", "grant", store, asked, *WHO, code=4)
    assert f"eve may see {first} until" in cmf("audit", "grant", store, asked, *bob, "--minutes", 5)
    assert cmf("audit", "asks", store) == "cmf: nobody asks\n"
    assert json.loads(cmf("audit", "reveal", store, first, *WHO))["id"] == first
    assert f"eve: {first}  by bob" in cmf("audit", "grants", store)
    assert "audit.four-eyes" in cmf("audit", "reveal", store, first, *bob, code=4)
    scope = ("--subject", "ann", "--session", "s")
    opened = cmf("audit", "break-glass", store, *bob, "--second", "eve", *scope).split(":")[0]
    assert json.loads(cmf("audit", "reveal", store, first, *bob))["id"] == first
    assert "bob: subject ann, session s  by eve" in cmf("audit", "grants", store)
    cmf("audit", "close", store, opened, *WHO)
    assert "audit.four-eyes" in cmf("audit", "reveal", store, first, *bob, code=4)
    assert "audit.four-eyes" in cmf("audit", "two-people", store, "off", *WHO, code=4)
    cmf("audit", "two-people", store, "off", *WHO, "--second", "bob")
    assert json.loads(cmf("audit", "reveal", store, first, *bob))["id"] == first
    assert "holds" in cmf("audit", "verify", store)


@pytest.mark.spec("CLI-86")
def test_nothing_is_signed_by_a_new_key_and_no_store_is_made(
    kept: Callable[..., tuple[Path, list[str]]], tmp_path: Path
) -> None:
    key = tmp_path / "elsewhere.pem"
    store, (first,) = kept("hello", key=key)

    assert "--signing-key" in cmf("audit", "reveal", store, first, *WHO, code=2)
    assert not store.with_name(f"{store.name}.key").exists()
    none = tmp_path / "none.pem"
    for words in (("reveal", store, first, *WHO), ("export", store, tmp_path / "b.zip")):
        assert f"no such key file at {none}" in cmf("audit", *words, "--signing-key", none, code=2)
    assert not none.exists()
    assert first in cmf("audit", "reveal", store, first, *WHO, "--signing-key", key)
    cmf("audit", "erase", tmp_path / "none.db", *WHO, "--session", "s", code=5)
    assert not (tmp_path / "none.db").exists()


@pytest.mark.spec("CLI-87")
@pytest.mark.spec("AUD-71")
def test_a_store_is_judged_again_and_a_record_becomes_a_case(
    kept: Callable[..., tuple[Path, list[str]]], policies: Path, tmp_path: Path
) -> None:
    store, (_, denied) = kept("hello", "forbidden")
    lenient = write_rules(tmp_path / "lenient", {"deny": 'deny contains {"code": "d", "reason": "x"} if false'})

    told = json.loads(cmf("impact", "--base", policies, "--head", lenient, "--records", store, "--format", "json"))
    assert (told["records"], told["newly_allowed"]["ids"]) == (2, [denied])
    assert "--as" in cmf("case", "from-record", denied, "--records", store, "-p", policies, code=2)
    case = cmf("case", "from-record", denied, "--records", store, "-p", policies, *WHO)
    assert "verdict: deny" in case
    found = cmf("audit", "find", store, "kind:reveal", "--format", "json").splitlines()
    assert [json.loads(line)["action"] for line in found] == ["reveal", "read-all"]


@pytest.mark.spec("CLI-92")
def test_two_people_override_a_rule_and_one_ends_it(
    kept: Callable[..., tuple[Path, list[str]]], policies: Path
) -> None:
    store, _ = kept("forbidden")
    eve = ("--as", "eve", "--reason", "the ward has no other way")
    asked = ("audit", "override", store, "--rule", "test/deny", *eve)

    assert "audit.four-eyes" in cmf(*asked, "--second", "eve", "--subject", "ann", code=4)
    assert "audit.too-wide" in cmf(*asked, "--second", "bob", code=4)
    assert "--second" in cmf(*asked, "--subject", "ann", code=2)
    said = cmf(*asked, "--second", "bob", "--subject", "ann", "--uri", "tool://**", "--minutes", 5)
    assert "test/deny denies nothing for subject ann, tool://** until" in said
    first = said.split(":")[0]
    assert f"{first}  until" in cmf("audit", "overrides", store)
    cmf("audit", "close", store, first, *WHO)
    assert cmf("audit", "overrides", store) == "cmf: no override is in force\n"
    assert "override.unknown" in cmf("audit", "close", store, first, *WHO, code=4)

    cmf(*asked, "--second", "bob", "--session", "s")
    with Store.at(store) as opened, Guard(policies, store=opened) as guard:
        assert guard.decide(says("user", "forbidden"), session="s").verdict.value == "deny"
    (found,) = cmf("audit", "find", store, "override:*").splitlines()
    assert "deny" in found
    assert "forward" in found
    kinds = cmf("audit", "find", store, "kind:override").splitlines()
    assert len(kinds) == 3
    assert "holds" in cmf("audit", "verify", store)


@pytest.mark.spec("CLI-82")
@pytest.mark.parametrize("part", ["logs.jsonl", "records.jsonl", "manifest.json"])
def test_a_bundle_without_a_part_or_an_end_says_so(
    kept: Callable[..., tuple[Path, list[str]]], tmp_path: Path, part: str
) -> None:
    store, _ = kept("hello")
    whole, some, cut = (tmp_path / f"{name}.zip" for name in ("whole", "some", "cut"))
    cmf("audit", "export", store, whole)
    with zipfile.ZipFile(whole) as given, zipfile.ZipFile(some, "w") as made:
        for name in given.namelist():
            if name != part:
                made.writestr(name, given.read(name))
    cut.write_bytes(whole.read_bytes()[:-100])

    assert f"some.zip!{part}" in cmf("audit", "verify", some, code=4)
    assert "truncated at" in cmf("audit", "verify", cut, code=4)
    assert "no store here at" in cmf("audit", "verify", tmp_path / "none", code=4)
    assert "No such file" in cmf("audit", "export", store, tmp_path / "no" / "b.zip", code=4)
    assert "none.pem" in cmf("audit", "verify", whole, "--public-key", tmp_path / "none.pem", code=4)
    assert "none.jsonl" in cmf("audit", "verify", whole, "--heads", tmp_path / "none.jsonl", code=4)
