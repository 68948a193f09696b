"""Evidence in a file: whole or a selection, checked without the database, and damaged on purpose."""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from tests.pipeline.run_records import ANN, made_record

from cmf.json.codec import dumps
from pipeline.audit import bundle as bundles
from pipeline.audit import bundle_verification
from pipeline.audit.bundle import MANIFEST, Selection, open_bundle, write_bundle
from pipeline.audit.exporting import HeadFile, read_heads
from pipeline.audit.heads import Signer
from pipeline.decisions.context import Context
from pipeline.decisions.errors import AuditError
from pipeline.store.database import Store
from pipeline.store.evidence import StoreEvidence
from pipeline.store.full_check import check_bundle
from pipeline.store.recorder import Recorder

# Nobody signs these: what a signature is for, test_manifest.py shows.
verify_bundle = partial(bundle_verification.verify_bundle, unsigned=True)

RUNS = 400
ANNS = Selection("subject:ann", lambda leaf: leaf.row["subject"] == "id:ann")


class Exported:
    """A bundle of everything and one of a selection, with what they are checked against."""

    def __init__(self, folder: Path) -> None:
        self.whole, self.some, self.none = folder / "whole.zip", folder / "some.zip", folder / "none.zip"
        heads, key = folder / "heads.jsonl", folder / "audit.pem"
        for context in (ANN, Context()):
            with Store.at(folder / "s.sqlite3", key=key, heads=HeadFile(heads)) as store:
                for _ in range(20):
                    Recorder(store).record(made_record(context))
                    Recorder(store).record(made_record(Context()))
                evidence = StoreEvidence(store.engine)
                if context is not ANN:
                    self.counts = [
                        write_bundle(self.whole, evidence, policies={"r" * 64: b"tar"}, made_at=7),
                        write_bundle(self.some, evidence, selection=ANNS),
                        write_bundle(self.none, evidence, selection=Selection("nobody", lambda _: False)),
                    ]
        self.signer = Signer.at(key)
        self.heads, self.keys = read_heads(heads), [self.signer.public_key]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("exported"))


def altered(source: Path, target: Path, name: str, old: bytes, new: bytes) -> Path:
    """A copy of the bundle, in which the first of that part that `old` matches is `new`."""
    with zipfile.ZipFile(source) as bundle, zipfile.ZipFile(target, "w") as made:
        for part in bundle.namelist():
            content = bundle.read(part)
            changed = re.sub(old, new, content, count=1) if part == name else content
            assert part != name or changed != content
            made.writestr(part, changed)
    return target


@pytest.mark.proof
@pytest.mark.spec("AUD-51")
def test_a_flipped_byte_is_found_and_names_the_record(
    exported: Exported, tmp_path: Path, proof_seed: int, proof_scale: float, proof_row: Callable[..., None]
) -> None:
    chance = random.Random(proof_seed)
    runs, named = int(RUNS * proof_scale), 0
    damaged = tmp_path / "damaged.zip"
    for number in range(runs):
        source = chance.choice([exported.whole, exported.some])
        content = bytearray(source.read_bytes())
        with zipfile.ZipFile(source) as bundle:
            records = bundle.getinfo("records.jsonl")
            first = content.index(b"\n", records.header_offset)  # what is before may be the zip's own
        at = chance.randrange(first, records.header_offset + records.file_size)
        content[at] ^= 1 << chance.randrange(7)
        damaged.write_bytes(content)
        report = verify_bundle(damaged, exported=exported.heads, keys=exported.keys)
        assert not report.holds, number
        named += any(problem.code.startswith("record.") for problem in report.problems)
    assert named >= runs * 0.9  # the rest changed what no check reads: a name in the file, say
    proof_row("one byte of an exported bundle flipped", tried=runs, found=runs, record_named=named)


@pytest.mark.spec("AUD-51")
def test_a_part_that_was_changed_is_named(exported: Exported, tmp_path: Path) -> None:
    content = exported.whole.read_bytes().replace(
        b"Evidence of what was decided.", b"Evidence of what was destroyed"[:29]
    )
    damaged = tmp_path / "damaged.zip"
    damaged.write_bytes(content)
    (problem,) = verify_bundle(damaged).problems
    assert (problem.code, problem.message.split()[0]) == ("bundle.changed", "README.txt")


@pytest.mark.spec("AUD-51")
def test_a_line_that_holds_no_record_any_more_is_named(exported: Exported, tmp_path: Path) -> None:
    for whole in (exported.whole, exported.some):
        for old, new in ((rb'"place":', b'"plaice":'), (rb'"seq":', b'"seq":-'), (rb'"log":"[^"]*"', b'"log":["x"]')):
            damaged = altered(whole, tmp_path / "damaged.zip", "records.jsonl", old, new)

            assert "record.unreadable" in {problem.code for problem in verify_bundle(damaged).problems}


@pytest.mark.spec("AUD-51")
@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_what_is_no_bundle_is_refused(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "b.zip"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(AuditError) as refused:
        open_bundle(file)
    assert refused.value.path.startswith(str(file))


@pytest.mark.spec("AUD-51")
@pytest.mark.parametrize(
    ("part", "text"),
    [
        (MANIFEST, b'{"schema":2}'),
        (MANIFEST, b'{"schema":1}'),
        (MANIFEST, b"[]"),
    ],
)
def test_a_bundle_of_another_make_is_refused(tmp_path: Path, part: str, text: bytes) -> None:
    file = tmp_path / "b.zip"
    with zipfile.ZipFile(file, "w") as bundle:
        bundle.writestr(part, text)
    with pytest.raises(AuditError):
        open_bundle(file)


@pytest.mark.spec("AUD-51")
@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        (MANIFEST, rb'"files":{', b'"files":[],"was":{'),
        (MANIFEST, rb'"selection"', b'"selected"'),
        ("logs.jsonl", rb'"id":"[^"]*"', b'"id":["x"]'),
        ("logs.jsonl", rb'"key":"[^"]*"', b'"key":{}'),
        ("heads.jsonl", rb"\{", b"{{"),
    ],
)
def test_a_bundle_whose_own_parts_cannot_be_read_is_refused(
    exported: Exported, tmp_path: Path, part: str, old: bytes, new: bytes
) -> None:
    with pytest.raises(AuditError):
        open_bundle(altered(exported.whole, tmp_path / "b.zip", part, old, new))


@pytest.mark.spec("AUD-50")
def test_a_bundle_of_a_later_version_of_zip_is_refused(exported: Exported, tmp_path: Path) -> None:
    content = exported.whole.read_bytes()
    at = content.rindex(b"PK\x01\x02") + 6
    (tmp_path / "b.zip").write_bytes(content[:at] + b"\x6d" + content[at + 1 :])

    with pytest.raises(AuditError, match="not a bundle, or a damaged one"):
        check_bundle(tmp_path / "b.zip")


@pytest.mark.spec("AUD-50")
@pytest.mark.parametrize(
    "what", ["records SET subject = x'69643a616e6e'", "records SET body = '{}'", "heads SET leaves = 'x'"]
)
def test_what_no_record_or_head_is_made_of_ends_an_export_and_leaves_no_file(tmp_path: Path, what: str) -> None:
    with Store.at(tmp_path / "s.sqlite3") as store:
        Recorder(store).record(made_record(ANN))
        with store.engine.begin() as connection:
            connection.exec_driver_sql(f"UPDATE {what}")
        with pytest.raises(AuditError) as refused:
            write_bundle(tmp_path / "b.zip", StoreEvidence(store.engine))
    assert "cmf audit verify" in refused.value.hint
    assert not (tmp_path / "b.zip").exists()


@pytest.mark.spec("AUD-50")
def test_a_bundle_is_never_written_over_another_file(exported: Exported, tmp_path: Path) -> None:
    bundle = open_bundle(exported.whole)
    before = exported.whole.read_bytes()
    for file in (exported.whole, tmp_path / "missing" / "b.zip"):
        with pytest.raises(AuditError):
            write_bundle(file, bundle)
    assert exported.whole.read_bytes() == before


@pytest.mark.spec("AUD-50")
def test_a_whole_bundle_is_checked_as_the_database_is(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "_BLOCK", 1_000)  # as if it were large
    report = verify_bundle(exported.whole, exported=exported.heads, keys=exported.keys)
    assert report.holds, report.problems
    assert exported.counts == [82, 21, 0]
    assert [(log.records, log.unprotected) for log in report.logs] == [(41, 0), (41, 0)]
    with zipfile.ZipFile(exported.whole) as bundle:
        assert bundle.testzip() is None
        assert f"policies/{'r' * 64}.tar.gz" in bundle.namelist()
        assert f"keys/{exported.keys[0].id}.pem" in bundle.namelist()


def _in_front(content: bytes) -> bytes:
    return b"x" + content


def _behind(content: bytes) -> bytes:
    return content[:-2] + b"\x01\x00x"  # a comment of one byte


def _other_name(content: bytes) -> bytes:
    """The header of a part names another one than the directory does, as tools see it that read from the beginning."""
    return content.replace(b"records.jsonl", b"secords.jsonl", 1)


def _other_size(content: bytes) -> bytes:
    """The header of the first part has another size."""
    return content[:18] + b"\x07\x00\x00\x00" * 2 + content[26:]


def _compressed(content: bytes) -> bytes:
    return content[:8] + b"\x08\x00" + content[10:]


def _renamed(content: bytes) -> bytes:
    """The first part has a field from which Info-ZIP takes another name for it."""
    return content.replace(b"\x01\x00\x10\x00", b"up\x10\x00", 1)


def _renamed_in_the_directory(content: bytes) -> bytes:
    """The last part has such a field in the directory, as some libraries read it."""
    at, end = content.rindex(b"PK\x01\x02"), content.rindex(b"PK\x05\x06")
    size = (int.from_bytes(content[end + 12 : end + 16], "little") + 4).to_bytes(4, "little")
    entry = content[at : at + 30] + b"\x04\x00" + content[at + 32 : end] + b"up\x00\x00"
    return content[:at] + entry + content[end : end + 12] + size + content[end + 16 :]


def _link(content: bytes) -> bytes:
    """The directory says of the last part that it is a symbolic link."""
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 38] + b"\x00\x00\xff\xa1" + content[at + 42 :]


def _after_the_end(content: bytes) -> bytes:
    """Another bundle's parts stand behind the end, where some tools read on."""
    return content + content[: content.rindex(b"PK\x01\x02")]


def _noted(content: bytes) -> bytes:
    """The directory has a comment for the last part."""
    at, end = content.rindex(b"PK\x01\x02"), content.rindex(b"PK\x05\x06")
    size = (int.from_bytes(content[end + 12 : end + 16], "little") + 4).to_bytes(4, "little")
    entry = content[at : at + 32] + b"\x04\x00" + content[at + 34 : end] + b"true"
    return content[:at] + entry + content[end : end + 12] + size + content[end + 16 :]


def _counted(content: bytes) -> bytes:
    """The end says that there are fewer parts than the directory has."""
    end = content.rindex(b"PK\x05\x06")
    return content[: end + 8] + b"\x02\x00\x02\x00" + content[end + 12 :]


def _hidden(content: bytes) -> bytes:
    """A part stands between others, and the directory does not have it."""
    at, end = content.rindex(b"PK\x01\x02"), content.rindex(b"PK\x05\x06")
    count = (int.from_bytes(content[end + 10 : end + 12], "little") - 1).to_bytes(2, "little")
    size = (int.from_bytes(content[end + 12 : end + 16], "little") - end + at).to_bytes(4, "little")
    return content[:at] + content[end : end + 8] + count * 2 + size + content[end + 16 :]


@pytest.mark.spec("AUD-56")
@pytest.mark.parametrize(
    "change",
    [
        *(_in_front, _behind, _other_name, _other_size, _compressed, _link, _renamed, _renamed_in_the_directory),
        *(_after_the_end, _noted, _counted),
    ],
)
def test_a_bundle_of_which_other_tools_could_unpack_something_else_is_a_problem(
    exported: Exported, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "b.zip"
    file.write_bytes(change(exported.some.read_bytes()))

    problems = verify_bundle(file, exported=exported.heads, keys=exported.keys).problems

    assert problems
    assert {problem.code for problem in problems} == {"bundle.changed"}
    assert all(problem.message.endswith("so that other tools may unpack something else") for problem in problems)


@pytest.mark.spec("AUD-56")
def test_the_end_of_a_large_bundle_is_read_too(
    exported: Exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 3)
    file = tmp_path / "b.zip"
    with zipfile.ZipFile(exported.whole) as bundle, zipfile.ZipFile(file, "w") as made:
        for part in bundle.infolist():
            made.writestr(part, bundle.read(part))
    content = file.read_bytes()
    assert b"PK\x06\x06" in content

    assert verify_bundle(file, exported=exported.heads, keys=exported.keys).holds
    file.write_bytes(content + b"more")
    (problem,) = verify_bundle(file, exported=exported.heads, keys=exported.keys).problems
    assert problem.message.startswith("the end of the file: ")


@pytest.mark.spec("AUD-56")
def test_a_part_that_the_directory_does_not_have_is_a_problem(exported: Exported, tmp_path: Path) -> None:
    with zipfile.ZipFile(exported.some) as bundle, zipfile.ZipFile(tmp_path / "b.zip", "w") as made:
        for name in [*(name for name in bundle.namelist()), "index.html"]:
            made.writestr(name, bundle.read(name) if name != "index.html" else b"All is well.")
    (tmp_path / "b.zip").write_bytes(_hidden((tmp_path / "b.zip").read_bytes()))

    (problem,) = verify_bundle(tmp_path / "b.zip").problems

    assert problem.code == "bundle.changed"
    assert problem.message.startswith("the end of the file: ")


@pytest.mark.spec("AUD-52")
def test_each_record_of_a_selection_proves_that_it_is_in_its_log(exported: Exported, tmp_path: Path) -> None:
    report = verify_bundle(exported.some, exported=exported.heads, keys=exported.keys)
    assert report.holds, report.problems
    assert sorted(log.records for log in report.logs) == [0, 21]
    assert verify_bundle(exported.some).holds
    assert verify_bundle(exported.some, exported=[replace(exported.heads[0], log="log_of_another_store")]).holds
    assert verify_bundle(exported.none).records == 0

    other = [Signer.at(tmp_path / "other.pem").public_key]
    codes = {problem.code for problem in verify_bundle(exported.some, keys=other).problems}
    assert codes == {"head.signature", "record.changed"}


@pytest.mark.spec("AUD-52")
@pytest.mark.parametrize(("signed", "code"), [(True, "log.rewritten"), (False, "head.signature")])
def test_a_selection_of_a_log_that_was_rewritten_is_found_by_an_exported_head(
    exported: Exported, signed: bool, code: str
) -> None:
    others = [replace(head, root="0" * 64) for head in exported.heads]
    heads = [exported.signer.sign(head) for head in others] if signed else others
    assert {problem.code for problem in verify_bundle(exported.some, exported=heads).problems} == {code}


@pytest.mark.spec("AUD-40")
@pytest.mark.spec("AUD-52")
def test_bytes_that_are_gone_from_a_selection_need_an_erasure_too(tmp_path: Path) -> None:
    gone, kept = made_record(ANN), made_record(ANN)
    with Store.at(tmp_path / "s.sqlite3") as store:
        for record in (gone, kept):
            Recorder(store).record(record)
        with store.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE records SET body = NULL WHERE id = ?", (gone.id,))
        write_bundle(tmp_path / "unsaid.zip", StoreEvidence(store.engine), selection=ANNS)
        body = dumps({"schema": 1, "records": [gone.id]})
        Recorder(store).record(replace(made_record(Context()), id="ers_1", kind="erasure", body=body))
        write_bundle(tmp_path / "said.zip", StoreEvidence(store.engine), selection=ANNS)

    (problem,) = verify_bundle(tmp_path / "unsaid.zip").problems
    assert (problem.code, problem.record) == ("record.erased", gone.id)
    assert verify_bundle(tmp_path / "said.zip").holds


@pytest.mark.spec("AUD-50")
def test_a_bundle_in_a_path_that_cannot_exist_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with Store.at(tmp_path / "s.sqlite3") as store, pytest.raises(AuditError, match="Not a directory"):
        write_bundle(tmp_path / "file" / "b.zip", StoreEvidence(store.engine))


@pytest.mark.spec("AUD-54")
def test_a_selection_is_held_against_an_older_exported_head(tmp_path: Path) -> None:
    heads, some, bare = tmp_path / "heads", tmp_path / "some.zip", tmp_path / "bare.zip"
    with Store.at(tmp_path / "s.sqlite3", heads=HeadFile(heads)) as store:
        for _ in range(5):
            Recorder(store).record(made_record(ANN))
    old = read_heads(heads)[-1]
    with Store.at(tmp_path / "s.sqlite3") as store:
        signer = Signer.at(tmp_path / "s.sqlite3.key")
        evidence = StoreEvidence(store.engine)
        first = next(iter(evidence.heads(old.log))).head  # as if it had been exported then
        write_bundle(some, evidence, selection=ANNS, exported=[first])
        write_bundle(bare, evidence, selection=ANNS)

    report = verify_bundle(some, exported=[first])
    assert report.holds, report.problems
    assert [(log.records, log.unprotected) for log in report.logs] == [(6, 6 - first.size)]
    (without,) = verify_bundle(bare, exported=[first]).logs
    assert without.unprotected == without.records
    for root in ("0" * 64, "no root"):
        forged = signer.sign(replace(first, root=root))
        assert {problem.code for problem in verify_bundle(some, exported=[forged]).problems} == {"log.rewritten"}
        unsigned = replace(first, root=root)
        assert {problem.code for problem in verify_bundle(some, exported=[unsigned]).problems} == {"head.signature"}


@pytest.mark.spec("AUD-33")
@pytest.mark.spec("AUD-54")
def test_an_edited_head_is_found_in_a_selection_that_cannot_compare_it(tmp_path: Path) -> None:
    heads, bare = tmp_path / "heads", tmp_path / "bare.zip"
    with Store.at(tmp_path / "s.sqlite3", heads=HeadFile(heads)) as store:
        for _ in range(3):
            Recorder(store).record(made_record(ANN))
        write_bundle(bare, StoreEvidence(store.engine), selection=ANNS)
    newest = read_heads(heads)[-1]

    report = verify_bundle(bare, exported=[newest, replace(newest, size=1), replace(newest, log="log_other")])

    assert [(problem.code, problem.log) for problem in report.problems] == [("head.signature", newest.log)]


@pytest.mark.spec("AUD-51")
def test_a_part_that_is_gone_is_named(exported: Exported, tmp_path: Path) -> None:
    without = tmp_path / "without.zip"
    with zipfile.ZipFile(exported.some) as bundle, zipfile.ZipFile(without, "w") as left:
        for part in bundle.namelist():
            if part != "README.txt":
                left.writestr(zipfile.ZipInfo(part), bundle.read(part).removesuffix(b"\n"))  # and no last line break

    problems = verify_bundle(without).problems

    named = {problem.message.split()[0] for problem in problems}
    assert named >= {"README.txt", "heads.jsonl", "logs.jsonl", "records.jsonl"}
    assert {problem.code for problem in problems} == {"bundle.changed"}
