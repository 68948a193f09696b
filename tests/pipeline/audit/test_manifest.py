"""What somebody who holds a bundle could do to it, and whether who checks it is told."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.run_records import ANN, NOON, made_record

from cmf.json.codec import dumps, loads
from pipeline.audit.bundle import MANIFEST, Selection, sealed_manifest, write_bundle
from pipeline.audit.bundle_verification import verify_bundle
from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.heads import Signer
from pipeline.audit.record import act_of
from pipeline.decisions.context import Context
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.recorder import Recorder

Parts = dict[str, bytes]
Attack = Callable[[Parts, dict[str, Any]], None]
ASKED = "subject:ann since:30d"


class Taken:
    """Bundles of one store: everything, and what one query finds with what was said of it; signed and not."""

    def __init__(self, folder: Path) -> None:
        heads, key = folder / "heads.jsonl", folder / "audit.pem"
        with Store.at(folder / "s.sqlite3", key=key, heads=HeadFile(heads)) as store:
            for context in (ANN, Context(), ANN):
                Recorder(store).record(made_record(context))
            said = {"by": {"id": "rita"}, "disposition": "incident"}
            Recorder(store).record(act_of("review", "review", "review", said, NOON, subject="rita"))
            self.signer = store.signer()
            evidence = StoreEvidence(store.engine)
            asked = Selection(ASKED, lambda leaf: leaf.row["subject"] != "anonymous")
            for name, selection in (("whole", None), ("some", asked)):
                for signer in (self.signer, None):
                    file = folder / f"{name}-{'signed' if signer else 'unsigned'}.zip"
                    policies = {"r" * 64: b"tar"}
                    write_bundle(file, evidence, selection=selection, policies=policies, made_at=7, signer=signer)
        self.folder, self.keys, self.heads = folder, [self.signer.public_key], read_heads(heads)


@pytest.fixture(scope="module")
def taken(tmp_path_factory: pytest.TempPathFactory) -> Taken:
    return Taken(tmp_path_factory.mktemp("taken"))


def attacked(source: Path, target: Path, attack: Attack) -> Path:
    """A copy that was changed by somebody who knows how bundles are made, and has no key."""
    with zipfile.ZipFile(source) as bundle:
        parts = {name: bundle.read(name) for name in bundle.namelist()}
    said = loads(parts.pop(MANIFEST))
    attack(parts, said)
    said["files"] = {name: hashlib.sha256(held).hexdigest() for name, held in parts.items()}
    said["records"] = parts["records.jsonl"].count(b"\n")
    with zipfile.ZipFile(target, "w") as made:
        for name, held in {**parts, MANIFEST: dumps(said)}.items():
            made.writestr(zipfile.ZipInfo(name), held)
    return target


def nothing(parts: Parts, said: dict[str, Any]) -> None:
    """Put together anew, it is what it was."""


def no_policies(parts: Parts, said: dict[str, Any]) -> None:
    del parts[f"policies/{'r' * 64}.tar.gz"]


def no_how_to(parts: Parts, said: dict[str, Any]) -> None:
    parts["README.txt"] = b"All of this was found to hold: no need to check it."


def another_question(parts: Parts, said: dict[str, Any]) -> None:
    said["selection"] = "subject:ann"


def another_day(parts: Parts, said: dict[str, Any]) -> None:
    said["made_at"] += 86_400_000_000


def no_review(parts: Parts, said: dict[str, Any]) -> None:
    parts["records.jsonl"] = lines(parts, "records.jsonl", lambda line: line["kind"] != "review")


def no_records(parts: Parts, said: dict[str, Any]) -> None:
    parts["records.jsonl"] = lines(parts, "records.jsonl", lambda line: line["place"] == 0)


def no_logs(parts: Parts, said: dict[str, Any]) -> None:
    for name in ("records.jsonl", "heads.jsonl", "logs.jsonl"):
        parts[name] = b""


def no_end(parts: Parts, said: dict[str, Any]) -> None:
    """The newest commit of a log is cut off, with its head."""
    (*_, last) = (loads(line) for line in parts["heads.jsonl"].splitlines())
    parts["heads.jsonl"] = lines(parts, "heads.jsonl", lambda line: line["size"] != last["size"])
    parts["records.jsonl"] = lines(parts, "records.jsonl", lambda line: line["place"] < last["first"])


def lines(parts: Parts, name: str, kept: Callable[[Any], bool]) -> bytes:
    every: Iterator[bytes] = iter(parts[name].splitlines(keepends=True))
    return b"".join(line for line in every if kept(loads(line)))


ATTACKS = [
    ("whole", no_policies), ("whole", no_how_to), ("whole", another_day), ("whole", no_end),
    ("some", no_policies), ("some", another_question), ("some", no_review), ("some", no_records),
]  # fmt: skip


@pytest.mark.spec("AUD-55")
@pytest.mark.parametrize(("which", "attack"), ATTACKS)
def test_omissions_and_changes_break_the_signature_of_the_manifest(
    taken: Taken, tmp_path: Path, which: str, attack: Attack
) -> None:
    file = attacked(taken.folder / f"{which}-signed.zip", tmp_path / "b.zip", attack)

    for keys in (taken.keys, None):
        report = verify_bundle(file, keys=keys)
        assert [problem.code for problem in report.problems] == ["bundle.signature"]
        assert report.manifest is not None
        assert report.manifest.signed_by is None


@pytest.mark.spec("AUD-55")
@pytest.mark.parametrize(("which", "attack"), [*ATTACKS, ("whole", nothing), ("some", nothing)])
def test_a_bundle_without_a_signature_fails_unless_it_is_known_to_have_had_none(
    taken: Taken, tmp_path: Path, which: str, attack: Attack
) -> None:
    """As one is whose signature was taken out, and one that was exported without the key."""

    def stripped(parts: Parts, said: dict[str, Any]) -> None:
        attack(parts, said)
        del said["key"], said["signature"]

    for name, how in (("unsigned", attack), ("signed", stripped)):
        file = attacked(taken.folder / f"{which}-{name}.zip", tmp_path / name, how)
        for keys in (taken.keys, None):
            assert [one.code for one in verify_bundle(file, keys=keys).problems] == ["bundle.unsigned"]
        report = verify_bundle(file, keys=taken.keys, unsigned=True)
        assert report.holds, report.problems
        assert report.manifest is not None
        assert report.manifest.signed_by is report.to_json()["manifest"]["signed_by"] is None


@pytest.mark.spec("AUD-55")
@pytest.mark.parametrize(("which", "selection", "records"), [("whole", None, 5), ("some", ASKED, 4)])
def test_an_untouched_bundle_names_its_signer_and_its_query(
    taken: Taken, tmp_path: Path, which: str, selection: str | None, records: int
) -> None:
    signed = taken.folder / f"{which}-signed.zip"
    for file in (signed, attacked(signed, tmp_path / "b.zip", nothing)):
        for keys in (taken.keys, None):
            report = verify_bundle(file, keys=keys, exported=taken.heads)
            assert report.holds, report.problems
            assert report.manifest == (selection, records, 7, taken.keys[0].id)


@pytest.mark.spec("AUD-55")
@pytest.mark.parametrize("keyed", [True, False])
def test_only_a_key_that_counts_signs_a_manifest(taken: Taken, tmp_path: Path, keyed: bool) -> None:
    other = Signer.at(tmp_path / "other.pem")

    def signed_anew(parts: Parts, said: dict[str, Any]) -> None:
        no_review(parts, said)
        parts[f"keys/{other.public_key.id}.pem"] = other.public_key.pem.encode()
        said["files"] = {name: hashlib.sha256(held).hexdigest() for name, held in parts.items()}
        said["records"] -= 1
        del said["key"], said["signature"]
        said |= sealed_manifest(dict(said), other)

    file = attacked(taken.folder / "some-signed.zip", tmp_path / "b.zip", signed_anew)

    (problem,) = verify_bundle(file, keys=taken.keys if keyed else None).problems
    assert (problem.code, problem.message) == ("bundle.signature", "the manifest is not signed by a trusted key")


@pytest.mark.spec("AUD-55")
@pytest.mark.parametrize("signature", [None, 7, "", "é", "AAAA", {}])
def test_what_is_no_signature_is_none(taken: Taken, tmp_path: Path, signature: object) -> None:
    def other(parts: Parts, said: dict[str, Any]) -> None:
        said["signature"] = signature

    file = attacked(taken.folder / "some-signed.zip", tmp_path / "b.zip", other)

    assert [one.code for one in verify_bundle(file, keys=taken.keys).problems] == ["bundle.signature"]


@pytest.mark.spec("AUD-55")
def test_a_bundle_of_nothing_has_a_manifest_that_no_key_of_its_own_signs(taken: Taken, tmp_path: Path) -> None:
    file = attacked(taken.folder / "whole-signed.zip", tmp_path / "b.zip", no_logs)

    assert "bundle.signature" in {one.code for one in verify_bundle(file).problems}


@pytest.mark.spec("AUD-55")
def test_an_empty_unsigned_bundle_fails_where_a_key_is_given(taken: Taken, tmp_path: Path) -> None:
    """A store without records has no key that could sign; but anything can be made into one."""

    def nothing_left(parts: Parts, said: dict[str, Any]) -> None:
        no_logs(parts, said)
        del said["key"], said["signature"]

    file = attacked(taken.folder / "whole-signed.zip", tmp_path / "b.zip", nothing_left)

    assert verify_bundle(file).records == 0
    assert verify_bundle(file).holds
    assert [one.code for one in verify_bundle(file, keys=taken.keys).problems] == ["bundle.unsigned"]


@pytest.mark.spec("AUD-51")
def test_more_or_fewer_lines_than_the_manifest_speaks_of_are_found(taken: Taken, tmp_path: Path) -> None:
    target = tmp_path / "b.zip"
    with zipfile.ZipFile(taken.folder / "some-unsigned.zip") as bundle, zipfile.ZipFile(target, "w") as made:
        for name in bundle.namelist():
            held = bundle.read(name)
            said = loads(held) if name == MANIFEST else {}
            made.writestr(zipfile.ZipInfo(name), dumps(said | {"records": 9}) if said else held)

    (problem,) = verify_bundle(target, unsigned=True).problems
    assert (problem.code, problem.message) == (
        "bundle.changed",
        "records.jsonl has 4 lines, but the manifest lists 9",
    )
