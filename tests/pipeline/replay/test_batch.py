"""Recorded traffic is judged the same from any file, on any number of cores, and no line ends a batch."""

from __future__ import annotations

import gzip
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from tests.pipeline.conftest import write_rules
from tests.pipeline.replaying import KEY, asks, judged, said

from cmf.json.codec import dumps, loads
from cmf.message.digests import content_digest
from cmf.message.message import Message
from pipeline import Context, Guard
from pipeline.decisions.errors import ConfigError, PolicyError, ReplayError
from pipeline.policy import policy_set
from pipeline.policy.policy_set import PolicySet
from pipeline.replay import batch
from pipeline.replay.batch import Judged, judge
from pipeline.replay.replay import WORTH_A_PROCESS

NO = 'deny contains {"code": "test.no", "reason": "No."} if contains(input.content, "no")'
ANN = 'deny contains {"code": "test.ann", "reason": "Not ann."} if input.extensions.security.subject.id == "ann"'


@pytest.fixture
def rules(tmp_path: Path) -> PolicySet:
    return policy_set.load(write_rules(tmp_path / "rules", {"deny": NO}, kinds="text"))


def parquet(path: Path, values: list[Any], column: str = "line") -> Path:
    pyarrow.parquet.write_table(pyarrow.table({column: values, "other": [0] * len(values)}), path)
    return path


def jsonl(path: Path, values: list[bytes]) -> Path:
    path.write_bytes(b"\n".join(values) + b"\n")
    return path


# -- what cannot be judged ---------------------------------------------------------------------------------------------


@pytest.mark.spec("BAT-2")
def test_a_line_that_says_nothing_gives_a_row_with_the_reason_and_no_content(tmp_path: Path, rules: PolicySet) -> None:
    whole = judged(asks("hello"), rules)
    staged = dumps({**whole.to_json(), "decision": {**whole.decision, "stages": ["own"]}})
    file = jsonl(tmp_path / "f.jsonl", [b"CONTENT", staged, dumps(whole.to_json())])

    broken, by_stages, fine = judge([file], rules)

    assert (broken.id, broken.verdict, broken.views) == ("", "", 0)
    assert broken.reason.endswith("[replay.invalid]")
    assert "CONTENT" not in broken.reason
    assert (by_stages.id, by_stages.verdict) == (whole.id, "")
    assert by_stages.reason.endswith("[replay.stages]")
    assert fine == Judged(id=whole.id, verdict="allow", action="forward", views=len(whole.decision["views"]))


@pytest.mark.spec("BAT-2")
def test_bare_traffic_of_another_shape_and_cells_that_are_no_text_are_rows_too(
    tmp_path: Path, rules: PolicySet
) -> None:
    file = parquet(tmp_path / "f.parquet", [dumps(said("yes")), None, b'{"role": "CONTENT"}'])

    fine, absent, wrong = judge([file], rules, holds="message")

    assert (fine.verdict, absent.verdict, wrong.verdict) == ("allow", "", "")
    assert absent.reason
    assert wrong.reason
    assert "CONTENT" not in wrong.reason


@pytest.mark.spec("BAT-2")
def test_a_reason_says_where_and_what_to_do(tmp_path: Path, rules: PolicySet) -> None:
    file = jsonl(tmp_path / "f.jsonl", [b'{"role": "user", "content": "hi"}'])

    assert [row.reason for row in judge([file], rules)] == [
        "not a line of a recorded input; `cmf eval --record` writes such lines; "
        "for bare traffic, set `holds` of the batch "
        "[replay.invalid]"
    ]
    assert [row.reason for row in judge([file], rules, holds="message")] == [
        "Message: this has to be a list at $.content [replay.invalid]"
    ]
    for wrong in ({"holds": "openai_chat"}, {"holds": "message", "context": {}}):
        with pytest.raises(ConfigError) as caught:
            list(judge([file], rules, **wrong))  # type: ignore[arg-type]
        assert caught.value.code == "config.word"


@pytest.mark.spec("BAT-6")
def test_a_file_that_is_not_whole_or_has_no_such_column_is_an_error(tmp_path: Path, rules: PolicySet) -> None:
    whole = parquet(tmp_path / "f.parquet", ["x"])
    (tmp_path / "cut.parquet").write_bytes(whole.read_bytes()[:50])

    for file, column, place in ((whole, "text", "text"), (tmp_path / "cut.parquet", "line", "cut.parquet")):
        with pytest.raises(ReplayError) as caught:
            list(judge([file], rules, column=column))
        assert caught.value.code == "replay.unreadable"
        assert place in caught.value.path
    with pytest.raises(ReplayError) as caught:
        list(judge([tmp_path / "absent.jsonl"], rules))
    assert caught.value.code == "replay.unreadable"


@pytest.mark.spec("BAT-6")
def test_an_extra_that_is_not_there_is_named(tmp_path: Path, rules: PolicySet, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet(tmp_path / "f.parquet", ["x"])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(ConfigError, match=r"cmf-pipeline\[batch\]") as caught:
        list(judge([file], rules))

    assert caught.value.code == "extra.missing"


def test_unusable_policies_are_refused_before_anything_is_judged(tmp_path: Path) -> None:
    with pytest.raises(PolicyError):
        list(judge([jsonl(tmp_path / "f.jsonl", [b"{}"])], tmp_path / "absent"))


# -- what is judged ----------------------------------------------------------------------------------------------------


@pytest.mark.spec("BAT-1")
def test_each_line_gives_what_a_guard_says_from_any_kind_of_file(tmp_path: Path, rules: PolicySet) -> None:
    entries = [dumps(judged(asks(text), rules).to_json()) for text in ("yes", "no", KEY)] + [b"{"]
    plain = jsonl(tmp_path / "plain.jsonl", entries)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    files = [plain, packed, parquet(tmp_path / "b.parquet", entries)]
    files.append(parquet(tmp_path / "t.parquet", [one.decode() for one in entries]))

    found = [list(judge([file], rules)) for file in files]

    assert found == [found[0]] * 4
    assert list(judge(files, rules)) == found[0] * 4
    assert list(judge(str(plain), rules)) == list(judge([str(plain)], rules)) == found[0]
    assert [row.id for row in found[0][:3]] == [loads(one)["id"] for one in entries[:3]]
    assert [row.verdict for row in found[0]] == ["allow", "deny", "allow", ""]
    assert found[0][1].rules == ("test/deny",)
    assert found[0][1].codes == ("test.no",)


@pytest.mark.spec("BAT-1")
@pytest.mark.slow
def test_two_cores_give_what_one_gives_in_the_same_order(tmp_path: Path, rules: PolicySet) -> None:
    count = 2 * WORTH_A_PROCESS + 7
    file = parquet(tmp_path / "f.parquet", [dumps(said(f"{'no' if at % 3 else 'yes'} {at}")) for at in range(count)])

    alone = list(judge([file], rules, holds="message", jobs=1))
    spread = list(judge([file], rules, holds="message", jobs=2))

    assert alone == spread
    assert len({row.id for row in alone}) == count
    assert sum(row.verdict == "deny" for row in alone) == sum(bool(at % 3) for at in range(count))


@pytest.mark.spec("BAT-3")
@pytest.mark.parametrize("who", ["ann", "bob"])
def test_bare_traffic_is_judged_in_the_context_that_is_named(tmp_path: Path, who: str) -> None:
    rules = policy_set.load(write_rules(tmp_path / "rules", {"deny": ANN}, kinds="text"))
    message = Message.model_validate(said("hello"))
    context = Context.model_validate({"subject": {"id": who}})

    (row,) = judge([jsonl(tmp_path / "f.jsonl", [dumps(said("hello"))])], rules, holds="message", context=context)

    with Guard(rules) as guard:
        decision = guard.run(message, context=context).decision
    assert (row.verdict, row.action) == (decision.verdict.value, decision.action.value)
    assert row.verdict == ("deny" if who == "ann" else "allow")
    assert row.id == content_digest(message)


@pytest.mark.spec("BAT-3", "EXC-2")
@pytest.mark.parametrize(
    ("until", "moment", "action"),
    [
        ("2026-06-30", datetime(2026, 7, 1, tzinfo=UTC), "refuse"),
        ("2026-06-30", datetime(2026, 6, 30, 23, 59, tzinfo=UTC), "forward"),
        ("2026-06-30", datetime(2026, 7, 1, 0, 30, tzinfo=timezone(timedelta(hours=2))), "forward"),
        ("2999-12-31", None, "forward"),
        ("2001-12-31", None, "refuse"),
    ],
)
def test_exceptions_hold_for_bare_traffic_as_of_the_moment_of_the_batch(
    tmp_path: Path, until: str, moment: datetime | None, action: str
) -> None:
    home = write_rules(tmp_path / "rules", {"deny": ANN}, kinds="text")
    known = {"rule": "test/deny", "subject": "ann", "until": until, "owner": "rita", "reason": "agreed"}
    (home / "cmf" / "data.json").write_bytes(dumps({"exceptions": [known]}))
    file = jsonl(tmp_path / "f.jsonl", [dumps(said("hello"))])
    context = Context.model_validate({"subject": {"id": "ann"}})

    (row,) = judge([file], policy_set.load(home), holds="message", context=context, moment=moment)

    assert (row.verdict, row.action) == ("deny", action)


@pytest.mark.spec("BAT-3")
@pytest.mark.parametrize("moment", [datetime(2026, 7, 1), "2026-07-01"])  # noqa: DTZ001 - that it has no zone is the point
def test_a_moment_without_a_zone_is_refused(tmp_path: Path, rules: PolicySet, moment: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        list(judge([], rules, moment=moment))

    assert (caught.value.code, caught.value.path) == ("config.word", "moment")


@pytest.mark.spec("BAT-1")
def test_rows_are_kept_as_parquet_and_as_lines_with_all_their_fields(tmp_path: Path) -> None:
    rows = [Judged(id="a", verdict="deny", action="refuse", rules=("r",), codes=("c",), views=2), Judged(reason="x")]

    pyarrow.parquet.write_table(batch.table(rows), tmp_path / "rows.parquet")
    batch.write_lines(tmp_path / "rows.jsonl", rows)

    kept = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    assert kept.to_pylist() == [batch.to_json(row) for row in rows]
    assert kept.schema == batch.table([]).schema
    assert [loads(line) for line in (tmp_path / "rows.jsonl").read_bytes().splitlines()] == kept.to_pylist()
