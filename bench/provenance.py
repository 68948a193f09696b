"""`python -m bench.provenance [--agentdojo FILE]`: what asking for origins costs, and what it says of recorded runs."""

from __future__ import annotations

import argparse
import datetime
import platform
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.recorded_runs import Run, read_runs
from cmf.enums import Role
from cmf.message.message import Message, ToolCallPart
from pipeline.provenance.index import EVERYTHING, Index
from pipeline.provenance.profiles import Profiles

PROFILES = Path(__file__).resolve().parent.parent / "examples" / "agentdojo"
TURNS = (50, 100, 200, 400)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="bench.provenance", description=__doc__)
    parser.add_argument("--agentdojo", type=Path, metavar="FILE", help="recorded runs, .jsonl or .jsonl.gz")
    chosen = parser.parse_args()
    print(growth())
    if chosen.agentdojo is not None:
        print(quality(list(read_runs(chosen.agentdojo))))
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {platform.machine()}, Python {platform.python_version()}")


def growth() -> str:
    """Cost of one more turn with the index kept, and of a whole conversation read anew, by length."""
    profiles = Profiles.load(PROFILES / "workspace.yaml")
    lines = [
        "| turns | one more turn, index kept | same, work | whole conversation, anew | per turn |",
        "|---|---|---|---|---|",
    ]
    for turns in TURNS:
        conversation = [turn(number) for number in range(turns)]
        index = Index(profiles, EVERYTHING)
        costs, work = [], []
        for messages in conversation:
            start, steps = time.process_time(), index.work
            read(index, messages)
            costs.append(time.process_time() - start)
            work.append(index.work - steps)
        last = statistics.median(costs[-20:])
        start = time.process_time()
        fresh = Index(profiles, EVERYTHING)
        for messages in conversation:
            for message in messages:
                fresh.extend(message)
        whole = time.process_time() - start
        lines.append(
            f"| {turns} | {last * 1e6:.0f} µs | {statistics.median(work[-20:]):.0f} | {whole * 1e3:.1f} ms "
            f"| {whole / turns * 1e6:.0f} µs |"
        )
    return "\n".join(lines) + "\n"


def turn(number: int) -> list[Message]:
    """A request, a search with a result of three mails of 400 characters, a mail sent, and its receipt."""
    mails = [
        {"id_": f"{number}-{place}", "sender": f"p{number}.{place}@example.com", "subject": f"Report {number}",
         "body": f"About report {number}: " + "the figures of the quarter are attached as agreed. " * 8}
        for place in range(3)
    ]  # fmt: skip
    call, sent = f"c{number}", f"s{number}"
    return [
        _said(
            "user", [{"content_type": "text", "text": f"Find the mail about report {number} and answer p{number}.1"}]
        ),
        _said("assistant", [_call("search_emails", call, {"query": f"report {number}"})]),
        _said("tool", [{"content_type": "tool_result", "tool_call_id": call, "content": mails}]),
        _said(
            "assistant",
            [
                _call(
                    "send_email",
                    sent,
                    {
                        "recipients": [f"p{number}.1@example.com"],
                        "subject": f"Re: Report {number}",
                        "body": f"Thank you for report {number}; the figures of the quarter are as agreed.",
                    },
                )
            ],
        ),
        _said("tool", [{"content_type": "tool_result", "tool_call_id": sent, "content": {"id_": sent}}]),
    ]


def _said(role: str, parts: list[dict[str, object]]) -> Message:
    return Message.model_validate({"role": role, "content": parts})


def _call(name: str, tool_id: str, arguments: dict[str, object]) -> dict[str, object]:
    return {"content_type": "tool_call", "name": name, "tool_call_id": tool_id, "arguments": arguments}


def read(index: Index, messages: Sequence[Message]) -> None:
    """Judge what there is to judge, as the pipeline does, and read on."""
    for message in messages:
        for part in message.content:
            if isinstance(part, ToolCallPart):
                index.origins(part)
        index.extend(message)


def quality(runs: Sequence[Run]) -> str:
    """Per suite: where the control arguments of acting calls came from, and whether they were asked for."""
    head = "| suite | honest runs | control values trusted | runs all trusted | calls asked for | runs all asked for "
    lines = [head + "| goal calls | not trusted | not trusted or not asked |", "|---" * 9 + "|"]
    for suite in sorted({run.suite for run in runs}):
        file = PROFILES / f"{suite}.yaml"
        if not file.exists():
            continue
        profiles = Profiles.load(file)
        count = Counter[str]()
        for run in runs:
            if run.suite == suite and (run.goal_call if run.attacked else run.useful):
                count.update(tally(run, profiles))
        lines.append(
            f"| {suite} | {count['runs']} | {_share(count, 'trusted', 'control')} | {_share(count, 'clean', 'runs')} "
            f"| {_share(count, 'asked', 'askable')} | {_share(count, 'wanted', 'runs')} "
            f"| {count['goals']} | {_share(count, 'strange', 'goals')} | {_share(count, 'stopped', 'goals')} |"
        )
    return "\n".join(lines) + "\n"


def tally(run: Run, profiles: Profiles) -> Counter[str]:
    """What one run adds to the counts of its suite."""
    index, count = Index(profiles, EVERYTHING), Counter[str]()
    strange = unasked = False
    for message in run.messages:
        for part in message.content if message.role is Role.ASSISTANT else ():
            profile = profiles.find(part.name, part.namespace) if isinstance(part, ToolCallPart) else None
            if profile is None or not profile.acts:
                continue
            for entry in index.origins(part):
                if entry["type"] == "before" or (entry["type"] == "call" and not entry["askable"]):
                    continue
                if entry["type"] == "call":
                    count["askable"] += 1
                    count["asked"] += bool(entry["sources"])
                    unasked = unasked or not entry["sources"]
                elif entry["use"] == "control" and entry["type"] not in ("null", "boolean", "empty"):
                    trusted = any(source["trust"] == "trusted" for source in entry["sources"])
                    count["control"] += 1
                    count["trusted"] += trusted
                    strange = strange or not trusted
            if run.attacked and part.tool_call_id == run.goal_call:
                return Counter(goals=1, strange=strange, stopped=strange or unasked)
        index.extend(message)
    if run.attacked:
        return Counter()
    return count + Counter(runs=1, clean=not strange, wanted=not unasked)


def _share(count: Counter[str], part: str, whole: str) -> str:
    return f"{count[part]}/{count[whole]} ({100 * count[part] / count[whole]:.1f} %)" if count[whole] else "-"


if __name__ == "__main__":
    main()
