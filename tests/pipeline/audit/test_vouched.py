"""What the log can vouch for beside its records is checked against it; what it cannot is said."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.postgres_server import Postgres
from tests.pipeline.review.traffic import keep, record
from tests.pipeline.session_stores import ANN
from typer.testing import CliRunner

from cmf import SubjectExtension
from pipeline import Approvals
from pipeline.approvals.state import ApprovalRequest
from pipeline.audit.bundle_writing import Selection, write_bundle
from pipeline.audit.checking import STATE, check_bundle, check_store
from pipeline.audit.record import act_of
from pipeline.audit.verification import Report
from pipeline.authority import APPROVE
from pipeline.cli.commands import app
from pipeline.policies.bundle_signing import packed
from pipeline.policy_set import load
from pipeline.sessions.base import wall_clock
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.policies import keep_policies

LATER = 4_000_000_000_000_000  # in the year 2096
DENY = {"a": 'deny contains {"code": "a.b", "reason": "No."} if input.name == "pay"'}
OLGA = SubjectExtension(id="olga", permissions=frozenset({APPROVE}))


def fill(store: Store, folder: Path) -> str:
    """Put policies and their record, a decision, and three approvals there: approved, denied, undecided."""
    policies = load(write_rules(folder / "policies", DENY))
    revision = policies.revision
    made = act_of("policy", "policy", "load", {"revision": revision}, wall_clock(), subject=None, revision=revision)
    keep_policies(store, revision, packed(policies.bundle()), made)
    keep(store, record("deny", revision=revision))
    sessions = store.sessions()
    asked = [
        ApprovalRequest(id=f"apr_{number}", digest="d", target="t", rules=("a/b",), revision="r", expires_at=LATER)
        for number in range(3)
    ]
    sessions.commit(ANN, None, Changes(asked=tuple(asked)))
    Approvals(sessions).approve("apr_0", OLGA)
    Approvals(sessions).deny("apr_1", OLGA)
    return revision


def checked(store: Store) -> Report:
    with StoreEvidence.at_one_moment(store.engine) as evidence:
        return check_store(evidence)


FORGERIES = {
    "DELETE FROM policy_sets": ("policies.missing", "were in force, are not stored"),
    "UPDATE approvals SET status = 'approved' WHERE id = 'apr_1'": ("approval.forged", "apr_1"),
    "UPDATE approvals SET approver = 'mallory' WHERE id = 'apr_0'": ("approval.forged", "apr_0"),
    "UPDATE approvals SET digest = 'e' WHERE id = 'apr_0'": ("approval.forged", "apr_0"),
    "UPDATE approvals SET status = 'used', approver = 'olga' WHERE id = 'apr_2'": ("approval.forged", "apr_2"),
    "UPDATE approvals SET status = 'approved' WHERE id = 'apr_2'": ("approval.forged", "apr_2"),
    "UPDATE approvals SET status = 'pending', approver = NULL WHERE id = 'apr_1'": ("approval.forged", "apr_1"),
    "UPDATE records SET body = 'x' WHERE kind = 'review'": ("approval.forged", "apr_0"),
    "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM approvals; END": (
        "schema.changed",
        "trigger t on records",
    ),
    "CREATE VIEW v AS SELECT 1": ("schema.changed", "view v"),
    "CREATE TABLE theirs (a)": ("schema.changed", "table theirs"),
    "CREATE INDEX i ON records (kind)": ("schema.changed", "index i on records"),
}


@pytest.mark.spec("AUD-87")
@pytest.mark.parametrize("statement", FORGERIES)
def test_what_the_log_vouches_for_and_was_changed_is_found(tmp_path: Path, statement: str) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store:
        fill(store, tmp_path)
        assert checked(store).problems == ()
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)

    done = CliRunner().invoke(app, ["audit", "verify", str(file)])

    code, words = FORGERIES[statement]
    assert done.exit_code == (2 if code == "policies.missing" else 1)
    assert f"FAILS  {code}" in done.stdout
    assert words in done.stdout
    assert "does not hold" in done.stdout
    with Store.at(file) as store:
        assert {problem.code for problem in checked(store).problems} in ({code}, {code, "record.changed"})


@pytest.mark.spec("AUD-87")
def test_what_no_record_vouches_for_is_listed(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store:
        fill(store, tmp_path)
        keep(store, record(revision="s" * 64))

    done = CliRunner().invoke(app, ["audit", "verify", str(file)])
    with Store.at(file) as store:
        report = checked(store)

    assert done.exit_code == 0, done.stdout
    assert done.stdout.count("unprotected, because no record vouches for it") == 2
    assert report.to_json()["unchecked"] == [STATE, "the policies of 1 of the revisions that decided"]
    assert "labels" in STATE


@pytest.mark.spec("AUD-87")
def test_a_store_without_a_log_vouches_for_nothing(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.named(file, keyless=True) as keyless, Store.at(file) as store:
        sessions = keyless.sessions()
        asked = ApprovalRequest(id="apr_1", digest="d", target="t", rules=("a/b",), revision="r", expires_at=LATER)
        sessions.commit(ANN, None, Changes(asked=(asked,)))
        sessions.decide_approval("apr_1", approver="olga", approve=True)
        assert checked(store).problems == ()

        keep(store, act_of("review", "review", "review", {"by": {"id": "olga"}}, wall_clock(), subject="olga"))
        assert [problem.code for problem in checked(store).problems] == ["approval.forged"]


@pytest.mark.spec("AUD-87")
def test_a_whole_bundle_without_policies_that_were_in_force_is_found(tmp_path: Path) -> None:
    whole, without, some = (tmp_path / name for name in ("whole.zip", "without.zip", "some.zip"))
    with Store.at(tmp_path / "s.sqlite3") as store:
        fill(store, tmp_path)
        with StoreEvidence.at_one_moment(store.engine) as evidence:
            write_bundle(whole, evidence, policies=evidence.policies())
            write_bundle(without, evidence)
            write_bundle(some, evidence, selection=Selection("kind:policy", lambda leaf: leaf.kind == "policy"))

    found = {file: [one.code for one in check_bundle(file, unsigned=True).problems] for file in (whole, without, some)}

    assert found == {whole: [], without: ["policies.missing"], some: []}


@pytest.mark.spec("AUD-87")
def test_a_trigger_a_rule_or_row_security_on_a_server_is_found(postgres: Postgres, tmp_path: Path) -> None:
    place = postgres.new()
    planted = """
    CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
    CREATE TRIGGER t BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION f();
    CREATE RULE r AS ON DELETE TO heads DO INSTEAD NOTHING;
    ALTER TABLE logs ENABLE ROW LEVEL SECURITY;
    CREATE TABLE theirs (a int);
    CREATE VIEW v AS SELECT 1;
    """
    with Store.named(place, key=tmp_path / "key") as store:
        fill(store, tmp_path)
        assert checked(store).problems == ()
        with psycopg.connect(place, autocommit=True) as connection:
            connection.execute(planted)
        found = checked(store).problems

    assert {problem.code for problem in found} == {"schema.changed"}
    said = " ".join(problem.message for problem in found)
    assert all(words in said for words in ("row security on logs", "rule r on heads", "trigger t on records"))
    assert len(found) == 3
