"""Policies, and the index by which records are found, are part of the check; a bundle holds what it says, no more."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.review.traffic import keep, record

from pipeline.audit.bundle import MANIFEST, Selection, write_bundle
from pipeline.audit.heads import Signer
from pipeline.decisions.errors import StoreError
from pipeline.policy.bundle_signature import packed
from pipeline.policy.policy_set import BuiltinErrors, load, revisions_of
from pipeline.run.recording import UNRECORDED
from pipeline.store import full_check
from pipeline.store.database import Store
from pipeline.store.engine import open_to_read
from pipeline.store.evidence import StoreEvidence
from pipeline.store.full_check import check_store
from pipeline.store.policies import keep_policies
from pipeline.store.records import Search

# Nobody signs these: what a signature is for, test_manifest.py shows.
check_bundle = partial(full_check.check_bundle, unsigned=True)

Parts = dict[str, bytes]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with three records, of which two are indexed, and the policies of two revisions."""
    folder = tmp_path_factory.mktemp("kept")
    rules = write_rules(
        folder / "policies", {"a": 'deny contains {"code": "a.b", "reason": "No."} if input.name == "pay"'}
    )
    with Store.at(folder / "s.sqlite3") as store:
        for way in get_args(BuiltinErrors):
            policies = load(rules, builtin_errors=way)
            keep_policies(store, policies.revision, packed(policies.bundle()), record())
        keep(store, record("deny", rule="tools/a"))
        Search(store.engine, store.writer).catch_up()
        keep(store, record("deny", rule="tools/b"))
    return folder / "s.sqlite3"


def copied(kept: Path, folder: Path, *statements: str) -> list[str]:
    """What is wrong with a copy of the store in which these statements were carried out."""
    copy = Path(shutil.copy(kept, folder / "s.sqlite3"))
    with closing(sqlite3.connect(copy)) as connection, connection:
        for statement in statements:
            assert connection.execute(statement).rowcount != 0, statement
    with Store.at(copy, key=Path(f"{kept}.key")) as store, StoreEvidence.at_one_moment(store.engine) as evidence:
        return sorted(problem.code for problem in check_store(evidence).problems)


LAST = "(SELECT max(seq) FROM record_facts)"


@pytest.mark.spec("AUD-85")
@pytest.mark.parametrize(
    ("statements", "found"),
    [
        ([], []),
        (["DELETE FROM record_facts", "DELETE FROM record_facts_done"], []),  # it is made again by who looks next
        ([f"DELETE FROM record_facts WHERE seq = {LAST}"], ["index.changed"]),
        (["UPDATE record_facts SET value = 'tools/x' WHERE value = 'tools/a'"], ["index.changed"]),
        ([f"INSERT INTO record_facts VALUES ({LAST}, 'rule', 'tools/x')"], ["index.changed"]),
        (["INSERT INTO record_facts VALUES (0, 'rule', 'x')"], ["index.changed"]),
        ([f"INSERT INTO record_facts VALUES ({LAST} + 1, 'rule', 'tools/x')"], ["index.changed"]),
        (["UPDATE record_facts_done SET upto = 99"], ["index.changed"] * 2),
        (["INSERT INTO record_facts_done VALUES (99)"], ["index.changed"] * 2),
        (["INSERT INTO record_facts_done VALUES (1)"], []),
        (["UPDATE policy_sets SET bundle = x'00' WHERE rowid = 1"], ["policies.changed"]),
        (["UPDATE policy_sets SET revision = revision || 'x' WHERE rowid = 2"], ["policies.changed"]),
    ],
)
def test_what_is_shown_beside_the_log_is_checked(
    kept: Path, tmp_path: Path, statements: list[str], found: list[str]
) -> None:
    assert copied(kept, tmp_path, *statements) == found


@pytest.mark.spec("AUD-85")
@pytest.mark.parametrize("table", ["records", "record_facts", "contents"])
def test_a_row_removed_from_only_a_database_index_is_found(tmp_path: Path, table: str) -> None:
    index = {"records": "records_session", "record_facts": "record_facts_value", "contents": "contents_at"}[table]
    with Store.at(tmp_path / "s.sqlite3") as store:
        taken, _ = keep(store, *(record("deny", subject="ann", content=b"{}") for _ in range(2)))
        Search(store.engine, store.writer).catch_up()
    _take_out_of(tmp_path / "s.sqlite3", index, of=taken, table=table)

    engine = open_to_read(tmp_path / "s.sqlite3")
    with StoreEvidence.at_one_moment(engine) as evidence:
        problems = check_store(evidence).problems
    engine.dispose()

    assert {problem.code for problem in problems} == {"index.changed"}
    assert {problem.record for problem in problems} == {taken, None}
    assert any(problem.message.endswith(f"missing from index {index}") for problem in problems)


def _take_out_of(file: Path, index: str, *, of: str, table: str) -> None:
    """Build an index without the rows of a record, by a condition that its definition has only meanwhile."""
    column, value = "record" if table == "contents" else "seq", f"'{of}'"
    with closing(sqlite3.connect(file)) as connection:
        if table != "contents":
            (value,) = connection.execute("SELECT seq FROM records WHERE id = ?", (of,)).fetchone()
        (definition,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    for version, sql in enumerate((f"{definition} WHERE {column} <> {value}", definition), start=1_000):
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("PRAGMA writable_schema = 1")
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, index))
            connection.execute(f"PRAGMA schema_version = {version}")
        if sql != definition:
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute(f"REINDEX {index}")


@pytest.mark.spec("AUD-85")
def test_a_store_without_one_of_its_tables_is_refused_by_name(kept: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copy(kept, tmp_path / "s.sqlite3"))
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("ALTER TABLE record_facts RENAME TO other")
        connection.execute("CREATE VIEW record_facts AS SELECT * FROM other WHERE value <> 'tools/a'")

    engine = open_to_read(copy)
    missing = pytest.raises(StoreError, match="tables of the store are missing: record_facts at")
    with missing as refused, StoreEvidence.at_one_moment(engine):
        pass
    engine.dispose()

    assert refused.value.code == "store.incomplete"


def _more(name: str) -> Callable[[Parts], object]:
    return lambda parts: parts.update({name: b"x"})


def _said_more(parts: Parts) -> None:
    first, *others = parts["records.jsonl"].splitlines(keepends=True)
    parts["records.jsonl"] = b"".join([first.replace(b"{", b'{"reviewed":"ok",', 1), *others])


def _cut_short(parts: Parts) -> None:
    parts["records.jsonl"] = parts["records.jsonl"].rstrip(b"}\n")


def _said_as_text(parts: Parts) -> None:
    parts["records.jsonl"] = parts["records.jsonl"].replace(b'"place":1', b'"place":"1"')


def _other_policies(parts: Parts) -> None:
    name = next(name for name in parts if name.startswith("policies/"))
    with tarfile.open(fileobj=io.BytesIO(parts[name])) as files:
        read = {one.name: (files.extractfile(one) or io.BytesIO()).read() for one in files}
    rule = next(path for path in read if path.endswith("a.rego"))
    parts[name] = packed(read | {rule: read[rule].replace(b'"pay"', b'"ply"')})


@pytest.mark.spec("AUD-50")
@pytest.mark.spec("AUD-85")
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize(
    ("change", "found"),
    [
        (dict, set()),
        (_more("policies/new.tar.gz"), {"policies.changed"}),
        (_more("../../etc/x"), {"bundle.changed"}),
        (_more("index.html"), {"bundle.changed"}),
        (_said_more, {"record.unreadable"}),
        (_said_as_text, {"record.unreadable"}),
        (_cut_short, {"record.unreadable"}),
        (_other_policies, {"policies.changed"}),
    ],
)
def test_a_bundle_that_was_put_together_anew_is_found(
    kept: Path, tmp_path: Path, change: Callable[[Parts], object], found: set[str], some: bool
) -> None:
    with Store.at(kept) as store:
        chosen = Selection("all", lambda _: True) if some else None
        evidence = StoreEvidence(store.engine)
        write_bundle(tmp_path / "b.zip", evidence, selection=chosen, policies=evidence.policies())
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle:
        parts = {name: bundle.read(name) for name in bundle.namelist()}
    change(parts)
    manifest = json.loads(parts.pop(MANIFEST))
    manifest["files"] = {
        name: hashlib.sha256(content).hexdigest()
        for name, content in parts.items()
        if found != {"bundle.changed"} or name in manifest["files"]
    }
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as bundle:
        for name, content in {**parts, MANIFEST: json.dumps(manifest).encode()}.items():
            bundle.writestr(name, content)

    codes = {problem.code for problem in check_bundle(tmp_path / "other.zip").problems}

    assert codes - {"record.missing"} == found


@pytest.mark.spec("AUD-50")
def test_no_part_leads_elsewhere_and_one_that_is_there_twice_is_one_too_many(kept: Path, tmp_path: Path) -> None:
    assert copied(kept, tmp_path, "UPDATE logs SET key = '../../x'") == ["log.changed"]
    with Store.at(tmp_path / "s.sqlite3", key=Path(f"{kept}.key")) as store:
        write_bundle(tmp_path / "b.zip", StoreEvidence(store.engine), policies={"../../x": b"", "r": b"none"})
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as bundle:
        assert [name for name in bundle.namelist() if "/" in name] == ["policies/r.tar.gz"]
        with pytest.warns(UserWarning, match="Duplicate"):
            bundle.writestr("records.jsonl", bundle.read("records.jsonl"))

    problems = check_bundle(tmp_path / "b.zip").problems

    said = "records.jsonl is not in the manifest"
    assert ("bundle.changed", said) in [(one.code, one.message) for one in problems]


@pytest.mark.spec("AUD-85")
def test_a_bundle_with_more_than_policies_is_of_no_revision(kept: Path) -> None:
    with Store.at(kept) as store:
        revision, bundle = next(iter(StoreEvidence(store.engine).policies().items()))
    with tarfile.open(fileobj=io.BytesIO(bundle)) as files:
        read = {one.name: (files.extractfile(one) or io.BytesIO()).read() for one in files}

    assert revision in revisions_of(bundle)
    assert revisions_of(packed(read | {"notes.txt": b"These were not the policies."})) == frozenset()


@pytest.mark.spec("AUD-33", "AUD-34")
def test_the_keys_and_heads_that_are_given_count_in_every_check(kept: Path, tmp_path: Path) -> None:
    other = Signer.at(tmp_path / "other.pem").public_key
    with Store.at(kept, key=Path(f"{kept}.key")) as store, StoreEvidence.at_one_moment(store.engine) as evidence:
        (log, *_) = evidence.logs()
        (*_, newest) = evidence.heads(log.id)
        gone = replace(newest.head, log="log_gone")
        write_bundle(tmp_path / "b.zip", evidence)
        reports = [
            check_store(evidence, exported=[gone], keys=[other]),
            check_bundle(tmp_path / "b.zip", exported=[gone], keys=[other]),
        ]
    for report in reports:
        assert {problem.code for problem in report.problems} >= {"head.key", "log.missing"}
        assert (report.anchored, report.trusted) == (True, True)


@pytest.mark.spec("AUD-40")
def test_the_specification_lists_each_problem() -> None:
    table = (
        (ROOT / "docs" / "spec" / "audit.md").read_text(encoding="utf-8").partition("| code |")[2].partition("\n\n")[0]
    )
    home = ROOT / "src" / "pipeline"
    files = [*(home / "audit").glob("*.py"), home / "store" / "full_check.py"]
    sources = "".join(path.read_text(encoding="utf-8") for path in files)

    listed = {code for row in table.splitlines() for code in re.findall(r"`([a-z]+\.[a-z]+)`", row.split("|")[1])}
    found = set(
        re.findall(r'"((?:record|head|log|content|hold|bundle|policies|index|approval|schema)\.[a-z]+)"', sources)
    )
    assert listed == found - {UNRECORDED}  # no problem of a log: the code of a run that could not be recorded
