"""The log that the writer keeps: places, heads, restarts, and a commit of which nobody knows."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from sqlalchemy import delete, event, select
from sqlalchemy.exc import OperationalError
from tests.pipeline.new_store import migrated
from tests.pipeline.run_records import made_record

from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.heads import Head, PublicKey, Signer
from pipeline.audit.verification import verify
from pipeline.decisions.errors import ConfigError, StoreError
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder
from pipeline.store.tables import HEADS, LOGS

NO_HEAD = '{"log":"a","size":"1","root":"","first":0,"batch":"","at":0,"key":"","signature":""}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.at(migrated(tmp_path / "s.sqlite3")) as store:
        yield store


def codes(store: Store, **given: Any) -> set[str]:
    return {problem.code for problem in verify(StoreEvidence(store.engine), **given).problems}


@pytest.mark.spec("AUD-10")
def test_without_a_usable_key_nothing_is_kept(tmp_path: Path) -> None:
    key = tmp_path / "audit.pem"
    key.write_text("no key")
    with Store.at(tmp_path / "s.sqlite3", key=key) as store:
        with pytest.raises(StoreError):
            Recorder(store).record(made_record())
        with pytest.raises(ConfigError, match="not an unencrypted private key in PEM") as refused:
            Signer.at(key)
    assert refused.value.path == str(key)
    with pytest.raises(ConfigError, match="cannot be read or created: Not a directory"):
        Signer.at(key / "other.pem")


@pytest.mark.spec("AUD-10")
def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    file = tmp_path / "audit.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    with pytest.raises(ConfigError):
        Signer.at(file)
    for text in (public, "no key"):
        with pytest.raises(ValueError, match="not an Ed25519 public key"):
            PublicKey.of(text)


@pytest.mark.spec("AUD-10")
def test_a_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "audit.pem"
    first = Signer.at(file)
    assert Signer.at(file).public_key.id == first.public_key.id
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["audit.pem"]


@pytest.mark.spec("AUD-3")
@pytest.mark.spec("AUD-11")
def test_each_record_has_its_place_and_each_commit_a_head_over_it(store: Store) -> None:
    recorder = Recorder(store)
    for _ in range(5):
        recorder.record(made_record())

    report = verify(StoreEvidence(store.engine))

    assert report.holds
    assert [(log.records, log.heads) for log in report.logs] == [(6, 5)]  # the log's own opening is a record too
    assert report.logs[0].unprotected == 6
    assert not report.anchored


@pytest.mark.spec("AUD-4")
def test_a_log_notes_how_far_the_others_had_come_so_that_none_can_vanish(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    for _ in range(3):
        with Store.at(file) as store:
            Recorder(store).record(made_record())
    with Store.at(file) as store:
        whole = verify(StoreEvidence(store.engine))
        assert whole.holds
        assert len(whole.logs) == 3
        first = whole.logs[0].log
        with store.engine.begin() as connection:
            connection.execute(delete(HEADS).where(HEADS.c.log == first))
            connection.execute(delete(LOGS).where(LOGS.c.id == first))
            connection.exec_driver_sql("DELETE FROM records WHERE log = ?", (first,))
        assert [problem.code for problem in verify(StoreEvidence(store.engine)).problems] == ["log.missing"]


@pytest.mark.spec("AUD-5")
@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("done", [True, False])
def test_a_commit_whose_answer_was_lost_is_detected(store: Store, done: bool, between: bool) -> None:
    recorder = Recorder(store)
    recorder.record(made_record())

    def fail(connection: Any) -> None:
        if done:
            connection.connection.commit()  # the database has it, and then the answer is lost
        raise OperationalError("", {}, Exception())

    event.listen(store.engine, "commit", fail)
    with pytest.raises(StoreError):
        recorder.record(made_record())
    event.remove(store.engine, "commit", fail)
    if between:  # a change that puts nothing on record, as one of a session, says nothing of the records before it
        store.writer.call(lambda _: None).result(5)
    recorder.record(made_record())

    report = verify(StoreEvidence(store.engine))
    assert report.holds
    assert [log.records for log in report.logs] == [4 if done else 3]


@pytest.mark.spec("AUD-5")
def test_a_log_that_was_changed_from_outside_is_not_continued(store: Store) -> None:
    recorder = Recorder(store)
    recorder.record(made_record())

    def fail(_: object) -> None:
        raise OperationalError("", {}, Exception())

    event.listen(store.engine, "commit", fail)
    with pytest.raises(StoreError):
        recorder.record(made_record())
    event.remove(store.engine, "commit", fail)
    with store.engine.begin() as connection:
        connection.execute(delete(HEADS))

    recorder.record(made_record())

    with store.engine.connect() as connection:
        assert len(connection.execute(select(LOGS)).all()) == 2
    assert "record.inserted" in codes(store)


@pytest.mark.spec("AUD-20")
def test_heads_are_exported_and_vouch_for_what_they_cover(tmp_path: Path) -> None:
    exported = tmp_path / "elsewhere" / "heads.jsonl"
    exported.parent.mkdir()
    with Store.at(tmp_path / "s.sqlite3", heads=HeadFile(exported)) as store:
        for _ in range(3):
            Recorder(store).record(made_record())
    with Store.at(tmp_path / "s.sqlite3") as store:
        Recorder(store).record(made_record())
        report = verify(StoreEvidence(store.engine), exported=read_heads(exported))
    assert report.holds
    assert report.anchored
    assert [(log.records, log.unprotected) for log in report.logs] == [(4, 0), (2, 2)]


@pytest.mark.spec("AUD-20")
def test_heads_that_could_not_be_exported_come_again(tmp_path: Path) -> None:
    exported = tmp_path / "missing" / "heads.jsonl"
    with Store(f"sqlite:///{tmp_path / 's.sqlite3'}", heads=HeadFile(exported), heads_seconds=0.01) as store:
        Recorder(store).record(made_record())
        exporter = store.exporter
        assert exporter is not None
        while not exporter.failures:
            pass
        exported.parent.mkdir()
    assert [head.size for head in read_heads(exported)] == [2]


@pytest.mark.spec("AUD-20")
@pytest.mark.parametrize("line", ["", "{", "[]", '{"log":"a"}', '{"log":"a"|', NO_HEAD, None])
def test_a_file_that_holds_no_heads_is_refused_with_its_line(tmp_path: Path, line: str | None) -> None:
    file = tmp_path / "heads.jsonl"
    if line is not None:
        file.write_text(line + "\n")
    with pytest.raises(ConfigError) as refused:
        read_heads(file)
    assert refused.value.path.startswith(str(file))


@pytest.mark.spec("AUD-20")
def test_an_interrupted_export_spoils_no_line_but_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a full disk interrupts it, at whichever byte."""
    exported = tmp_path / "heads.jsonl"
    head = Signer.at(tmp_path / "audit.pem").sign(
        Head(log="log_1", size=1, root="0" * 64, first=0, batch="0" * 64, at=0, key="")
    )
    HeadFile(exported).put([head])
    line = exported.read_bytes()
    for cut in range(1, len(line) - 1):
        exported.write_bytes(line + line[:cut])

        HeadFile(exported).put([head])

        assert read_heads(exported) == [head, head]
        assert caplog.messages.pop() == f"{exported}:2: an incomplete line was left out: its write was interrupted"


@pytest.mark.spec("AUD-31")
def test_a_signature_has_one_spelling(tmp_path: Path) -> None:
    signer = Signer.at(tmp_path / "audit.pem")
    head = signer.sign(Head(log="log_1", size=1, root="0" * 64, first=0, batch="0" * 64, at=0, key=""))
    other = head.signature[:-3] + {"A": "B", "Q": "R", "g": "h", "w": "x"}[head.signature[-3]] + "=="
    assert base64.b64decode(other) == base64.b64decode(head.signature)
    assert signer.public_key.signed(head)
    assert not signer.public_key.signed(replace(head, signature=other))


@pytest.mark.spec("AUD-31")
@pytest.mark.parametrize("held", [{"signature": b"AAAA"}, {"signature": 7}, {"root": b"0"}])
def test_what_a_database_holds_in_place_of_a_text_is_not_signed(tmp_path: Path, held: dict[str, Any]) -> None:
    signer = Signer.at(tmp_path / "audit.pem")
    head = signer.sign(Head(log="log_1", size=1, root="0" * 64, first=0, batch="0" * 64, at=0, key=""))
    assert not signer.public_key.signed(replace(head, **held))
