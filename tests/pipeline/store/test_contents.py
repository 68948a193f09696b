"""Content apart from its record: kept as asked, shown with a reason, erased without a trace, held against all of it."""

from __future__ import annotations

import base64
import json
import sqlite3
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert, select, text, update
from tests.pipeline.conftest import write_rules
from tests.pipeline.conversations import says, used
from tests.pipeline.run_records import made_record

from cmf import Request, RetentionPolicy, SubjectExtension
from cmf.message.security import DataPolicy
from pipeline import Config, Context, Pipeline
from pipeline.audit import bundle_verification
from pipeline.audit.bundle import Selection, write_bundle
from pipeline.audit.evidence import committed_in
from pipeline.audit.record import Content
from pipeline.audit.verification import Report, verify
from pipeline.decisions.errors import AuditError, StoreError
from pipeline.replay.replay import Replay, agrees
from pipeline.run.recorded_input import read_entry
from pipeline.sessions.base import MemorySessions
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.four_eyes import ERASE, HOLD, REVEAL, ContentRules
from pipeline.store.recorder import Recorder
from pipeline.store.records import stored_record, stored_records
from pipeline.store.retention_sweep import Sweep
from pipeline.store.tables import CONTENTS

# Nobody signs these: what a signature is for, test_manifest.py shows.
verify_bundle = partial(bundle_verification.verify_bundle, unsigned=True)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "AKIAIOSFODNN7EXAMPLE"
CARD = "4012888888881881"
RULES = {
    "deny": 'deny contains {"code": "d", "reason": "No."} if contains(input.content, "forbidden")',
    "label": 'label contains {"code": "l", "reason": "x", "label": "finance"} if contains(input.content, "salary")',
    "words": 'label contains {"code": "l", "reason": "x", "label": input.content} if startswith(input.content, "my ")',
}


def person(name: str, *permissions: str) -> SubjectExtension:
    return SubjectExtension(id=name, permissions=frozenset(permissions))


EVE = person("eve", REVEAL, ERASE, HOLD)
BOB = person("bob", REVEAL, ERASE, HOLD)


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rules(tmp_path_factory.mktemp("policies"), RULES)


@pytest.fixture
def judge(database: Store, policies: Path) -> Callable[..., Any]:
    """A function that judges something and gives its decision's id."""
    made: dict[tuple[Any, ...], Pipeline] = {}

    def run(text: str, *, mode: str = "whole", subject: str = "ann", session: str = "s", **config: Any) -> str:
        key = (mode, *config.items())
        if key not in made:
            settings = Config(content=mode, **config)  # type: ignore[arg-type]
            made[key] = Pipeline(
                policies=policies, config=settings, recorder=Recorder(database), sessions=database.sessions()
            )
        context = Context(subject=SubjectExtension(id=subject), session=session)
        return made[key].run(says("user", text), context).decision.id

    return run


def body(store: Store, record: str) -> dict[str, Any]:
    found = stored_record(store.engine, record)
    assert found is not None
    assert found.body is not None
    return dict(json.loads(found.body))


def kinds(store: Store, kind: str) -> list[dict[str, Any]]:
    return [json.loads(one.body or b"") for one in stored_records(store.engine, kind=kind)]


@pytest.mark.spec("AUD-70")
def test_by_default_nothing_is_kept(database: Store, judge: Callable[..., str]) -> None:
    record = judge("hello", mode="none")

    assert not database.contents().has(record)
    assert "content" not in body(database, record)


@pytest.mark.spec("AUD-70")
def test_the_record_holds_a_commitment_and_no_content(database: Store, judge: Callable[..., str]) -> None:
    record = judge("a word that is nowhere else")

    said = body(database, record)
    line = database.contents().reveal(record, actor=EVE, reason="a complaint")

    assert said["content"].keys() == {"commitment", "bytes", "expires_at"}
    assert said["content"]["bytes"] == len(line)
    assert "nowhere else" not in json.dumps(said)
    assert "nowhere else" in line.decode()


@pytest.mark.spec("AUD-71")
def test_what_is_kept_can_be_judged_again(database: Store, judge: Callable[..., str], policies: Path) -> None:
    ids = [judge(text) for text in ("what is the salary?", "forbidden", "and now?")]

    lines = list(database.contents().lines(actor=EVE, reason="impact")())

    entries = [read_entry(line) for line in lines]
    replay = Replay(policies)
    assert [entry.id for entry in entries] == ids
    assert all(agrees(entry, replay.judged(entry)) for entry in entries)
    assert entries[2].session.labels == {"finance"}


@pytest.mark.spec("AUD-72")
def test_masked_content_has_no_secrets_and_the_record_names_their_places(
    database: Store, judge: Callable[..., str]
) -> None:
    record = judge(f"the key is {SECRET} and the card {CARD}", mode="masked")

    line = database.contents().reveal(record, actor=EVE, reason="look")

    assert SECRET not in line.decode()
    assert CARD not in line.decode()
    assert body(database, record)["masked"] == ["/content/traffic/content/0/text"]
    assert not body(database, judge("nothing here", mode="masked"))["masked"]


@pytest.mark.spec("AUD-73")
def test_who_may_not_sees_nothing_and_who_may_is_on_record_first(database: Store, judge: Callable[..., str]) -> None:
    record = judge("hello")
    contents = database.contents(rules=ContentRules(four_eyes=True))
    refused: list[tuple[Any, str, str]] = [
        ((person("eve"), None), "why", "audit.not-authorised"),
        ((person(" ", REVEAL), None), "why", "audit.not-authorised"),
        ((EVE, person("bob")), "why", "audit.not-authorised"),
        ((EVE, None), "why", "audit.four-eyes"),
        ((EVE, EVE), "why", "audit.four-eyes"),
        ((EVE, person(" EVE\u2060", REVEAL)), "why", "audit.four-eyes"),
        ((person("\u200b", REVEAL), BOB), "why", "audit.not-authorised"),
        ((EVE, BOB), " ", "audit.no-reason"),
        ((EVE, BOB), "\u200b\ufeff", "audit.no-reason"),
        ((EVE, BOB), "x" * 1_001, "audit.no-reason"),
    ]
    for (actor, seconder), reason, code in refused:
        with pytest.raises(AuditError) as caught:
            contents.reveal(record, actor=actor, reason=reason, seconder=seconder)
        assert caught.value.code == code
    assert kinds(database, "reveal") == []

    contents.reveal(record, actor=EVE, reason="a complaint", seconder=BOB)

    (said,) = kinds(database, "reveal")
    assert (said["actor"], said["second"], said["reason"]) == ("eve", "bob", "a complaint")
    assert said["contents"] == [record]


@pytest.mark.spec("AUD-73")
def test_without_a_record_nothing_is_shown(database: Store, judge: Callable[..., str]) -> None:
    record = judge("hello")
    contents = database.contents()
    database.writer.close()

    for ask in (lambda: contents.reveal(record, actor=EVE, reason="x"), lambda: contents.lines(actor=EVE, reason="x")):
        with pytest.raises(StoreError):
            ask()


@pytest.mark.spec("AUD-74")
def test_content_that_was_changed_is_not_shown(database: Store, judge: Callable[..., str]) -> None:
    record = judge("hello")
    with database.engine.connect() as connection, connection.begin():
        connection.execute(update(CONTENTS).values(body=b"{}"))

    for ask in (
        lambda: database.contents().reveal(record, actor=EVE, reason="x"),
        lambda: list(database.contents().lines(actor=EVE, reason="x")()),
    ):
        with pytest.raises(AuditError) as caught:
            ask()
        assert caught.value.code == "content.changed"


@pytest.mark.spec("AUD-75")
def test_erasing_takes_bytes_and_salt_and_the_log_still_verifies(database: Store, judge: Callable[..., str]) -> None:
    gone = [judge("one", session="a"), judge("two", session="a")]
    stays = judge("three", session="b")
    other = judge("four", session="a", subject="bob")
    contents = database.contents()

    done = contents.erase(actor=EVE, reason="she asked", subject="ann", session="a")

    assert (done.erased, done.held) == (2, 0)
    assert [contents.has(record) for record in (*gone, stays, other)] == [False, False, True, True]
    with pytest.raises(AuditError) as caught:
        contents.reveal(gone[0], actor=EVE, reason="x")
    assert caught.value.code == "content.none"
    (said,) = kinds(database, "erasure")
    assert sorted(said["contents"]) == sorted(gone)
    assert said["records"] == []
    assert verify(StoreEvidence(database.engine)).holds


@pytest.mark.spec("AUD-75")
def test_what_was_erased_is_nowhere_in_the_files(tmp_path: Path, policies: Path) -> None:
    with Store.at(tmp_path / "s.db") as store:
        pipeline = Pipeline(policies=policies, config=Config(content="whole"), recorder=Recorder(store))
        for _ in range(20):
            pipeline.run(says("user", "xylophone-in-the-cellar"), Context(session="s"))
        before = [file for file in tmp_path.iterdir() if b"xylophone-in-the-cellar" in file.read_bytes()]

        store.contents().erase(actor=EVE, reason="x", session="s")

        assert before
        assert [file for file in tmp_path.iterdir() if b"xylophone-in-the-cellar" in file.read_bytes()] == []


@pytest.mark.spec("AUD-70")
async def test_content_that_takes_time_to_mask_is_kept_of_awaited_runs_too(database: Store, policies: Path) -> None:
    settings = Config(content="masked")
    pipeline = Pipeline(policies=policies, config=settings, recorder=Recorder(database))

    outcome = await pipeline.arun(says("user", "the key is AKIAIOSFODNN7EXAMPLE"), Context(session="s"))

    assert database.contents().has(outcome.decision.id)
    line = database.contents().reveal(outcome.decision.id, actor=EVE, reason="a complaint")
    assert b"AKIAIOSFODNN7EXAMPLE" not in line


@pytest.mark.spec("AUD-75")
def test_an_erasure_says_what_of(database: Store) -> None:
    contents = database.contents()

    with pytest.raises(AuditError) as caught:
        contents.erase(actor=EVE, reason="x")
    assert caught.value.code == "audit.too-wide"
    with pytest.raises(AuditError) as caught:
        contents.erase(actor=person("ann"), reason="x", subject="ann")
    assert caught.value.code == "audit.not-authorised"


@pytest.mark.spec("AUD-75")
def test_many_contents_go_in_several_records_and_by_age(database: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.store.contents.MAX_ERASED", 3)
    recorder = Recorder(database)
    for number in range(7):
        record = made_record()
        object.__setattr__(record, "content", Content.of(b"x"))
        object.__setattr__(record, "timestamp", NOW + timedelta(days=number))
        recorder.record(record)

    done = database.contents().erase(actor=EVE, reason="old", before=NOW + timedelta(days=5))

    assert done.erased == 5
    assert [len(said["contents"]) for said in kinds(database, "erasure")] == [3, 2]


@pytest.mark.spec("AUD-76")
@pytest.mark.parametrize(
    ("hold", "stays"),
    [
        ({}, {"ann a", "ann b", "bob a"}),
        ({"subject": "ann"}, {"ann a", "ann b"}),
        ({"session": "a"}, {"ann a", "bob a"}),
        ({"subject": "ann", "session": "a"}, {"ann a"}),
        ({"subject": "nobody"}, set()),
    ],
)
def test_a_hold_keeps_what_it_names_against_requests_and_age(
    database: Store, judge: Callable[..., str], hold: dict[str, str], stays: set[str]
) -> None:
    made = {
        f"{subject} {session}": judge("x", subject=subject, session=session, content_days=0.000_001)
        for subject, session in (("ann", "a"), ("ann", "b"), ("bob", "a"))
    }
    contents = database.contents()
    held = contents.hold(actor=EVE, reason="a case", **hold)
    later = int((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1_000_000)

    swept = Sweep(database).run(later)
    done = contents.erase(actor=EVE, reason="x", before=datetime.now(UTC) + timedelta(days=1))

    assert {name for name, record in made.items() if contents.has(record)} == stays
    assert {one.holder: one.erased for one in swept}["contents"] == 3 - len(stays)
    assert (done.erased, done.held) == (0, len(stays))
    contents.release(held.id, actor=EVE, reason="over")
    Sweep(database).run(later)
    assert not any(map(contents.has, made.values()))
    assert [said["action"] for said in kinds(database, "hold")] == ["hold", "release"]
    assert verify(StoreEvidence(database.engine)).holds


@pytest.mark.spec("AUD-76")
def test_a_hold_is_released_once_and_by_two_where_two_are_asked_for(database: Store) -> None:
    contents = database.contents(rules=ContentRules(four_eyes=True))
    held = contents.hold(actor=EVE, reason="a case", subject="ann")
    assert contents.holds() == (held,)

    with pytest.raises(AuditError) as caught:
        contents.release(held.id, actor=EVE, reason="over")
    assert caught.value.code == "audit.four-eyes"
    contents.release(held.id, actor=EVE, reason="over", seconder=BOB)
    with pytest.raises(AuditError) as caught:
        contents.release(held.id, actor=EVE, reason="over", seconder=BOB)
    assert caught.value.code == "hold.unknown"
    assert contents.holds() == ()


@pytest.mark.spec("AUD-77")
def test_unjudged_content_and_content_under_retention_none_is_left_out_with_the_reason(
    database: Store, policies: Path
) -> None:
    class Down(MemorySessions):
        def read(self, context: Context) -> Any:
            raise StoreError("down")

    kept = DataPolicy(retention=RetentionPolicy(policy="none"))
    config = Config(content="whole")
    record = Pipeline(policies=policies, config=config, recorder=Recorder(database)).run(
        Request(model="m", messages=used("db", {}, "rows", "c1")), Context(session="s", data={"db": kept})
    )
    outage = Pipeline(policies=policies, config=config, recorder=Recorder(database), sessions=Down()).run(
        says("user", "x"), Context(session="s")
    )

    assert body(database, record.decision.id)["content"] == {"left_out": "retention"}
    assert body(database, outage.decision.id)["content"] == {"left_out": "not-judged"}
    assert not database.contents().has(record.decision.id)


@pytest.mark.spec("REC-20")
def test_a_record_says_which_labels_came_and_which_model_was_asked(database: Store, policies: Path) -> None:
    pipeline = Pipeline(policies=policies, recorder=Recorder(database), sessions=database.sessions())
    context = Context(session="s", recorded={"route": "all"})

    first = pipeline.run(Request(model="ollama:gpt-x", messages=[says("user", "the salary")]), context)
    again = pipeline.run(Request(model="gpt-x", messages=[says("user", "my own words, to be sure")]), context)

    said, later = body(database, first.decision.id), body(database, again.decision.id)
    assert (said["labels_gained"], said["llm"]) == (["finance"], {"provider": "ollama", "model": "gpt-x"})
    assert said["host"] == {"route": "all"}
    assert later["llm"] == {"model": "gpt-x"}
    assert later["labels_gained"][0].startswith("sha256:")
    assert "own words" not in json.dumps(later)


@pytest.mark.spec("AUD-74")
@pytest.mark.parametrize(
    "bad",
    [
        None,
        b"",
        b"[]",
        b'["commitment"]',
        b'{"commitment"',
        b'{"commitment": "x", "content": 3}',
        b'{"content": {"commitment": 3}}',
    ],
)
def test_a_record_without_a_commitment_commits_to_nothing(bad: bytes | None) -> None:
    assert committed_in(bad) is None


def test_no_content_reaches_the_table_of_records(tmp_path: Path, policies: Path) -> None:
    with Store.at(tmp_path / "s.db") as store:
        Pipeline(policies=policies, config=Config(content="whole"), recorder=Recorder(store)).run(
            says("user", "xylophone"), Context(session="s")
        )
    with sqlite3.connect(tmp_path / "s.db") as connection:
        rows = connection.execute("SELECT * FROM records").fetchall()
    assert "xylophone" not in str(rows)


@pytest.mark.spec("AUD-73")
def test_what_is_erased_while_it_is_asked_for_is_not_there(
    database: Store, judge: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = database.contents()
    monkeypatch.setattr(type(contents), "has", lambda *_: True)

    with pytest.raises(AuditError) as caught:
        contents.reveal("dec_gone", actor=EVE, reason="x")
    assert caught.value.code == "content.none"


@pytest.mark.spec("AUD-71")
def test_many_lines_are_read_page_by_page(
    database: Store, judge: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.store.contents._PAGE_SIZE", 2)
    ids = [judge(f"number {number}") for number in range(4)]
    lines = database.contents().lines(actor=EVE, reason="x")

    for _ in range(2):
        assert [read_entry(line).id for line in lines()] == ids


def checked(store: Store, file: Path, *, some: bool = False) -> Report:
    """The report on a bundle of the store with contents: everything, or what ann asked."""
    ann = Selection("subject:ann", lambda leaf: leaf.row["subject"] == "id:ann")
    write_bundle(file, StoreEvidence(store.engine), selection=ann if some else None, contents=True)
    return verify_bundle(file)


def change(store: Store, statement: Any) -> None:
    with store.engine.connect() as connection, connection.begin():
        connection.execute(statement)


Spoil = Callable[[Store, str], None]


def another_text(store: Store, record: str) -> None:
    change(store, update(CONTENTS).where(CONTENTS.c.record == record).values(body=b"{}"))


def another_salt(store: Store, record: str) -> None:
    change(store, update(CONTENTS).where(CONTENTS.c.record == record).values(salt=bytes(32)))


def dropped(store: Store, record: str) -> None:
    change(store, delete(CONTENTS).where(CONTENTS.c.record == record))


def put_back(store: Store, record: str) -> None:
    with store.engine.connect() as connection:
        row = connection.execute(select(CONTENTS).where(CONTENTS.c.record == record)).mappings().one()
    store.contents().erase(actor=EVE, reason="she asked", session="a")
    change(store, insert(CONTENTS).values(**row))


@pytest.mark.spec("AUD-78")
@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (another_text, "content.changed"),
        (another_salt, "content.changed"),
        (dropped, "content.missing"),
        (put_back, "content.erased"),
    ],
)
def test_content_that_is_not_what_was_judged_is_found_and_its_record_named(
    database: Store, judge: Callable[..., str], tmp_path: Path, spoil: Spoil, code: str
) -> None:
    record = judge("one", session="a")
    judge("two", session="b")

    spoil(database, record)

    reports = [verify(StoreEvidence(database.engine)), checked(database, tmp_path / "whole.zip")]
    reports.append(checked(database, tmp_path / "some.zip", some=True))
    for report in reports:
        (problem,) = report.problems
        assert (problem.code, problem.record) == (code, record)
        assert problem.place is not None


@pytest.mark.spec("AUD-78")
def test_content_beside_a_record_that_commits_to_none_or_is_not_there_is_found(
    database: Store, judge: Callable[..., str], tmp_path: Path
) -> None:
    record = judge("one", mode="none")
    row = {"record": record, "subject": "id:ann", "at": 0, "salt": bytes(32), "body": b"{}"}
    change(database, insert(CONTENTS).values(**row))

    (problem,) = verify(StoreEvidence(database.engine)).problems

    assert (problem.code, problem.record) == ("content.changed", record)


@pytest.mark.spec("AUD-78")
def test_content_of_a_record_in_no_log_or_of_none_is_found(tmp_path: Path, policies: Path) -> None:
    file = tmp_path / "s.db"
    with Store.at(file) as store:
        pipeline = Pipeline(policies=policies, config=Config(content="whole"), recorder=Recorder(store))
        kept = [pipeline.run(says("user", "x"), Context(session="s")).decision.id for _ in range(2)]
    with sqlite3.connect(file) as connection:  # without the foreign keys, as somebody else would
        connection.execute("UPDATE contents SET record = 'dec_none' WHERE record = ?", (kept[0],))
        connection.execute("UPDATE records SET log = NULL WHERE id = ?", (kept[1],))
    connection.close()

    with Store.at(file) as store:
        problems = verify(StoreEvidence(store.engine)).problems

    assert {(one.code, one.record) for one in problems} >= {
        ("content.missing", kept[0]),
        ("content.stray", "dec_none"),
        ("content.stray", kept[1]),
        ("record.missing", None),
    }


@pytest.mark.spec("AUD-78")
def test_bytes_that_are_none_are_no_content(tmp_path: Path, policies: Path) -> None:
    file = tmp_path / "s.db"
    with Store.at(file) as store:
        pipeline = Pipeline(policies=policies, config=Config(content="whole"), recorder=Recorder(store))
        pipeline.run(says("user", "x"), Context(session="s"))
        change(store, update(CONTENTS).values(body=text("'text'")))
        (problem,) = verify(StoreEvidence(store.engine)).problems
    assert problem.code == "content.changed"


@pytest.mark.spec("AUD-78")
@pytest.mark.parametrize("some", [False, True])
def test_contents_go_with_a_bundle_only_when_asked_for_and_erased_ones_hold(
    database: Store, judge: Callable[..., str], tmp_path: Path, some: bool
) -> None:
    judge("a word that is nowhere else", session="a")
    judge("nor this one", session="b")
    database.contents().erase(actor=EVE, reason="she asked", session="b")
    without = tmp_path / "without.zip"
    write_bundle(without, StoreEvidence(database.engine))

    report = checked(database, tmp_path / "b.zip", some=some)

    assert report.holds, report.problems
    assert verify_bundle(without).holds  # what was left out is not missing
    with zipfile.ZipFile(tmp_path / "b.zip") as bundle, zipfile.ZipFile(without) as other:
        assert json.loads(bundle.read("manifest.json"))["contents"] is True
        lines = [json.loads(line) for line in bundle.read("records.jsonl").splitlines()]
        contents = [base64.b64decode(line["content"][1]) for line in lines if "content" in line]
        assert b"nowhere else" not in other.read("records.jsonl")
    assert [b"nowhere else" in content for content in contents] == [True]


@pytest.mark.spec("AUD-78")
def test_records_written_during_a_verification_are_no_gap(database: Store, judge: Callable[..., str]) -> None:
    judge("one", session="a")
    with StoreEvidence.at_one_moment(database.engine) as evidence:
        assert list(evidence.logs())
        judge("two", session="b")
        database.contents().erase(actor=EVE, reason="she asked", session="a")

        report = verify(evidence)

    assert report.holds, report.problems
    assert report.records == 2
