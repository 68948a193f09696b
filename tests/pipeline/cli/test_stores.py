"""`cmf eval --diff` and `--record`, `cmf impact`, `cmf case`, `cmf bench`."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from tests.pipeline.conftest import write_rules
from tests.pipeline.replaying import KEY, asks, judged, said
from typer.testing import CliRunner, Result

from cmf.json.codec import dumps
from pipeline.cli.app import app
from pipeline.cli.policy_places import Places
from pipeline.decisions.decision import Effect, Hit
from pipeline.policy import policy_set
from pipeline.run.recorded_input import append, lines, read_entry

CMF = str(Path(sys.executable).with_name("cmf"))
NO = 'deny contains {"code": "test.no", "reason": "No."} if contains(input.content, "no")'
MASK = 'redact contains {"code": "m", "reason": "Masked.", "spans": [[0, 6]]} if contains(input.content, "secret")'
ASK = 'require_approval contains {"code": "test.ask", "reason": "Ask."} if contains(input.content, "ask")'
RULES = {"deny": NO, "mask": MASK, "ask": ASK}


def cmf(*arguments: object, body: Any = None) -> Result:
    given = None if body is None else json.dumps(body)
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)


def rules(folder: Path, bodies: Mapping[str, str] = RULES) -> Path:
    return write_rules(folder, bodies, kinds="text")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return rules(tmp_path / "old")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """`no` is let through, `hello` is not, and what is masked is masked further."""
    hello = 'deny contains {"code": "h", "reason": "x"} if input.content == "hello"'
    return rules(tmp_path / "new", {"mask": MASK.replace("6", "7"), "ask": ASK, "greeting": hello})


@pytest.fixture
def records(tmp_path: Path, old: Path) -> Path:
    """What the old rules said of five inputs of two subjects."""
    loaded = policy_set.load(old)
    for at, text in enumerate(("hello", "no", "secret plan", "ask", "other")):
        context = {"subject": {"id": "bob"}} if at % 2 else None
        append(tmp_path / "records.jsonl", judged(asks(text), loaded, context=context))
    return tmp_path / "records.jsonl"


# -- eval --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-50")
def test_a_hit_is_shown_with_its_place_and_a_view_without_one_says_so(old: Path) -> None:
    body = {"messages": [said("no"), said("fine")]}

    result = cmf("eval", "-", "--from", "canonical", "--policies", old, body=body)

    place = old / "cmf" / "rules" / "test" / "deny" / "deny.rego"
    line = next(at for at, text in enumerate(place.read_text().splitlines(), 1) if text.startswith("deny contains"))
    assert f"test/deny  {place}:{line}  No. [test.no]" in result.stdout
    assert "messages[1].content[0]  text  send  pre  no rule hit" in result.stdout


@pytest.mark.spec("CLI-50")
def test_an_undefined_answer_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "own.rego").write_text("package own\n\nallow if input.content == `never`\n", encoding="utf-8")

    result = cmf(
        "eval", "-", "--from", "canonical", "--policies", tmp_path, "--entrypoint", "data.own.allow", body=said("x")
    )

    assert result.exit_code != 0
    assert "undefined" in result.stdout.lower()


@pytest.mark.spec("CLI-50")
def test_of_several_definitions_that_one_is_named_which_has_the_code(tmp_path: Path) -> None:
    two = f"{NO}\n\n" + NO.replace("test.no", "test.other") + "\n\nhelper contains 1 if true"
    folder = rules(tmp_path, {"deny": two})
    loaded = policy_set.load(folder)
    text = (folder / "cmf/rules/test/deny/deny.rego").read_text().splitlines()
    places = Places(loaded, [folder])

    def line(code: str, effect: Effect = Effect.DENY, rule: str = "test/deny") -> str:
        return places.of(Hit(rule=rule, code=code, effect=effect, reason="")).rpartition(":")[2]

    assert "test.no" in text[int(line("test.no")) - 1]
    assert "test.other" in text[int(line("test.other")) - 1]
    assert text[int(line("made.up", Effect.WARN)) - 1].startswith("package")
    assert line("x", rule="engine") == ""


@pytest.mark.spec("CLI-50")
def test_a_diff_shows_what_changed_in_the_message_and_on_the_wire(old: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "secret plan"}]}

    result = cmf("eval", "-", "--from", "openai_chat", "--policies", old, "--diff", body=body)
    plain = cmf("eval", "-", "--from", "canonical", "--policies", old, "--diff", body=said("fine"))
    denied = cmf("eval", "-", "--from", "canonical", "--policies", old, "--diff", body=said("no"))

    assert '-          "text": "secret plan"\n+          "text": "[MASKED] plan"' in result.stdout
    assert '-      "content": "secret plan"\n+      "content": "[MASKED] plan"' in result.stdout
    assert "--- message as it came\n+++ message as it goes out" in result.stdout
    assert "--- openai_chat as it came" in result.stdout
    assert "\x1b" not in result.stdout
    assert "message: no changes" in plain.stdout
    assert (denied.exit_code, "as it came" in denied.stdout, "nothing goes out" in denied.stdout) == (1, False, True)


@pytest.mark.spec("CLI-51")
def test_a_record_that_cannot_be_written_is_one_line(tmp_path: Path, old: Path) -> None:
    result = cmf(
        "eval", "-", "--from", "canonical", "--policies", old, "--record", tmp_path / "no" / "r", body=said("x")
    )

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (4, "", 1)


@pytest.mark.spec("CLI-51")
def test_a_record_holds_the_input_and_what_was_known(tmp_path: Path, old: Path) -> None:
    target = tmp_path / "r.jsonl.gz"
    options = ("--from", "canonical", "--policies", old, "--record", target)
    cmf("eval", "-", *options, "--subject", "ann", "--session", "s1", body=said(f"no {KEY}"))
    cmf("eval", "-", *options, "--without-secrets", body=said(f"no {KEY}"))

    plain, masked = map(read_entry, lines(target))

    assert plain.subject == "ann"
    assert plain.context.session == "s1"
    assert plain.decision["verdict"] == "deny"
    assert KEY.encode() in dumps(plain.to_json())
    assert masked.masked
    assert KEY.encode() not in dumps(masked.to_json())


# -- impact ------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-52")
def test_bad_usage_is_one_line_each(tmp_path: Path, old: Path, records: Path) -> None:
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.rego").write_text("package a\nx :=", encoding="utf-8")
    given = ("impact", "--records", records)

    refusals = [
        (2, cmf("impact", "--base", old, "--head", old, "--records", tmp_path / "empty.jsonl")),
        (4, cmf("impact", "--base", old, "--head", old, "--records", tmp_path / "none.jsonl")),
        (3, cmf(*given, "--base", old, "--head", tmp_path / "bad")),
        (2, cmf(*given, "--base", "git:main", "--head", "git:main")),
        (2, cmf(*given, "--base", "git:main", "--head", old)),
        (2, cmf(*given, "--base", "git:main", "--head", tmp_path / "none")),
    ]

    for code, result in refusals:
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1), result.stderr


@pytest.mark.spec("CLI-52")
def test_a_change_is_counted_by_kind_rule_and_subject(old: Path, new: Path, records: Path) -> None:
    ids = [read_entry(line).id for line in lines(records)]
    with records.open("ab") as stream:
        stream.write(b"CONTENT\n")

    document = json.loads(cmf("impact", "--base", old, "--head", new, "--records", records, "--format", "json").stdout)

    assert (document["entries"], document["records"]) == (6, 6)
    assert document["newly_denied"] == {
        "count": 1,
        "rules": {"test/greeting": 1},
        "subjects": {"anonymous": 1},
        "ids": [ids[0]],
    }
    assert document["newly_allowed"] == {
        "count": 1,
        "rules": {"test/deny": 1},
        "subjects": {"bob": 1},
        "ids": [ids[1]],
    }
    assert document["changed_effect"]["ids"] == [ids[2]]
    assert document["changed_effect"]["rules"] == {"test/mask": 1}
    assert document["unchanged"] == {"count": 2}
    assert document["not_replayable"]["count"] == 1
    assert "CONTENT" not in json.dumps(document)


@pytest.mark.spec("CLI-52")
def test_more_newly_denied_than_may_be_ends_with_1_in_every_format(old: Path, new: Path, records: Path) -> None:
    given = ("impact", "--base", old, "--head", new, "--records", records, "--max-newly-denied")

    assert cmf(*given, 1).exit_code == 0
    results = {form: cmf(*given, 0, "--format", form) for form in ("text", "json", "junit", "github")}

    assert {result.exit_code for result in results.values()} == {1}
    assert all("1 newly denied, more than the 0" in result.stderr for result in results.values())
    assert "       1  newly denied\n          by rule test/greeting: 1\n" in results["text"].stdout
    report = ElementTree.fromstring(results["junit"].stdout)
    assert report.attrib["failures"] == "1"
    assert any(line.startswith("::error file=") for line in results["github"].stdout.splitlines())


@pytest.mark.spec("CLI-52")
def test_new_and_changed_rules_without_a_hit_are_named(tmp_path: Path, old: Path, records: Path) -> None:
    never = 'deny contains {"code": "n", "reason": "x"} if input.content == "never"'
    head = rules(
        tmp_path / "head", {"deny": NO.replace('"no")', '"nowhere")'), "mask": MASK, "ask": ASK, "never": never}
    )
    given = ("impact", "--base", old, "--head", head, "--records", records)

    text, document = cmf(*given).stdout, json.loads(cmf(*given, "--format", "json").stdout)

    assert text.splitlines()[-1] == "new or changed, but without a hit in any record: test/deny, test/never"
    assert document["silent"] == ["test/deny", "test/never"]
    assert "without a hit" not in cmf("impact", "--base", old, "--head", old, "--records", records).stdout


@pytest.mark.spec("CLI-52")
def test_both_sides_can_stand_on_the_shipped_policies(tmp_path: Path, old: Path, records: Path) -> None:
    head = rules(tmp_path / "head")
    (head / "cmf/modes").mkdir()
    (head / "cmf/modes/data.yaml").write_text("data/pii: observe\ntest/ask: observe\n", encoding="utf-8")
    given = ("impact", "--base", old, "--head", head, "--records", records, "--format", "json")

    alone, both = cmf(*given), cmf(*given, "-p", "shipped")

    assert (alone.exit_code, alone.stdout) == (3, "")
    assert "add `-p shipped`" in alone.stderr
    assert json.loads(both.stdout)["newly_allowed"] == {
        "count": 1,
        "rules": {"test/ask": 1},
        "subjects": {"bob": 1},
        "ids": json.loads(both.stdout)["newly_allowed"]["ids"],
    }


@pytest.mark.spec("CLI-52")
def test_a_sample_is_evenly_spread_and_the_same_each_time(old: Path, records: Path) -> None:
    given = ("impact", "--base", old, "--head", old, "--records", records, "--format", "json", "--sample")

    counts = [json.loads(cmf(*given, size).stdout)["entries"] for size in (1, 2, 3, 5, 99)]

    assert counts == [1, 2, 3, 5, 5]
    assert cmf(*given, 2).stdout == cmf(*given, 2).stdout


@pytest.mark.spec("CLI-52")
def test_a_revision_is_read_from_git_without_touching_the_working_tree(
    tmp_path: Path, old: Path, records: Path
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        done = subprocess.run(["git", "-C", tmp_path, *who, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    git("init", "-q", "-b", "main")
    git("add", "old")
    git("commit", "-q", "-m", "x")
    rule = old / "cmf" / "rules" / "test" / "deny" / "deny.rego"
    rule.write_text(rule.read_text().replace('"no"', '"hello"'))
    before = git("status", "--porcelain")

    result = cmf("impact", "--base", "git:main", "--head", old, "--records", records, "--format", "json")
    unknown = cmf("impact", "--base", "git:--output=x", "--head", old, "--records", records)
    bare = cmf("impact", "--base", "main", "--head", old, "--records", records, "--format", "json")
    neither = cmf("impact", "--base", "--output=x", "--head", old, "--records", records)

    document = json.loads(result.stdout)
    assert (document["newly_denied"]["count"], document["newly_allowed"]["count"]) == (1, 1)
    assert git("status", "--porcelain") == before
    assert unknown.exit_code == 2
    assert bare.stdout == result.stdout
    assert (neither.exit_code, "no such directory or revision" in neither.stderr) == (2, True)
    assert not (tmp_path / "x").exists()


@pytest.mark.spec("CLI-87")
def test_a_store_on_a_server_is_one_too(old: Path) -> None:
    result = cmf("impact", "--base", old, "--head", old, "--records", "postgresql://nobody:secret@127.0.0.1:1/none")

    assert result.exit_code == 5
    assert "the store cannot be opened at postgresql+psycopg://nobody:***@127.0.0.1:1/none" in result.stderr


@pytest.mark.spec("CLI-53")
@pytest.mark.slow
def test_ctrl_c_ends_a_comparison_and_all_its_processes(old: Path, new: Path, records: Path, tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_bytes(records.read_bytes() * 20_000)
    # On a terminal of its own, so that there is a bar.
    master, slave = pty.openpty()
    running = subprocess.Popen(
        [CMF, "impact", "--base", str(old), "--head", str(new), "--records", str(many)],
        stdout=subprocess.PIPE,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "TMPDIR": str(tmp_path)},
    )
    os.close(slave)
    shown = _read_until(master, b"comparing")
    os.killpg(running.pid, signal.SIGINT)

    shown += _read_until(master, None)
    out, _ = running.communicate(timeout=30)

    assert b"comparing" in shown
    assert b"Traceback" not in shown
    assert (running.returncode, out) == (130, b"")
    assert _alive(running.pid) == []
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("cmf-")] == []


@pytest.mark.spec("CLI-53")
def test_there_is_no_bar_in_a_pipe(old: Path, records: Path) -> None:
    done = subprocess.run(
        [CMF, "impact", "--base", str(old), "--head", str(old), "--records", str(records)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stderr == ""
    assert "base and head are the same policies" in done.stdout


def _read_until(terminal: int, wanted: bytes | None) -> bytes:
    """What is written to the terminal, until `wanted` is in it or nobody writes any more."""
    read = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (wanted is None or wanted not in read):
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                more = os.read(terminal, 65_536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            read += more
    return read


def _alive(group: int) -> list[str]:
    """Processes of the group that still run a while later."""
    deadline = time.monotonic() + 10
    while True:
        listed = subprocess.run(["ps", "-o", "pid=,stat=,args=", "-g", str(group)], capture_output=True, text=True)
        left = [line for line in listed.stdout.splitlines() if " Z" not in line]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.1)


# -- case --------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-54")
def test_an_id_that_is_not_there_is_one_line(records: Path, old: Path) -> None:
    result = cmf("case", "from-record", "dec_none", "--records", records, "--policies", old)

    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (4, "", 1)


@pytest.mark.spec("CLI-54")
def test_a_record_becomes_a_case_that_passes_without_its_secrets(tmp_path: Path) -> None:
    entry = judged(asks(f"the key is {KEY}"), context={"subject": {"id": "ann"}})
    append(tmp_path / "r.jsonl", entry)
    given = ("case", "from-record", entry.id, "--records", tmp_path / "r.jsonl")

    result = cmf(*given, "--name", "a leak")
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "a.yaml").write_text(result.stdout, encoding="utf-8")

    assert (result.exit_code, result.stderr) == (0, "")
    assert KEY not in result.stdout
    assert KEY in cmf(*given, "--with-secrets").stdout
    assert yaml.safe_load(result.stdout)["cases"][0]["name"] == "a leak"
    tested = cmf("test", tmp_path, "--policies", policy_set.shipped())
    assert (tested.exit_code, "1 passed" in tested.stdout) == (0, True), tested.stdout


@pytest.mark.spec("CLI-54")
def test_a_case_that_comes_out_differently_from_its_record_is_reported(records: Path, new: Path) -> None:
    denied = read_entry(list(lines(records))[1])

    result = cmf("case", "from-record", denied.id, "--records", records, "--policies", new)

    assert "cmf: under these policies: verdict: expected deny, got allow" in result.stderr
    assert yaml.safe_load(result.stdout)["cases"][0]["expect"]["verdict"] == "deny"


# -- bench -------------------------------------------------------------------------------------------------------------


@pytest.mark.spec("CLI-55")
def test_bad_figures_and_no_records_are_one_line_each(tmp_path: Path, records: Path, old: Path) -> None:
    (tmp_path / "bad.json").write_text("[]", encoding="utf-8")
    (tmp_path / "bad.jsonl").write_bytes(b"\n" + records.read_bytes().splitlines(keepends=True)[0] + b"{}\n")
    (tmp_path / "nothing").mkdir()
    given = ("bench", records, "--policies", old, "--rounds", 1)

    refusals = [
        (4, cmf(*given, "--baseline", tmp_path / "bad.json")),
        (4, cmf(*given, "--baseline", tmp_path / "none.json")),
        (2, cmf(*given, "--max-regress", "much")),
        (2, cmf("bench", tmp_path / "nothing", "--policies", old)),
    ]

    for code, result in refusals:
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1), result.stderr
    bad = cmf("bench", tmp_path / "bad.jsonl", "--policies", old, "--rounds", 1)
    assert (bad.exit_code, f"{tmp_path / 'bad.jsonl'}:3" in bad.stderr) == (4, True)


@pytest.mark.spec("CLI-55")
def test_figures_are_compared_with_a_baseline(tmp_path: Path, records: Path, old: Path) -> None:
    given = ("bench", records.parent, "--policies", old, "--rounds", 2)

    figures = json.loads(cmf(*given, "--format", "json").stdout)
    fast, slow = tmp_path / "fast.json", tmp_path / "slow.json"
    for path, factor in ((fast, 1_000.0), (slow, 0.001)):
        taken = {name: value / factor for name, value in figures["decision_us"].items()}
        path.write_text(json.dumps({**figures, "decision_us": taken}), encoding="utf-8")

    assert (figures["entries"], figures["decisions"]) == (5, 10)
    assert set(figures["rules_us"]) == {"test/deny", "test/mask", "test/ask"}
    assert 0 < figures["evaluate_us"]["p50"] < figures["decision_us"]["p50"] <= figures["decision_us"]["p99"]
    assert cmf(*given, "--baseline", slow).exit_code == 0
    slower = cmf(*given, "--baseline", fast, "--max-regress", "50%")
    assert slower.exit_code == 1
    assert "slower than the baseline: p50" in slower.stderr
    assert "µs a view  test/" in slower.stdout
