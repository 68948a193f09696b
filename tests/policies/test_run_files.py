"""Files of recorded runs: what recorders do differently is read as the same, and what is no run is told [POL-61]."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from bench.agentdojo import Replay, Tally
from bench.recorded_runs import Run, UnreadableRunError, read_runs
from tests.policies.test_other_tools import CLINIC, CLINIC_RUNS

from cmf.message.message import ToolCallPart

pytestmark = pytest.mark.spec("POL-61")

CALL = {"id": "c0", "name": "pay", "args": {"to": "ann"}}
RESULT = {"role": "tool", "tool_call_id": "c0", "content": "paid"}


def body(call: dict[str, Any] = CALL, result: dict[str, Any] = RESULT, **changes: Any) -> dict[str, Any]:
    said = [{"role": "user", "content": "pay ann"}, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    return {"id": "a", "suite": "x", "tools": ["pay"], "attack": None, "utility": True, "messages": said} | changes


def read(file: Path, *lines: str) -> list[Run]:
    file.write_text("".join(f"{line}\n" for line in lines))
    return list(read_runs(file))


@pytest.mark.parametrize(
    "other",
    [
        body({"id": "c0", "function": "pay", "args": {"to": "ann"}}),
        body({"id": "c0", "type": "function", "function": {"name": "pay", "arguments": '{"to": "ann"}'}}),
        body(result={"role": "tool", "tool_call_id": "c0", "content": [{"type": "text", "content": "paid"}]}),
        body(tools=[{"name": "pay"}]),
        body(injections=["a"], goal_call=None),
    ],
)
def test_one_run_is_the_same_however_its_recorder_spells_it(tmp_path: Path, other: dict[str, Any]) -> None:
    first, second = read(tmp_path / "runs.jsonl", json.dumps(body()), "", json.dumps(other))

    assert first == second


@pytest.mark.parametrize(
    ("call", "given"),
    [
        ({"id": None, "name": "pay", "args": None}, {}),
        ({"id": "", "name": "pay", "arguments": ""}, {}),
        ({"id": 7, "name": "pay", "args": '{"to'}, None),
    ],
)
def test_calls_without_ids_or_arguments_are_read(tmp_path: Path, call: dict[str, Any], given: Any) -> None:
    failed = {"role": "tool", "tool_call_id": None, "content": None, "error": "no such payee"}
    (run,) = read(tmp_path / "runs.jsonl", json.dumps(body(call, failed)))

    part = run.messages[1].content[0]
    assert isinstance(part, ToolCallPart)
    assert (part.tool_call_id, part.arguments) == ("7" if call["id"] else None, given)
    assert part.arguments_raw == (None if given is not None else '{"to')
    assert json.loads(run.messages[2].model_dump_json())["content"][0]["content"] == "no such payee"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "runs.jsonl:2:1: not JSON"),
        ("[]", "runs.jsonl:2: not a recorded run"),
        (json.dumps({"id": "a"}), "runs.jsonl:2: not a recorded run: 'suite' is missing"),
        (json.dumps(body({"id": "c0"})), "runs.jsonl:2: not a recorded run: 'function' is missing"),
        (json.dumps(body(messages=[{"role": "wizard"}])), "runs.jsonl:2: unknown role"),
    ],
)
def test_a_malformed_run_is_refused_with_its_place(tmp_path: Path, line: str, why: str) -> None:
    with pytest.raises(UnreadableRunError) as told:
        read(tmp_path / "runs.jsonl", json.dumps(body()), line)

    assert why in str(told.value)


def test_an_archive_that_cannot_be_read_is_refused_and_a_gzip_file_read(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl.gz"
    file.write_text("no archive")
    with pytest.raises(UnreadableRunError, match="cannot be read"):
        list(read_runs(file))

    file.write_bytes(gzip.compress(json.dumps(body()).encode()))
    assert [run.id for run in read_runs(file)] == ["a"]


def test_names_decide_nothing(tmp_path: Path) -> None:
    """The same runs with every tool, argument and field called something else."""
    words = [*CLINIC, "number", "patient", "cover", "slot", "sender", "text"]
    names = {word: f"zz{place}" for place, word in enumerate(words)}

    def renamed(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {names.get(word, word): renamed(item, word) for word, item in value.items()}
        if isinstance(value, list):
            return [renamed(item, key) for item in value]
        if key == "content" and isinstance(value, str) and value[:1] in ("{", "["):
            return json.dumps(renamed(json.loads(value)))
        return names.get(value, value) if key in ("name", "control", "content", "tools") else value

    told = renamed(CLINIC)
    told[names["list_letters"]]["result"]["fields"] = {f"[*].{names['text']}": "untrusted"}
    outcomes = []
    for name, profiles, bodies in (("given", CLINIC, CLINIC_RUNS), ("renamed", told, renamed(CLINIC_RUNS))):
        registry = tmp_path / f"{name}.json"
        registry.write_text(json.dumps({"version": 1, "profiles": profiles}))
        replay, tally = Replay(registry), Tally()
        for run in read(tmp_path / "runs.jsonl", *map(json.dumps, bodies)):
            replay.tally(run, tally)
        outcomes.append((tally.stopped, tally.kept, tally.approvals, tally.rules))

    assert outcomes[0] == outcomes[1]
    assert outcomes[0][:2] == (2, 2)
