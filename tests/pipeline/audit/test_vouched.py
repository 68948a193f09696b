"""What the log can vouch for beside its records is checked against it; what it cannot is said."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.postgres_server import Postgres
from tests.pipeline.review.traffic import keep, record
from tests.pipeline.session_stores import ANN, count, grant, taint
from typer.testing import CliRunner

from cmf import Message, SubjectExtension, TextPart, ToolCallPart
from pipeline import Approvals, Guard
from pipeline.approvals.declassification import declassify
from pipeline.audit.bundle import Selection, write_bundle
from pipeline.audit.record import act_of
from pipeline.audit.verification import Report
from pipeline.cli.app import app
from pipeline.decisions.approval import ApprovalRequest
from pipeline.decisions.authority import APPROVE, DECLASSIFY
from pipeline.decisions.errors import StoreError
from pipeline.policy.bundle_signature import packed
from pipeline.policy.policy_set import load
from pipeline.sessions.base import wall_clock
from pipeline.sessions.state import Changes
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.full_check import STATE, check_bundle, check_store
from pipeline.store.policies import keep_policies
from pipeline.store.recorder import Recorder

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


PLANTED = {
    "CREATE TRIGGER t AFTER INSERT ON session_labels BEGIN DELETE FROM session_labels; END": "trigger t",
    "CREATE TRIGGER heads AFTER INSERT ON heads BEGIN SELECT 1; END": "trigger heads",
    "ALTER TABLE holds RENAME TO h; CREATE VIEW holds AS SELECT * FROM h WHERE 0": "view holds",
}
IGNORING = "CREATE TRIGGER t BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END"


@pytest.mark.spec("REC-26")
@pytest.mark.parametrize("statements", PLANTED)
def test_a_file_in_which_something_acts_or_hides_is_not_opened(tmp_path: Path, statements: str) -> None:
    file = tmp_path / "s.sqlite3"
    Store.at(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(statements)

    with pytest.raises(StoreError) as refused:
        Store.at(file)

    assert refused.value.code == "store.planted"
    assert PLANTED[statements] in refused.value.message


@pytest.mark.spec("REC-26")
@pytest.mark.parametrize(
    "statements", [*PLANTED, "CREATE TRIGGER t BEFORE INSERT ON records BEGIN SELECT RAISE(IGNORE); END"]
)
def test_nothing_goes_out_once_something_was_planted_in_a_file_that_is_open(tmp_path: Path, statements: str) -> None:
    file, message = tmp_path / "s.sqlite3", Message(role="user", content=[TextPart(text="hello")])
    with Store.at(file) as store, Guard(store=store) as guard:
        assert guard.run(message, context=ANN).value is not None
        with closing(sqlite3.connect(file)) as connection:
            connection.executescript(statements)

        outcomes = [guard.run(message, context=ANN) for _ in range(2)]

        assert [outcome.value for outcome in outcomes] == [None, None]
        assert {hit.code for outcome in outcomes for hit in outcome.decision.hits} == {"record.unavailable"}
        assert store.writer.failure is not None
        assert store.writer.failure.code == "store.planted"


@pytest.mark.spec("REC-26")
def test_a_file_with_what_nothing_reads_is_opened(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    Store.at(file).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript("CREATE VIEW v AS SELECT 1; CREATE TABLE theirs (a)")

    with Store.at(file) as store:
        assert {problem.code for problem in checked(store).problems} == {"schema.changed"}


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
    assert "events" in STATE


LABELS = {"tag": 'label contains {"label": "secret", "code": "t.l", "reason": "x"} if input.name == "read"'}
TAKEN_BACK = {
    "DELETE FROM session_labels WHERE session = 's1'": "fewer labels",
    "UPDATE session_labels SET label = 'public'": "fewer labels",
    "UPDATE session_labels SET source = source || '1'": "fewer labels",
    "UPDATE session_state SET version = version - 1": "a lower version",
    "UPDATE session_counters SET amount = '1'": "lower counters",
    "DELETE FROM session_counters": "lower counters",
    "UPDATE session_counters SET amount = 'many'": "lower counters",
    "UPDATE session_counters SET amount = '7'": "higher counters",
    "INSERT INTO session_labels VALUES ('id:ann', 's1', 'public', 'evt_1')": "more labels",
    "UPDATE session_state SET version = 0; DELETE FROM session_labels": "a lower version, fewer labels",
}


def judge(store: Store, folder: Path) -> None:
    """Three calls of one session, on record, each of which brings a label."""
    with Guard(write_rules(folder / "rules", LABELS), store=store) as guard:
        for number in range(3):
            call = ToolCallPart(tool_call_id=f"c{number}", name="read", arguments={"n": number})
            assert guard.run(Message(role="assistant", content=[call]), context=ANN).value is not None


def run_sql(store: Store, statements: str) -> None:
    with store.engine.connect() as connection, connection.begin():
        for statement in statements.split("; "):
            connection.exec_driver_sql(statement)


@pytest.mark.spec("AUD-88")
@pytest.mark.parametrize("statements", TAKEN_BACK)
def test_a_session_that_differs_from_what_decisions_gave_it_is_named(
    database: Store, tmp_path: Path, statements: str
) -> None:
    judge(database, tmp_path)
    assert checked(database).problems == ()

    run_sql(database, statements)

    [problem] = checked(database).problems
    assert problem.code == "session.changed"
    assert problem.message.startswith("the session s1 of ann is not as decisions on record left it: it has ")
    assert problem.message.endswith(TAKEN_BACK[statements])


@pytest.mark.spec("AUD-88")
def test_an_approval_that_was_used_and_can_be_again_is_found(database: Store, tmp_path: Path) -> None:
    pay = Message(role="assistant", content=[ToolCallPart(name="pay", arguments={"amount": 7})])
    asks = {"ask": 'require_approval contains {"code": "t.a", "reason": "x"} if input.name == "pay"'}
    with Guard(write_rules(tmp_path / "rules", asks), store=database) as guard:
        [asked] = guard.run(pay, context=ANN).decision.approval_ids
        Approvals(database.sessions()).approve(asked, OLGA)
        assert guard.run(pay, context=ANN).value is not None
        assert checked(database).problems == ()

        run_sql(database, "UPDATE approvals SET status = 'approved', used_at = NULL WHERE status = 'used'")

        [revived] = checked(database).problems
        assert guard.run(pay, context=ANN).value is not None  # the store is believed while it is in use
        [reused] = checked(database).problems
        other = "INSERT INTO session_state (subject, session, version, updated_at) VALUES ('id:ann', 'other', 1, 1)"
        run_sql(database, f"{other}; UPDATE approvals SET session = 'other'")
        [moved] = checked(database).problems
    assert {problem.code for problem in (revived, reused, moved)} == {"session.changed"}
    assert revived.message.endswith("it has fewer used approvals")
    assert reused.message.endswith("it has an approval that was used twice")
    assert moved.message.endswith("it has fewer used approvals, an approval that was used twice")


@pytest.mark.spec("AUD-88")
def test_a_session_that_is_gone_is_named(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    with Store.at(file) as store:
        judge(store, tmp_path)
    with closing(sqlite3.connect(file)) as connection, connection:
        for table in ("session_labels", "session_counters", "session_events", "session_marks", "session_state"):
            connection.execute(f"DELETE FROM {table} WHERE subject = 'id:ann'")

    done = CliRunner().invoke(app, ["audit", "verify", str(file)])

    assert done.exit_code == 1
    assert "FAILS  session.changed    the session s1 of ann is not as decisions on record left it: it is gone" in (
        done.stdout
    )


@pytest.mark.spec("AUD-88")
def test_what_others_add_to_a_session_is_no_problem_and_hides_none(database: Store, tmp_path: Path) -> None:
    judge(database, tmp_path)
    database.sessions().add_labels(ANN, frozenset({"ours"}))
    database.sessions().commit(ANN, None, count("calls:tool://_/read"))
    assert checked(database).problems == ()

    run_sql(database, "DELETE FROM session_labels WHERE label = 'secret'")

    assert [problem.code for problem in checked(database).problems] == ["session.changed"]


GRANTS = [
    "UPDATE session_grants SET expires_at = 4000000000000000",
    "UPDATE session_grants SET expires_at = 'never'",
    "UPDATE session_grants SET label = 'other'",
    "UPDATE session_grant_sources SET source = source || '1'",
    "UPDATE session_grants SET id = 'grt_2'",
    "UPDATE records SET body = 'x' WHERE kind = 'declassify'",
    "UPDATE records SET body = '{}' WHERE kind = 'declassify'",
]


@pytest.mark.spec("AUD-88")
@pytest.mark.parametrize("statement", GRANTS)
def test_a_label_lifted_as_no_record_says_is_found(tmp_path: Path, statement: str) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        judge(store, tmp_path)
        actor, hour = SubjectExtension(id="olga", permissions=frozenset({DECLASSIFY})), timedelta(hours=1)
        options: Any = {"label": "secret", "actor": actor, "reason": "seen", "expires_in": hour}
        declassify(store.sessions(), ANN, **options, record=Recorder(store).record)
        assert checked(store).problems == ()

        with closing(sqlite3.connect(tmp_path / "s.sqlite3")) as connection, connection:
            connection.execute(statement)

        assert (
            "grant.forged"
            in {problem.code for problem in checked(store).problems}
            <= {
                "grant.forged",
                "record.changed",
            }
        )


@pytest.mark.spec("AUD-88")
def test_a_label_lifted_without_a_record_is_found_where_there_is_a_log(tmp_path: Path) -> None:
    with Store.named(tmp_path / "s.sqlite3", keyless=True) as keyless, Store.at(tmp_path / "s.sqlite3") as store:
        keyless.sessions().commit(ANN, None, taint("secret", "evt_1"))
        keyless.sessions().commit(ANN, None, grant("secret", "evt_1", expires_at=LATER))
        assert checked(store).problems == ()

        judge(store, tmp_path)

        assert [problem.code for problem in checked(store).problems] == ["grant.forged"]


@pytest.mark.spec("AUD-88")
@pytest.mark.parametrize("other", ['_changes":[', '_changes":{"a":1,'])
def test_a_record_whose_bytes_were_changed_is_all_that_is_wrong(tmp_path: Path, other: str) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        judge(store, tmp_path)
    with closing(sqlite3.connect(tmp_path / "s.sqlite3")) as connection, connection:
        changed = (
            "UPDATE records SET body = CAST(replace(replace(body, '_changes\":{', ?), '\"version\"', '\"v\"') AS BLOB)"
        )
        connection.execute(changed, (other,))

    with Store.at(tmp_path / "s.sqlite3") as store:
        assert {problem.code for problem in checked(store).problems} == {"record.changed"}


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


@pytest.mark.spec("AUD-87", "REC-26")
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
    with pytest.raises(StoreError, match=r"the database has a (trigger|rule|row security)") as refused:
        Store.named(place, key=tmp_path / "key")
    assert refused.value.code == "store.planted"
    said = " ".join(problem.message for problem in found)
    assert all(words in said for words in ("row security on logs", "rule r on heads", "trigger t on records"))
    assert len(found) == 3
